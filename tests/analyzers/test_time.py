"""Where the time went: against counting every nanosecond, in any order of rows, and a live run worked out by hand."""

import random
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from run_builder import MS, RunBuilder, healthy_run

from rankscope.analyzers.hta import COMMUNICATION, COMPUTE, HtaTrace, breakdowns, class_of, union
from rankscope.analyzers.run import Run
from rankscope.analyzers.time import times
from rankscope.analyzers.timeline import HOST, PARTS

CLASSES = ("compute", "communication", "copy", "other")


def _activities(seed: int, num: int = 60, length: int = 400) -> list[tuple[str, int, int]]:
    random_ = random.Random(seed)
    found = []
    for _ in range(num):
        start = random_.randrange(length)
        found.append((random_.choice(CLASSES), start, start + random_.choice((0, 0, 1, 3, 8, 20))))
    return found


def _run(folder: Path, activities: list[tuple[str, int, int]]) -> Path:
    build = RunBuilder(folder, world_size=1)
    for kind, start, end in activities:
        build.fact(
            "kernel", 0, category="kernel", name=kind, kernel_class=kind, stream_id=7, start_ns=start, end_ns=end
        )
    build.fact("kernel", 0, category="cpu_op", name="aten::add", kernel_class="compute", start_ns=-500, end_ns=900)
    build.entities()
    return build.seal()


def _by_counting(activities: list[tuple[str, int, int]]) -> dict[str, int]:
    """Every nanosecond on its own."""
    covered = {kind: np.zeros(1000, np.bool_) for kind in CLASSES}
    for kind, start, end in activities:
        covered[kind][start:end] = True
    first, last = min(item[1] for item in activities), max(item[2] for item in activities)
    k, c, m, o = (covered[kind] for kind in CLASSES)
    found = {
        "time.span": last - first, "time.compute": k.sum(), "time.communication": c.sum(), "time.copy": m.sum(),
        "time.overlap": (c & k).sum(), "time.exposed_communication": (c & ~k).sum(),
        "time.exposed_copy": (m & ~k & ~c).sum(), "time.exposed_other": (o & ~k & ~c & ~m).sum(),
    }  # fmt: skip
    return {name: int(value) for name, value in found.items()} | {
        "time.idle": last - first - int((k | c | m | o).sum())
    }


@pytest.mark.parametrize("seed", range(6))
def test_it_is_what_counting_gives_in_any_order(seed: int, tmp_path: Path) -> None:
    activities = _activities(seed)
    answer = _by_counting(activities)
    random.Random(seed + 100).shuffle(activities)
    with Run.open(str(_run(tmp_path / "run", activities))) as run:
        [line] = times(run).timelines
    assert {name: line.value(name) for name in answer} == answer
    assert sum(line.value(part) or 0 for part in PARTS) == line.value("time.span")
    assert line.num_intervals == len(activities)


def test_shifting_the_clock_changes_nothing(tmp_path: Path) -> None:
    found = []
    for at, shift in enumerate((0, 1_700_000_000_000_000_000)):
        moved = [(kind, start + shift, end + shift) for kind, start, end in _activities(1)]
        with Run.open(str(_run(tmp_path / str(at), moved))) as run:
            found.append({name: item.value for name, item in times(run).timelines[0].measurements.items()})
    assert found[0] == found[1]


def test_without_communication_overlap_is_none_and_the_ratio_0(tmp_path: Path) -> None:
    with Run.open(str(_run(tmp_path / "run", [("compute", 0, 10), ("compute", 20, 30)]))) as run:
        [line] = times(run).timelines
    overlap = line.measurements["ratio.overlap"]
    assert overlap.value is None and overlap.reason == "it did not communicate"
    assert line.value("ratio.communication_computation") == 0 and line.value("time.idle") == 10


def test_a_live_cpu_job(tmp_path: Path) -> None:
    """Five counted steps: 40 ms forward each; rank 0 waits 30 ms, rank 1 10 ms, inside 700 ms of steps."""
    with Run.open(str(healthy_run(tmp_path / "run"))) as run:
        lines = times(run).timelines
    assert [(line.rank, line.kind) for line in lines] == [(0, HOST), (1, HOST)]
    for line, wait in zip(lines, (150, 50), strict=True):
        assert line.value("time.span") == 700 * MS
        assert line.value("time.compute") == 200 * MS
        assert line.value("time.host_wait") == wait * MS == line.value("time.communication")
        assert line.value("time.exposed_other") == (500 - wait) * MS
        assert "time.exposed_communication" not in line.measurements
        assert line.value("ratio.communication_computation") == wait / 200


def test_a_rank_whose_operations_are_lost_did_not_wait_nothing(tmp_path: Path) -> None:
    path = healthy_run(tmp_path / "run")
    for file in (path / "collective").rglob("*.parquet"):
        rows = pq.read_table(file, partitioning=None)
        pq.write_table(rows.filter(pc.equal(rows.column("rank"), 0)), file)
    with Run.open(str(path)) as run:
        there, lost = times(run, 0.8).timelines
    for name in ("time.host_wait", "time.communication", "time.compute", "time.overlap"):
        assert lost.value(name) is None and "rows of this rank are missing" in lost.measurements[name].reason
    assert there.value("time.host_wait") is not None and lost.value("time.span") == there.value("time.span")


def test_a_wait_inside_backward_is_no_compute(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run", world_size=1)
    for step in range(2):
        start = 100 * step
        build.span(0, step, "backward", start, start + 80)
        build.collective(0, step, start + 20, (start + 50, start + 70), start + 70, step=step)
        build.step(0, step, start, start + 100)
    build.entities()
    with Run.open(str(build.seal())) as run:
        [line] = times(run).timelines
    assert (line.value("time.compute"), line.value("time.host_wait")) == (60 * MS, 20 * MS)
    assert (line.value("time.communication"), line.value("time.overlap")) == (50 * MS, 30 * MS)


@pytest.mark.parametrize("timing_source", ["poll", "device_event"])
def test_waits_inside_cpp_are_unknown_and_not_nothing(timing_source: str, tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run", world_size=1)
    for step in range(3):
        build.span(0, step, "backward", 100 * step, 100 * step + 80)
        build.collective(0, step, 100 * step + 20, None, 100 * step + 70, step=step, phase="backward",
                         timing_source=timing_source)  # fmt: skip
        build.step(0, step, 100 * step, 100 * step + 100)
    build.entities()
    with Run.open(str(build.seal())) as run:
        [line] = times(run).timelines
    waited = line.measurements["time.host_wait"]
    assert waited.value is None and "inside backward" in waited.reason
    if timing_source == "poll":  # what it may hold too much is said with the number
        assert line.value("time.compute") == 160 * MS
        assert "is counted as compute" in line.measurements["time.compute"].provenance.caveats[0]


def test_host_times_of_a_cuda_job_are_never_called_compute(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run", world_size=1)
    for step in range(2):
        start = 100 * step
        build.span(0, step, "forward", start, start + 80)
        build.collective(0, step, start + 20, None, start + 70, step=step, timing_source="device_event",
                         wait_device_start_ns=(start + 60) * MS, wait_device_end_ns=(start + 70) * MS,
                         device_start_ns=(start + 30) * MS, device_end_ns=(start + 70) * MS)  # fmt: skip
        build.step(0, step, start, start + 100)
    build.entities()
    with Run.open(str(build.seal())) as run:
        [line] = times(run).timelines
    compute = line.measurements["time.compute"]
    assert compute.value is None and "only host times" in compute.reason and line.value("time.idle") is None
    assert line.value("time.exposed_communication") == 10 * MS and line.value("time.communication") == 40 * MS


@pytest.mark.parametrize("seed", range(4))
def test_union_against_counting(seed: int) -> None:
    intervals = [(start, end) for _, start, end in _activities(seed)]
    covered = np.zeros(1000, np.bool_)
    for start, end in intervals:
        covered[start:end] = True
    starts, ends = (np.array(side, np.float64) for side in zip(*intervals, strict=True))
    assert union(starts, ends) == covered.sum()


def test_hta_leaves_the_last_of_several_steps_out() -> None:
    """Two steps of 100 us; in each one kernel of 10 us, launched 5 us into it."""
    host = [(0, 100, -1, -1, 1), (5, 1, -1, 11, -1), (100, 100, -1, -1, 2), (105, 1, -1, 12, -1)]
    device = [(20, 10, 7, 11, -1), (120, 10, 7, 12, -1)]
    start, duration, stream, correlation, step = (np.array(column) for column in zip(*host, *device, strict=True))
    classes = np.full(len(start), COMPUTE)
    trace = HtaTrace(
        0, start.astype(float), duration.astype(float), stream, correlation, classes, step, has_fractions=False
    )
    [line] = breakdowns([trace])
    assert (line.kernel_us, line.compute_us, line.idle_us, line.overlap_percent) == (10, 10, 0, None)


def test_hta_classes_go_by_the_begin_of_the_name() -> None:
    assert class_of("ncclDevKernel_AllReduce") == class_of("void x ncclKernel_y") == COMMUNICATION
    assert class_of("void cross_device_reduce_1stage") == COMPUTE
