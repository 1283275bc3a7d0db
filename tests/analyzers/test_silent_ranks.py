"""Ranks that left no row: the others are compared without them, and nobody is blamed in their place."""

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from grid_run import grid
from run_builder import MS

from rankscope.analyzers.lateness import lateness
from rankscope.analyzers.run import Run
from rankscope.analyzers.stragglers import Stragglers, stragglers
from rankscope.tracer.importers.synth import synthesise
from rankscope.tracer.importers.synth_plan import Plan, straggler_of


def without(run_dir: Path, rank: int) -> Path:
    """The run as if the rank had left nothing."""
    for path in run_dir.rglob("*.parquet"):
        rows = pq.read_table(path, partitioning=None)
        if "rank" in rows.column_names:
            pq.write_table(rows.filter(pc.not_equal(rows.column("rank"), rank)), path)
    return run_dir


def test_what_a_peer_waits_for_a_silent_rank_is_inherited(tmp_path: Path) -> None:
    """As in the grid: rank 1 waits 30 ms for rank 0, which is not there, and 2 ms more that the transfer takes."""
    with Run.open(str(without(grid(tmp_path / "run", late=0), 0))) as run:
        found = lateness(run)
    assert found.ranks == (1, 2, 3) and found.silent == (0,)
    assert not found.own_ns.any()
    assert (found.inherited_ns == [[30 * MS, 0, 0]] * 3).all()
    assert [(item.heir, item.source, item.amount_ns > 0) for item in found.inheritance] == [(1, 0, True)]


def test_late_ranks_are_compared_without_a_silent_one(tmp_path: Path) -> None:
    with Run.open(str(without(grid(tmp_path / "run", late=0), 3))) as run:
        found = lateness(run)
    assert found.ranks == (0, 1, 2)
    assert (found.own_ns == [[30 * MS, 0, 0]] * 3).all() and not found.inherited_ns.any()  # 1 meets only 0, and 3


def of(tmp_path: Path, straggler: str, *, tp: int, pp: int = 1, ranks_per_node: int = 1) -> Stragglers:
    """16 ranks, of which node 3 left nothing."""
    plan = Plan(ranks=16, ranks_per_node=ranks_per_node, steps=40, collectives=30, dp=16 // tp // pp, tp=tp, pp=pp,
                microbatches=2, stragglers=(straggler_of(straggler, 40),) if straggler else (),
                clock_offset_ns=50_000_000, drift_ppm=20.0)  # fmt: skip
    synthesise(plan, str(tmp_path / "run"))
    for path in (tmp_path / "run").rglob("*synth-0003*/*.parquet"):
        path.unlink()
    for path in (tmp_path / "run").rglob("*synth-0003*.parquet"):
        path.unlink()
    with Run.open(str(tmp_path / "run")) as run:
        return stragglers(run, 1.0)


@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (2, 1), (4, 1), (2, 2)])
def test_another_rank_is_named_by_its_own_lateness(tp: int, pp: int, tmp_path: Path) -> None:
    found = of(tmp_path, "5:compute:5ms", tp=tp, pp=pp)
    [verdict] = found.verdicts
    assert (verdict.kind, verdict.ranks, verdict.cause) == ("straggler", (5,), "compute") and verdict.confidence > 0.8


@pytest.mark.parametrize(("tp", "heirs"), [(2, "ranks 1, 5, 7, 9, 11, 13, 15 wait"), (4, "ranks 7, 11, 15 wait")])
def test_a_silent_rank_is_suspected_instead_of_its_peers(tp: int, heirs: str, tmp_path: Path) -> None:
    found = of(tmp_path, "3:compute:5ms", tp=tp)
    [verdict] = found.verdicts
    assert (verdict.kind, verdict.ranks, verdict.cause, verdict.confidence) == ("straggler", (3,), "unknown", 0.5)
    assert verdict.text.startswith(f"rank 3, which left no row, seems to make the others wait: {heirs} for it")
    assert found.stragglers == ()


def test_of_several_silent_ranks_it_may_be_any(tmp_path: Path) -> None:
    [verdict] = of(tmp_path, "7:compute:5ms", tp=4, ranks_per_node=2).verdicts
    assert verdict.ranks == (7,) and verdict.text.startswith("rank 7 or another silent one seems to")


@pytest.mark.parametrize("straggler", ["", "3:compute:5ms"])
def test_where_all_share_every_operation_nobody_is_named(straggler: str, tmp_path: Path) -> None:
    [verdict] = of(tmp_path, straggler, tp=1).verdicts
    assert verdict.kind == "nothing"
