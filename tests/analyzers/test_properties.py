"""What holds for every analyzer and any run: order of rows, files and names of ranks do not matter, nor does the zero
of the clock; parts sum to the whole; unions are what counting every millisecond gives. Floats are compared by their
bits.
"""

import random
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from random_run import NUM_STEPS, STEP_MS, Numbers, Rows, numbers, random_rows, renamed, shifted, write
from run_builder import MS, RunBuilder

from rankscope.analyzers.communication import communication
from rankscope.analyzers.loading import loading
from rankscope.analyzers.phases import phases
from rankscope.analyzers.pipeline import pipeline
from rankscope.analyzers.run import Run
from rankscope.analyzers.time import times

FEW = settings(max_examples=3, phases=(Phase.explicit, Phase.generate))
"""Every example asks every question of two runs (a second of CPU each); a smaller run tells no more, so none is sought.
"""
RATIOS = ("cpu_utilisation_ratio", "iowait_ratio", "cpu_pressure_ratio", "memory_pressure_ratio", "io_pressure_ratio")
SEEDS = st.integers(0, 10**6)


def analysed(rows: Rows, **how: Any) -> Numbers:
    with tempfile.TemporaryDirectory() as folder:
        return numbers(write(Path(folder) / "run", rows, **how))


def differences(one: Numbers, other: Numbers) -> list[object]:
    return [(key, one.get(key), other.get(key)) for key in {**one, **other} if one.get(key) != other.get(key)]


@FEW
@given(SEEDS, st.integers(1, 4))
def test_the_order_of_rows_and_files_does_not_matter(seed: int, pieces: int) -> None:
    rows = random_rows(seed)
    one, other = analysed(rows), analysed(rows, pieces=pieces, shuffle=random.Random(seed))
    assert len(one) > 60 and not differences(one, other)


@FEW
@given(SEEDS, st.permutations(range(3)))
def test_the_names_of_ranks_do_not_matter(seed: int, ranks: list[int]) -> None:
    rows = random_rows(seed)
    one, other = analysed(rows), analysed(renamed(rows, ranks))
    assert not differences(_by_names(one, ranks), _by_names(other, [0, 1, 2]))


@FEW
@given(SEEDS, st.sampled_from([1, 10**6, 10**9]))
def test_the_zero_of_the_clock_does_not_matter(seed: int, by_ms: int) -> None:
    rows = random_rows(seed)
    assert not differences(analysed(rows), analysed(shifted(rows, by_ms)))


def test_threads_do_not_matter(tmp_path: Path) -> None:
    """Floats added up in another order differ in the last bits: there must be no such sum anywhere."""
    draw, root, build = random.Random(3), tmp_path / "run", RunBuilder(tmp_path / "run", world_size=1)
    for piece in range(4):
        for number in range(2500):
            at, ratios = 2500 * piece + number, [draw.random() for _ in range(5)]
            build.add("host_sample", 0, node=build.node, time_ns=at * MS, **dict(zip(RATIOS, ratios, strict=True)))
            build.add(
                "device_sample", 0, node=build.node, device_uuid="d", time_ns=at * MS, sm_utilisation_ratio=ratios[0],
                power_watts=700 * ratios[1], temperature_celsius=90 * ratios[2],
            )  # fmt: skip
            build.fact("metric", 0, step=at, time_ns=at * MS, name="loss", value=draw.random())
        if piece == 3:
            build.step(0, 0, 0, 5000)
            build.step(0, 1, 5000, 10_000)
            build.entities()
        build.seal()
    one = numbers(str(root), threads=1)
    assert any(name == "host.pressure" for _, name, _ in one)
    for threads in (2, 8):
        assert not differences(one, numbers(str(root), threads=threads))


@FEW
@given(SEEDS)
def test_parts_sum_to_the_whole_and_unions_are_what_counting_gives(seed: int) -> None:
    rows = random_rows(seed)
    spans, waits = rows.get(("span", 0), []), rows["collective", 0]
    with tempfile.TemporaryDirectory() as folder, Run.open(write(Path(folder) / "run", rows)) as run:
        for timeline in times(run).timelines:
            parts = [timeline.value(f"time.{part}") for part in ("compute", "host_wait", "exposed_other")]
            assert parts[0] is None or sum(part or 0 for part in parts) == timeline.value("time.span")
        for item in communication(run).host_wait:
            mine = [(row["wait_begin_ns"], row["wait_end_ns"]) for row in waits if row["rank"] == item.scope["rank"]]
            assert (item.value or 0) == _counted(mine, STEP_MS, NUM_STEPS * STEP_MS)
        for phase in phases(run).phases:
            mine = [(row["start_ns"], row["end_ns"]) for row in spans if row["kind"] == phase.name]
            by_rank = [_counted([(row["start_ns"], row["end_ns"]) for row in spans
                                 if row["kind"] == phase.name and row["rank"] == rank and row["step"] > 0])
                       for rank in range(3)]  # fmt: skip
            assert phase.mean.value == sum(by_rank) // 3 and phase.most.value == max(by_rank)
        for item in loading(run).by_rank:
            mine = [(row["start_ns"], row["end_ns"]) for row in spans
                    if row["kind"] == "data" and row["rank"] == item.scope["rank"]]  # fmt: skip
            mine += [(row["time_ns"] - row["wait_ns"], row["time_ns"]) for row in rows["sample_batch", 0]
                     if row["rank"] == item.scope["rank"]]  # fmt: skip
            whole = NUM_STEPS * STEP_MS
            assert item.value == pytest.approx(_counted(mine, 0, whole) / (whole * MS))


@FEW
@given(SEEDS)
def test_the_bubble_is_what_counting_gives(seed: int) -> None:
    draw, build = random.Random(seed), RunBuilder(Path(), world_size=2)
    for rank in (0, 1):
        for step in range(3):
            for number in range(draw.randrange(1, 4)):
                start = step * STEP_MS + draw.randrange(25)
                build.span(rank, step, "microbatch_forward", start, start + draw.randrange(1, 10), stage=rank, chunk=0,
                           microbatch=number)  # fmt: skip
            start = step * STEP_MS + draw.randrange(25)
            build.span(rank, step, "data", start, start + draw.randrange(10))
            build.step(rank, step, step * STEP_MS, (step + 1) * STEP_MS)
    build.entities()
    spans = build.rows["span", 0]
    with (
        tempfile.TemporaryDirectory() as folder,
        Run.open(write(Path(folder) / "r", dict(build.rows), num_ranks=2)) as run,
    ):
        found = pipeline(run)
    assert found is not None
    for item in found.ranks:
        mine = [row for row in spans if row["rank"] == item.rank and row["step"] > 0]
        busy = _counted([(row["start_ns"], row["end_ns"]) for row in mine if row["kind"] != "data"])
        excused = _counted([(row["start_ns"], row["end_ns"]) for row in mine])
        assert item.idle.value == pytest.approx(1 - busy / (2 * STEP_MS * MS))
        assert item.bubble.value == pytest.approx(1 - excused / (2 * STEP_MS * MS))


def _counted(intervals: Iterable[tuple[int | None, int | None]], low_ms: int = 0, high_ms: int = 10**6) -> int:
    """Nanoseconds in the union, by looking at every millisecond."""
    covered: set[int] = set()
    for start, end in intervals:
        if start is not None and end is not None:
            covered.update(range(max(start // MS, low_ms), min(end // MS, high_ms)))
    return MS * len(covered)


def _by_names(found: Numbers, ranks: list[int]) -> Numbers:
    """With the ranks renamed. Which of several equal ranks is the one that spent most is a matter of names."""
    named: Numbers = {}
    for (question, name, scope), value in found.items():
        pairs: list[tuple[str, Any]] = eval(scope)  # the repr of a list of pairs, made by us
        keys = [(key, ranks[text] if key == "rank" else text) for key, text in pairs]
        if name == "time.phase":
            keys = [pair for pair in keys if pair[0] != "rank"]
        named[question, name, repr(sorted(keys, key=str))] = value
    return named
