"""How complete, what is missing, what it cost: against answers worked out by hand."""

import math
from pathlib import Path

import pytest
from run_builder import RunBuilder, healthy_run, proc_of

from rankscope.analyzers.coverage import Coverage, coverage
from rankscope.analyzers.headline import CRITICAL, WARNING
from rankscope.analyzers.report import Report, report
from rankscope.analyzers.run import Run


def coverage_of(run_dir: Path) -> Coverage:
    with Run.open(str(run_dir)) as run:
        return coverage(run)


def report_of(run_dir: Path) -> Report:
    with Run.open(str(run_dir)) as run:
        return report(run)


def test_everything_is_there(tmp_path: Path) -> None:
    found = coverage_of(healthy_run(tmp_path / "run"))
    assert (found.coverage.value, found.coverage.n, found.dropped.value, found.missing.value, found.errors.value) == (
        1,
        36,
        0,
        0,
        0,
    )
    assert {item.scope["table"]: item.value for item in found.rows} == {
        "run": 1, "process": 2, "node": 1, "process_group": 1, "collective": 12, "span": 12, "step": 12, "capture": 2,
    }  # fmt: skip
    assert [(tier.scope, tier.value) for tier in found.tiers] == [({"tier": "class"}, 1.0)]


def test_missing_ranks_and_dropped_rows(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run", world_size=4)
    for rank in (0, 1, 2):
        for step in range(90):
            build.step(rank, step, step, step + 1)
    build.entities(ranks=[0, 1, 2], dropped=10)
    found = coverage_of(build.seal())
    # the example of the analyzer's docstring: 270 / (300 + 100)
    assert found.coverage.value == 0.675 and found.coverage.n == 270
    assert found.dropped.value == 30 and found.missing_ranks == (3,)
    texts = [line.text for line in report_of(build.root).headlines]
    assert texts[0] == "Rank 3 left no row: nothing is known about it."
    assert "30 rows were overwritten before they were read." in texts


def test_gaps_show_even_if_nobody_counted_them(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run", world_size=1)
    for step in range(4):
        build.step(0, step, step, step + 1, record=3 * step)
    build.add("process", proc=proc_of(0), rank=0, incarnation=0)
    assert coverage_of(build.seal()).coverage.value == 4 / 10


def test_a_rank_killed_is_said_first_and_is_a_verdict(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for rank in (0, 1):
        build.collective(rank, 0, 1, (1, 2), 2)
    build.collective(0, 1, 5, None, None, step=4)
    build.entities(ends={1: {"exit_kind": "killed"}})
    found = report_of(build.seal())
    assert [line.text for line in found.headlines if line.level == 2] == [
        "Rank 1 died without a clean end (killed, or lost with the node).",
        "all_reduce number 1 in world in step 4 never completed: issued by rank 0, not by rank 1.",
    ]
    (verdict,) = found.verdicts
    assert (verdict.kind, verdict.ranks) == ("dead_rank", (1,))


@pytest.mark.parametrize(("error", "said"), [(None, ""), ("ValueError", " (ValueError)")])
def test_a_rank_that_an_exception_ended_is_said_with_what_it_left_open(
    tmp_path: Path, error: str | None, said: str
) -> None:
    build = RunBuilder(tmp_path / "run")
    for rank in (0, 1):
        build.collective(rank, 0, 1, (1, 2), 2)
    build.collective(0, 1, 5, None, None, step=4)
    build.entities(ends={1: {"exit_kind": "failed", "exit_error": error}})
    assert [line.text for line in report_of(build.seal()).headlines if line.level == 2] == [
        f"Rank 1 ended by an exception that nothing caught{said}.",
        "all_reduce number 1 in world in step 4 never completed: issued by rank 0, not by rank 1.",
    ]


def test_exceptions_that_differ_are_told_by_rank(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run", world_size=3)
    errors = {rank: {"exit_kind": "failed", "exit_error": "RuntimeError"} for rank in (0, 2)}
    build.entities(ends=errors | {1: {"exit_kind": "failed", "exit_error": "ValueError"}})
    assert [line.text for line in report_of(build.seal()).headlines if line.level == 2] == [
        "Ranks 0-2 ended by an exception that nothing caught: RuntimeError on ranks 0, 2, ValueError on rank 1."
    ]


def test_the_operation_that_somebody_did_not_issue_is_named_before_an_earlier_one(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.collective(0, 0, 1, (1, 2), 2)
    build.collective(1, 0, 1, None, None)  # complete, but its process never asked again
    build.collective(0, 1, 5, None, None, step=4)
    build.entities(exit_kind="killed")
    assert [line.text for line in report_of(build.seal()).headlines if line.level == 2][1:] == [
        "all_reduce number 1 in world in step 4 never completed: issued by rank 0, not by rank 1.",
    ]


def test_a_hook_that_is_off_is_named_with_its_reason(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.step(0, 0, 0, 1)
    for rank in (0, 1):
        for time_ns, is_on in ((1, True), (2, rank == 0)):
            build.add(
                "capture",
                0,
                proc=proc_of(rank),
                rank=rank,
                record=time_ns,
                time_ns=time_ns,
                hook="steps",
                is_on=is_on,
                why=None if is_on else "RuntimeError: boom",
                num_errors=0 if is_on else 1,
                num_calls=0,
            )
    build.entities()
    found = report_of(build.seal())
    (hook,) = found.coverage.hooks
    assert (hook.hook, hook.off_ranks, hook.why, found.coverage.errors.value) == (
        "steps",
        (1,),
        "RuntimeError: boom",
        1,
    )
    assert "Hook steps is off on rank 1 (RuntimeError: boom)." in [line.text for line in found.headlines]


def test_cost_and_its_interval(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run", world_size=1)
    build.step(0, 0, 0, 1000)
    # 6,400 calls, 100 timed, 5 us each; the squares are kept in whole us^2, so a deviation of 1 us is assumed
    build.add(
        "capture",
        0,
        proc=proc_of(0),
        rank=0,
        record=1,
        time_ns=1,
        hook="a",
        is_on=True,
        num_calls=6400,
        num_timed_calls=100,
        timed_ns=500_000,
        timed_ns_squared=100 * 25e6,
    )
    build.entities()
    cost = coverage_of(build.seal()).overhead
    assert cost.value == pytest.approx(6400 * 5_000 / 1e9)
    half = 1.96 * math.sqrt(6400**2 * 1e6 * (100 / 99) / 100) / 1e9
    assert isinstance(cost.value, float) and cost.interval is not None and cost.interval.level == 0.95
    assert cost.interval.low == pytest.approx(cost.value - half) and cost.interval.high == pytest.approx(
        cost.value + half
    )


def test_no_evidence_is_none_with_a_reason(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.entities()
    found = coverage_of(build.seal())
    assert found.coverage.value is None and found.errors.value is None and found.overhead.value is None
    assert all(item.reason for item in (found.coverage, found.errors, found.overhead))


def test_few_timed_entries_give_no_interval(tmp_path: Path) -> None:
    found = coverage_of(healthy_run(tmp_path / "run"))
    # 640 calls x 5 us on two ranks over 2 x 1.1 s of steps
    assert found.overhead.value == pytest.approx(2 * 640 * 5_000 / 2.2e9) and found.overhead.interval is None


def test_rows_of_processes_that_the_run_does_not_know(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for rank in (0, 1):
        build.step(rank, 0, 0, 1)
        build.step(rank, 0, 0, 1, incarnation=7)
    build.entities()
    found = report_of(build.seal())
    assert found.coverage.num_strangers == 2
    assert found.headlines[0].text.startswith("Rows of 2 processes that this run does not know")


def test_an_import_says_what_was_wrong_with_its_files_and_blames_no_job(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run", world_size=3)
    for step in range(5):
        build.step(0, step, step, step + 1)
    build.entities(ranks=[0], dropped=1)
    notes = [{"file": f"{name}.json", "why": "the file ends before its events do"} for name in "abcd"]
    build.rows["run", None][0]["manifest"] = {"imported": {"format": "kineto", "notes": notes}}
    told = [(line.level, line.text) for line in report_of(build.seal()).headlines]
    assert (WARNING, "Nothing of ranks 1, 2 was imported: nothing is known about them.") in told
    assert (WARNING, "1 event was damaged or not believed, and left out.") in told
    assert (WARNING, "a.json: the file ends before its events do.") in told
    assert (WARNING, "1 more file had something wrong.") in told
    assert not any("overwritten" in text or "d.json" in text or level == CRITICAL for level, text in told)


def test_how_the_ranks_ended_before_the_job_started_again_is_said(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for rank, kind in ((0, "killed"), (1, "failed")):
        build.add("process", proc=proc_of(rank), rank=rank, incarnation=0, exit_kind=kind)
    build.entities(incarnation=1)
    texts = [line.text for line in report_of(build.seal()).headlines]
    ends = "rank 1 ended by an exception that nothing caught, rank 0 died without a clean end"
    assert texts == [f"The job was started again after start 1: {ends}."]


@pytest.mark.parametrize(("longest", "said"), [(105, False), (200, True)])
def test_a_step_no_longer_than_the_others_is_no_headline(tmp_path: Path, longest: int, said: bool) -> None:
    build = RunBuilder(tmp_path / "run", world_size=1)
    start = 0
    for step, length in enumerate([100, 100, 100, longest, 100, 100]):
        build.step(0, step, start, start := start + length)
    build.entities()
    lines = [line for line in report_of(build.seal()).headlines if "times the median" in line.text]
    assert bool(lines) is said
    assert all(line.command == "" for line in lines)  # one rank: `stragglers` has no answer
