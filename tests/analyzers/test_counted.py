"""Operations without a row are counted, lower the coverage, and are said in every place that gives a total."""

import json
from pathlib import Path

from run_builder import RunBuilder

from rankscope.analyzers.communication import communication
from rankscope.analyzers.counted import counted
from rankscope.analyzers.coverage import coverage
from rankscope.analyzers.report import report
from rankscope.analyzers.run import Run

WHY = "rows in every step would cost 3.1% of step time, the budget is 0.01: rows in 1 step of 4 from step 4"


def thinned(folder: Path) -> Path:
    """2 ranks, 13 steps of 2 all_reduces of 1,000 bytes: rows in steps 0..4, 8, 12. One barrier before all."""
    build = RunBuilder(folder)
    for rank in (0, 1):
        build.collective(rank, 0, 1, None, 2, op="barrier", bytes_in=None, bytes_out=None, step=0)
        for step in range(13):
            if step < 4 or step % 4 == 0:
                for part in (0, 1):
                    seq, at = 1 + 2 * step + part, 10 * step + 4 * part
                    build.collective(rank, seq, at + 3, None, at + 5, step=step, tier="dispatcher")
    build.entities()
    for rank in (0, 1):
        build.fact("capture", rank, record=None, time_ns=9, hook="process_groups.dispatcher", is_on=True, why=WHY)
    return build.seal()


def test_the_numbers_tell_what_the_rows_do_not(tmp_path: Path) -> None:
    with Run.open(str(thinned(tmp_path / "run"))) as run:
        found, quality = counted(run), coverage(run)
    # each rank: 27 operations, 1 + 14 rows
    assert found.totals == (30, 54) and found.share.value == 30 / 54
    assert quality.coverage.value == 30 / 54
    (((_, op), estimate),) = found.estimates.items()
    assert (op, estimate) == ("all_reduce", (52, 52_000))  # the barrier is not thinned


def test_totals_are_marked_and_the_estimate_has_a_name_of_its_own(tmp_path: Path) -> None:
    with Run.open(str(thinned(tmp_path / "run"))) as run:
        by_op = {item.op: item for item in communication(run, 1.0).operations}
        said = [line.text for line in report(run).headlines]
    reduced = by_op["all_reduce"]
    assert (reduced.count.value, reduced.bytes.value) == (28, 28_000)
    assert [(item.name, item.value) for item in reduced.estimate] == [
        ("collective.count_estimate", 52), ("collective.bytes_estimate", 52_000),
    ]  # fmt: skip
    assert "estimated" in reduced.estimate[1].provenance.caveats[0]
    for item in (reduced.count, reduced.bytes, reduced.duration[0]):
        assert item.provenance.coverage == 30 / 54
        assert "about 52 operations were counted" in json.dumps(item.as_json())
    assert by_op["barrier"].estimate == ()
    assert said[0].startswith(
        "Only 55 % of the operations have rows (30 of 54), because capture keeps its cost within a budget: " + WHY
    )
    assert not [text for text in said if "of the rows are there" in text]


def test_lost_records_are_not_counted_twice(tmp_path: Path) -> None:
    """10 operations with the records 0..9, of which 4 were overwritten: 6 of 10, not 6 of 14."""
    build = RunBuilder(tmp_path / "run", world_size=1)
    for seq in (0, 1, 2, 7, 8, 9):
        build.collective(0, seq, seq + 1, None, seq + 2, record=seq)
    build.records.clear()
    build.entities()
    with Run.open(str(build.seal())) as run:
        found = coverage(run)
    assert found.coverage.value == 0.6 and found.operations.totals == (6, 10)


def test_pairs_are_numbered_apart_and_imports_count_nothing(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run", world_size=2)
    for seq in (0, 5):
        build.collective(0, seq, seq + 1, None, seq + 2, op="send", src=0, dst=1, tag=0)
        build.collective(1, seq, seq + 1, None, seq + 2, op="all_reduce", tier="imported")
    build.collective(0, 9, 30, None, 31, op="send", src=0, dst=1, tag=1)
    build.entities()
    with Run.open(str(build.seal())) as run:
        assert counted(run).totals == (3, 7)


def test_no_operation_is_none_with_a_reason(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run", world_size=1)
    build.step(0, 0, 0, 1)
    build.entities()
    with Run.open(str(build.seal())) as run:
        found = counted(run)
    assert found.share.value is None and found.share.reason and found.totals == (0, 0)
