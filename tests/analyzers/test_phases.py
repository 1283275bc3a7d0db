"""Phases against answers worked out by hand."""

from pathlib import Path

from run_builder import MS, RunBuilder

from rankscope.analyzers.phases import phases
from rankscope.analyzers.report import report
from rankscope.analyzers.run import Run


def test_union_mean_and_most(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for rank in (0, 1):
        for step in range(3):
            start = 100 * step
            build.step(rank, step, start, start + 100)
            build.span(rank, step, "forward", start, start + 30 + 10 * rank)
            build.span(rank, step, "forward", start + 10, start + 20)  # nested: counts once
            build.span(rank, step, "user", start + 50, start + 60, name="augment")
            build.span(rank, step, "backward", start + 60, start + 61, end_ns=None)  # never ended
    build.entities()
    with Run.open(str(build.seal())) as run:
        found = phases(run)
    assert [phase.name for phase in found.phases] == ["forward", "augment"]
    forward, user = found.phases
    assert (forward.mean.value, forward.most.value, forward.slowest_rank) == (70 * MS, 80 * MS, 1)
    assert forward.share == 140 / 400 and user.share == 40 / 400 and found.steps_per_rank == 2


def test_no_spans_are_no_phases(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.step(0, 0, 0, 1)
    build.entities()
    with Run.open(str(build.seal())) as run:
        assert phases(run).phases == ()


def test_a_collector_that_stops_one_rank_of_many_is_a_headline(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for rank in range(8):
        for step in range(4):
            build.step(rank, step, 100 * step, 100 * step + 100)
            pause = {0: 4, 5: 20}.get(rank)  # 20 ms of 100 on rank 5: 3 % of all ranks' time
            if pause:
                build.span(rank, step, "gc", 100 * step, 100 * step + pause, name="generation 2")
    build.entities()
    with Run.open(str(build.seal())) as run:
        told = [line.text for line in report(run).headlines if "collector" in line.text]
    assert told == ["Rank 5 spends 20 % of its steps in pauses of Python's collector."]
