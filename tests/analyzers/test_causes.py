"""The cause from the culprit's own rows: planted ones are found, the particular before the general, none invented."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from late_run import late_run
from run_builder import MS, RunBuilder, proc_of

from rankscope.analyzers.causes import Cause, cause, painted
from rankscope.analyzers.lateness import lateness
from rankscope.analyzers.run import Run

LATE = 2
NUM = 28
"""Of 30 steps the first is not counted, and of the second it is not known when the ranks set out."""


def found_cause(path: Path, rate: float = 0.5) -> Cause:
    with Run.open(str(path)) as run:
        late = lateness(run)
        return cause(run, LATE, late.steps, [rank for rank in late.ranks if rank != LATE], rate)


def planted(root: Path, delays: Mapping[str, int]) -> RunBuilder:
    build = RunBuilder(root, world_size=4)
    late_run(build, lambda rank, _: delays if rank == LATE else {})
    return build


@pytest.mark.parametrize(
    ("delays", "name", "share"),
    [
        ({"data": 40}, "data", 1.0),
        ({"forward": 40}, "compute", 1.0),
        ({"backward": 30, "forward": 10}, "compute", 1.0),
        ({"gc": 40}, "gc", 1.0),
        ({"compile": 40}, "compile", 1.0),
        ({"checkpoint": 40}, "checkpoint", 1.0),
        ({"gc": 36, "forward": 4}, "gc", 0.9),
        ({"nothing": 40}, "unknown", 0.0),
        ({"data": 20, "forward": 20}, "unknown", 0.5),
        ({"data": 30, "nothing": 10}, "unknown", 0.75),
    ],
)
def test_planted_causes(tmp_path: Path, delays: Mapping[str, int], name: str, share: float) -> None:
    found = found_cause(planted(tmp_path / "run", delays).root)
    assert (found.name, found.num_steps) == (name, NUM) and found.share == pytest.approx(share)
    assert found.lateness_ns == NUM * 40 * MS
    assert dict(found.parts) == {
        {"forward": "compute", "backward": "compute"}.get(kind, kind): amount * NUM * MS
        for kind, amount in delays.items() if kind != "nothing"
    } or len(delays) > 1  # fmt: skip


def test_time_in_an_own_span_is_told_although_it_is_no_cause(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run", world_size=4)
    late_run(build, lambda rank, _: {"nothing": 0, "upload": 40} if rank == LATE else {})
    found = found_cause(build.root)
    assert found.parts[0] in {("compute", NUM * 40 * MS), ('span "upload"', NUM * 40 * MS)}


def test_the_evidence_is_a_predicate_that_finds_the_rows(tmp_path: Path) -> None:
    path = planted(tmp_path / "run", {"data": 40}).root
    (evidence,) = found_cause(path).evidence
    with Run.open(str(path)) as run:
        ((num, total),) = run.rows(
            f"SELECT count(*), sum(end_ns - start_ns) FROM {evidence['table']} WHERE {evidence['predicate']}"
        )
    assert (num, int(total)) == (NUM, NUM * 45 * MS)


def test_slow_transfers_in_another_group_are_the_network(tmp_path: Path) -> None:
    """Ranks 2, 3 share a group whose transfers take 30 ms, that of 0, 1 takes 2 ms; then all four meet."""
    build = RunBuilder(tmp_path / "run", world_size=4)
    build.group("fast", [0, 1], "tp")
    build.group("slow", [2, 3], "tp")
    for step in range(30):
        start = 100 * step
        for rank in range(4):
            begin, end = start + 10, start + (40 if rank >= 2 else 12)
            build.span(rank, step, "forward", start, end + 10)
            build.collective(rank, step, begin, (begin, end), end, group_id="slow" if rank >= 2 else "fast", step=step)
            build.collective(rank, step, end + 10, (end + 10, start + 60), start + 60, step=step)
            build.step(rank, step, start, start + 100)
    build.entities()
    with Run.open(str(build.seal())) as run:
        late = lateness(run)
        assert [late.ranks[at] for at in range(4) if late.own_ns[:, at].sum() > 0] == [2, 3]
        found = cause(run, 2, late.steps, [0, 1], 0.3)
    assert (found.name, found.parts) == ("network", (("network", NUM * 28 * MS),))


@pytest.mark.parametrize(("waiting_share", "name"), [(0.45, "cpu_contention"), (0.2, "compute")])
def test_waiting_for_a_cpu_explains_longer_computation(tmp_path: Path, waiting_share: float, name: str) -> None:
    """Half of the time late, and that long more than the others in the run queue: 90 %, or 40 % of the lateness."""
    build = planted(tmp_path / "run", {"forward": 40})
    _read_processes(build, lambda rank: {"run_queue_wait_ns": waiting_share if rank == LATE else 0.0})
    found = found_cause(build.seal())
    assert found.name == name
    if name == "cpu_contention":
        assert found.share == pytest.approx(0.9, abs=0.01) and found.evidence[0]["table"] == "process_sample"


def test_page_faults_and_a_throttled_device(tmp_path: Path) -> None:
    build = planted(tmp_path / "faults", {"forward": 40})
    _read_processes(build, lambda rank: {"num_major_faults": 0.45 / 100_000 if rank == LATE else 0.0})
    assert found_cause(build.seal()).name == "page_faults"
    build = RunBuilder(tmp_path / "throttled", world_size=4)
    late_run(build, lambda rank, _: {"forward": 40} if rank == LATE else {})
    for rank in range(4):
        build.add("process", proc=proc_of(rank), rank=rank, node=build.node, boot_id="11111111-aaaa", incarnation=0,
                  device_uuid=f"gpu-{rank}")  # fmt: skip
        for reading in range(5):
            at = (500 + 200 * reading) * MS
            reasons = "gpu_idle,hw_thermal_slowdown" if rank == LATE else "gpu_idle"
            build.add(
                "device_sample", 0, node=build.node, device_uuid=f"gpu-{rank}", time_ns=at, throttle_reasons=reasons
            )
    (build.root / "process").joinpath(f"{build.node}.parquet").unlink()
    assert found_cause(build.seal()).name == "throttle"


def _read_processes(build: RunBuilder, rates: Callable[[int], Mapping[str, float]]) -> None:
    for rank in range(4):
        for reading in range(6):
            time = (400 + 300 * reading) * MS
            counters = {name: round(rate * time) for name, rate in rates(rank).items()}
            build.add("process_sample", 0, proc=proc_of(rank), rank=rank, time_ns=time, **counters)


def test_each_instant_is_painted_once_and_the_particular_wins() -> None:
    spans = [("compute", 0, 10), ("gc", 4, 6), ("data", 9, 20), ('span "x"', 0, 30)]
    assert painted(spans, (2, 8)) == {"compute": 4, "gc": 2}
    assert painted(spans, (0, 40)) == {"compute": 7, "gc": 2, "data": 11, 'span "x"': 10}
    assert painted([], (0, 5)) == {} == painted(spans, (50, 60))


def test_operations_that_make_little_of_the_lateness_tell_no_cause(tmp_path: Path) -> None:
    """The rank was late by far more than the operations show of which it is known when the ranks set out."""
    with Run.open(str(planted(tmp_path / "run", {"data": 40}).root)) as run:
        late = lateness(run)
        others = [rank for rank in late.ranks if rank != LATE]
        enough = cause(run, LATE, late.steps, others, 0.5, dict.fromkeys(late.steps, 70 * MS))
        little = cause(run, LATE, late.steps, others, 0.5, dict.fromkeys(late.steps, 90 * MS))
    assert (enough.name, little.name, little.share) == ("data", "unknown", 0.0)
