"""Which link is slow: by whom the slow transfers are shared, since when, and what is no slow link."""

from collections.abc import Callable
from pathlib import Path

import pytest
from run_builder import MS, RunBuilder, proc_of

from rankscope.analyzers.collectives import collectives
from rankscope.analyzers.run import Run
from rankscope.analyzers.slow_links import INSIDE, NODE, NODES, PATH, RANKS, SlowLink
from rankscope.tracer.importers.synth import synthesise
from rankscope.tracer.importers.synth_plan import Plan, straggler_of
from rankscope.tracer.importers.synth_plan import SlowLink as Planted

STEPS, STEP_MS, USUAL_MS = 41, 100, 4
Members = tuple[int, ...]
Slow = Callable[[int, Members], int]
"""Milliseconds of a transfer in a step."""


def named(
    root: Path, groups: list[Members], slow: Slow, *, late: Callable[[int], int] = lambda _: 0, boot: str = "host-{}"
) -> tuple[SlowLink, ...]:
    """Two ranks on each node; each group reduces once a step. late: how much later a rank begins, ms."""
    num = 1 + max(map(max, groups))
    build = RunBuilder(root, world_size=num)
    for step in range(STEPS):
        begin = STEP_MS * step
        for rank in range(num):
            build.step(rank, step, begin, begin + STEP_MS)
        for number, members in enumerate(groups):
            start = begin + 10 * number
            end = start + max(map(late, members)) + slow(step, members)
            for rank in members:
                build.collective(rank, step, start + late(rank), (start + late(rank), end), end, step=step,
                                 group_id=f"g{number}", bytes_in=1 << 20, bytes_out=1 << 20)  # fmt: skip
    for number, members in enumerate(groups):
        build.add("process_group", group_id=f"g{number}", incarnation=0, member_starts=list(members),
                  member_strides=[1] * len(members), member_counts=[1] * len(members), size=len(members),
                  backend="gloo", mesh_dimension="dp")  # fmt: skip
    build.add("run", run_id="run-1", world_size=num)
    for rank in range(num):
        build.add("process", proc=proc_of(rank), rank=rank, node=f"n{rank // 2}", boot_id=boot.format(0), incarnation=0,
                  exit_kind="clean", num_records=build.records[proc_of(rank)], num_dropped=0)  # fmt: skip
    with Run.open(str(build.seal())) as run:
        found = collectives(run, 1.0)
    assert found.verdicts == tuple(item.verdict for item in found.slow_links)
    return found.slow_links


def of(*slow: Members) -> Slow:
    return lambda _, members: 5 * USUAL_MS if members in slow else USUAL_MS


def between(first: int, end: int) -> Slow:
    """One group in some steps."""
    return lambda step, members: 5 * USUAL_MS if first <= step < end and members == (1, 6) else USUAL_MS


ACROSS: list[Members] = [(0, 2), (0, 4), (2, 4), (1, 6), (3, 6), (5, 7)]


@pytest.mark.parametrize(
    ("groups", "slow", "how", "nodes", "ranks"),
    [
        (ACROSS, [(1, 6), (3, 6), (5, 7)], NODE, ("n3",), (6, 7)),
        ([(0, 2), (1, 3), (4, 6)], [(4, 6)], NODES, ("n2", "n3"), (4, 6)),
        ([(0, 2), (1, 3)], [(1, 3)], RANKS, ("n0", "n1"), (1, 3)),
        ([(0, 2), (0, 4), (2, 4)], [(2, 4)], PATH, ("n1", "n2"), (2, 4)),
        ([(0, 1), (2, 3), (4, 5)], [(4, 5)], INSIDE, ("n2",), (4, 5)),
    ],
)
def test_what_only_the_slow_ones_share_is_to_blame(
    groups: list[Members], slow: list[Members], how: str, nodes: tuple[str, ...], ranks: Members, tmp_path: Path
) -> None:
    [found] = named(tmp_path / "run", groups, of(*slow))
    assert (found.how, found.nodes, found.verdict.ranks) == (how, nodes, ranks)
    assert found.slowdown.value == 5.0 and found.verdict.since_step is None
    assert "take 5.0 times as long" in found.verdict.text and "in 40 of 40 counted steps" in found.verdict.text
    assert found.verdict.cost_ns == 40 * 4 * USUAL_MS * MS


def test_since_when(tmp_path: Path) -> None:
    [found] = named(tmp_path / "run", ACROSS, between(16, STEPS))
    assert found.verdict.since_step == 16 and "since step 16, in 25 of 25 counted steps from" in found.verdict.text
    [found] = named(tmp_path / "passing", ACROSS, between(11, 35))
    assert "from step 11 to 34, in 24 of 24 counted steps there" in found.verdict.text


@pytest.mark.parametrize(
    "slow",
    [
        of(),
        between(10, 18),
        lambda step, members: 5 * USUAL_MS if step % 2 and members == (1, 6) else USUAL_MS,
        lambda _, members: USUAL_MS + 1 if members == (1, 6) else USUAL_MS,
        of(*ACROSS),
    ],
    ids=["none", "a few steps", "every other step", "hardly", "all"],
)
def test_nobody_is_named(slow: Slow, tmp_path: Path) -> None:
    assert named(tmp_path / "run", ACROSS, slow) == ()


def test_who_comes_late_has_no_slow_link(tmp_path: Path) -> None:
    assert named(tmp_path / "run", ACROSS, of(), late=lambda rank: 5 if rank == 6 else 0) == ()


def test_imported_traces_tell_no_nodes(tmp_path: Path) -> None:
    assert named(tmp_path / "run", ACROSS, of((1, 6)), boot="imported") == ()


@pytest.mark.parametrize("seed", range(3))
def test_planted_in_a_job_with_clocks_that_are_off(seed: int, tmp_path: Path) -> None:
    plan = Plan(ranks=32, ranks_per_node=4, steps=40, collectives=30, dp=4, tp=4, pp=2, microbatches=2, seed=seed,
                slow_links=(Planted(2 + seed, 3.0),), clock_offset_ns=50_000_000, drift_ppm=20.0)  # fmt: skip
    [found] = planted(plan, tmp_path / "run")
    first = 4 * (2 + seed)
    assert found.how == NODE and found.verdict.ranks == tuple(range(first, first + 4))
    assert found.slowdown.value == pytest.approx(3.0, rel=0.1) and found.slowdown.provenance.clock_error_ns


@pytest.mark.parametrize("straggler", ["", "5:compute:5ms", "5:data:5ms", "5:gc:20ms"])
def test_no_link_is_planted(straggler: str, tmp_path: Path) -> None:
    plan = Plan(ranks=32, ranks_per_node=4, steps=40, collectives=30, dp=4, tp=4, pp=2, microbatches=2, jitter=0.1,
                stragglers=(straggler_of(straggler, 40),) if straggler else (), clock_offset_ns=50_000_000,
                drift_ppm=20.0)  # fmt: skip
    assert planted(plan, tmp_path / "run") == ()


def planted(plan: Plan, out: Path) -> tuple[SlowLink, ...]:
    synthesise(plan, str(out))
    with Run.open(str(out)) as run:
        return collectives(run, 1.0).slow_links
