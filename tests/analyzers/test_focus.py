"""Runs of giant steps: more steps of the groups of those who waited least are compared, and only these may be named."""

from pathlib import Path

import pytest
from grid_run import DATA, TENSOR, grid
from run_builder import MS, RunBuilder

from rankscope.analyzers import focus, parts, sampled
from rankscope.analyzers.groups import read_groups
from rankscope.analyzers.partials import gather
from rankscope.analyzers.run import Run
from rankscope.analyzers.sampled import Sample, leave_choice
from rankscope.analyzers.stragglers import stragglers


@pytest.fixture(autouse=True)
def giant_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the 1,200 rows of 100 steps the sample has every fourth block of two; 32 steps would be too many rows."""
    monkeypatch.setattr(sampled, "MAX_ROWS", 300)
    monkeypatch.setattr(sampled, "MOST_ROWS", 300)
    monkeypatch.setattr(focus, "MAX_ROWS", 220)


@pytest.mark.parametrize("late", [0, 3])
def test_who_makes_the_others_wait_is_named(tmp_path: Path, late: int) -> None:
    with Run.open(str(grid(tmp_path / "run", late, num_steps=100))) as run:
        assert sampled.sampled(run).is_short
        compared = focus.focus(run)
        assert compared.suspects == (late,) and compared.num_groups == 2
        found = stragglers(run)
    [item] = found.stragglers
    assert item.verdict.ranks == (late,) and item.num_late == 30
    assert item.verdict.text.startswith(f"rank {late} makes the others wait in 30 of 30 counted steps, by 30 ms")
    assert {value.scope["rank"]: value.value for value in found.own}[late] == 30 * 30 * MS
    assert f"blocks of 7 steps, one in 3, evenly over the run, of the 2 groups of rank {late}, which waited least" in (
        found.own[0].provenance.caveats
    )


@pytest.mark.parametrize("part_rows", [30, 1 << 30])
def test_the_rows_are_those_of_the_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_rows: int) -> None:
    monkeypatch.setattr(parts, "PART_ROWS", part_rows)
    with Run.open(str(grid(tmp_path / "run", 1, num_steps=100))) as run:
        compared = focus.focus(run).sample
        names = ", ".join(row[0] for row in run.rows(f"DESCRIBE {compared.table}"))
        found = run.rows(f"SELECT {names} FROM {compared.table} ORDER BY ALL")
        assert found and found == run.rows(
            f"SELECT {names} FROM collective WHERE {compared.chosen} AND group_id IN (?, ?) ORDER BY ALL",
            [TENSOR[0], DATA[1]],
        )


def test_who_is_no_suspect_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = grid(tmp_path / "run", 0, num_steps=100)
    with Run.open(str(path)) as run:
        groups = [group for group in read_groups(run).values() if group.group_id in (TENSOR[1], DATA[1])]
        monkeypatch.setattr(focus, "_suspects", lambda run, stride: ((3,), groups))
        found = stragglers(run)  # rank 1 comes late to rank 3, because of rank 0, which is not looked at
    assert found.verdicts == () and found.stragglers == ()
    assert found.reason.startswith("the ranks that waited least are not the ones that come late")


def test_where_no_wait_is_seen_the_steps_are_too_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = grid(tmp_path / "run", 0, num_steps=100)
    with Run.open(str(path)) as run:
        monkeypatch.setattr(focus, "_suspects", lambda run, stride: ((), []))
        found = stragglers(run)
    assert found.verdicts == () and "counted steps, of 20" in found.reason


def test_only_files_that_may_hold_the_processes_are_read(tmp_path: Path) -> None:
    for node in range(3):
        build = RunBuilder(tmp_path / "run", world_size=6, node=f"node-{node}")
        for rank in (2 * node, 2 * node + 1):
            for seq in range(4):
                build.collective(rank, seq, 10 * seq, None, 10 * seq + 5, step=seq)
        build.entities([2 * node, 2 * node + 1])
        build.seal()
    with Run.open(str(tmp_path / "run")) as run:
        leave_choice(run, "_focus_choice", Sample(focus.ROWS.table, 1, "step", 4))
        run.rows("CREATE TEMP TABLE _focus_group AS SELECT DISTINCT group_id FROM process_group")
        run.rows("CREATE TEMP TABLE _focus_process AS SELECT proc FROM process WHERE rank IN (3, 4)")
        [task] = parts.plan(run, (focus.ROWS,))
        assert {item.node for item in task.sealed if item.table == "collective"} == {"node-1", "node-2"}
        gather(run, (focus.ROWS,))
        assert run.rows(f"SELECT DISTINCT rank FROM {focus.ROWS.table} ORDER BY rank") == [(2,), (3,), (4,), (5,)]
