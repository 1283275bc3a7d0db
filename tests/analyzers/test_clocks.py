"""Hosts' clocks: what ties them, what the tables in the connection hold, what is said where nothing does."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_builder import BOOT_ID, MS, WORLD, RunBuilder

from rankscope.analyzers.clock_fit import correction
from rankscope.analyzers.clock_ties import BY_CAUSALITY, BY_OPERATIONS, BY_WALL_CLOCK, NOT_TIED
from rankscope.analyzers.clocks import align
from rankscope.analyzers.run import Run

OTHER = "22222222-bbbb"
AHEAD = 50 * MS


def two_hosts(
    root: Path, op: str = "all_reduce", *, ahead: int = AHEAD, num: int = 60, seed: int = 1, **more: Any
) -> RunBuilder:
    """Two ranks, a host each, an operation every 10 ms that ends within 20 us on both; rank 1's clock is ahead."""
    build, rng = RunBuilder(root), random.Random(seed)
    for seq in range(num):
        for rank in (0, 1):
            shift, begin = ahead * rank, seq * 10 * MS + rng.randrange(MS)
            end = (seq * 10 + 3) * MS + rng.randrange(20_000)
            times = {"issued_ns": begin + shift, "wait_begin_ns": begin + shift, "wait_end_ns": end + shift}
            build.collective(rank, seq, 0, None, None, **times, completed_ns=end + shift, state="completed",
                             timing_source="wait", op=op, **more)  # fmt: skip
    return build


def sealed(build: RunBuilder) -> str:
    build.entities()
    build.rows["process", None][1]["boot_id"] = OTHER
    return str(build.seal())


def test_one_host_costs_a_row_of_zeros_and_changes_no_time(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.collective(0, 0, 10, (10, 20), 20)
    build.entities()
    with Run.open(str(build.seal())) as run:
        found = align(run)
        ((boot_id, *_, offset, drift, error),) = run.rows("SELECT * FROM clock_correction")
        assert (boot_id, offset, drift, error, found.is_one_host) == (BOOT_ID, 0, 0, 0, True)
        assert run.rows("SELECT aligned_ns('anything', 7), aligned_ns(NULL, 8)") == [(7, 8)]
        assert found.error_ns(BOOT_ID, BOOT_ID) == 0 and found.error_ns(BOOT_ID, OTHER) is None
        assert align(run) is found


def test_the_offset_of_a_second_host(tmp_path: Path) -> None:
    with Run.open(sealed(two_hosts(tmp_path / "run"))) as run:
        found = align(run)
        first, second = found.hosts
        assert (first.host.boot_id, first.error_ns, second.how, second.num_operations) == (
            BOOT_ID,
            0,
            BY_OPERATIONS,
            60,
        )
        error = found.error_ns(OTHER, BOOT_ID)
        assert error is not None and 1000 <= error <= 40_000
        ((at_most,),) = run.rows(
            "SELECT max(abs(aligned_ns(p.boot_id, c.completed_ns) - (c.completed_ns - ?))) FROM collective c "
            "JOIN process p USING (proc) WHERE c.rank = 1", [AHEAD]
        )  # fmt: skip
        assert at_most <= error
        assert second.bound is not None and second.bound[0] < -2 * MS and second.bound[1] > 2 * MS


def test_every_moment_has_one_window(tmp_path: Path) -> None:
    with Run.open(sealed(two_hosts(tmp_path / "run"))) as run:
        align(run)
        windows = run.rows("SELECT from_ns, until_ns FROM clock_correction WHERE boot_id = ? ORDER BY 1", [OTHER])
        assert [left[1] for left in windows[:-1]] == [right[0] for right in windows[1:]]
        assert run.rows("SELECT aligned_ns(?, 0) IS NULL, aligned_ns(?, 1800000000000000000) IS NULL", [OTHER] * 2) == [
            (False, False)
        ]


@pytest.mark.parametrize("op", ["broadcast", "send"])
def test_where_nothing_ends_together_causality_alone_ties(tmp_path: Path, op: str) -> None:
    build = RunBuilder(tmp_path / "run")
    for seq in range(40):
        for rank in (0, 1):
            source, begin = seq % 2, (seq * 10 + (2 if rank == seq % 2 else 0)) * MS + AHEAD * rank
            end = (seq * 10 + 3) * MS + AHEAD * rank
            if op == "send":
                more: dict[str, Any] = {"op": "send" if rank == source else "recv", "src": source, "dst": 1 - source}
            else:
                more = {"op": op, "root": source}
            build.collective(rank, seq, 0, None, None, issued_ns=begin, completed_ns=end, state="completed",
                             timing_source="wait", **more)  # fmt: skip
    with Run.open(sealed(build)) as run:
        second = align(run).hosts[1]
    # the end is 1 ms after the source began, so the offset is known to 1 ms on either side
    at = np.arange(0, 400 * MS, MS) + AHEAD
    assert second.how == BY_CAUSALITY and np.abs(correction(at, second.windows) - AHEAD).max() < MS // 10
    assert second.error_ns is not None and MS <= second.error_ns < 1.1 * MS


def test_all_to_all_ends_together_but_bounds_nothing(tmp_path: Path) -> None:
    with Run.open(sealed(two_hosts(tmp_path / "run", "all_to_all_single"))) as run:
        second = align(run).hosts[1]
    assert second.how == BY_OPERATIONS and second.bound is None


def test_wall_clocks_where_there_is_no_operation(tmp_path: Path) -> None:
    build = two_hosts(tmp_path / "run", num=0)
    for rank, boot_id in ((0, BOOT_ID), (1, OTHER)):
        build.fact("clock", rank, boot_id=boot_id, monotonic_ns=10**12 + AHEAD * rank, wall_ns=10**18,
                   maximum_error_ns=MS, is_synchronised=True)  # fmt: skip
    with Run.open(sealed(build)) as run:
        second = align(run).hosts[1]
    assert second.how == BY_WALL_CLOCK and second.error_ns == pytest.approx(2 * MS, abs=10)
    assert second.windows[0].offset_ns == pytest.approx(AHEAD, abs=10)


def test_a_round_trip_bounds_by_its_length(tmp_path: Path) -> None:
    build = two_hosts(tmp_path / "run", num=0)
    build.fact("clock", 1, boot_id=OTHER, monotonic_ns=10**12 + AHEAD, wall_ns=10**18, is_synchronised=False,
               store_round_trip_ns=100_000, peer_boot_id=BOOT_ID, peer_monotonic_ns=10**12 - 30_000)  # fmt: skip
    with Run.open(sealed(build)) as run:
        second = align(run).hosts[1]
    assert second.error_ns == pytest.approx(50_000, abs=10)
    assert second.windows[0].offset_ns == pytest.approx(AHEAD + 30_000 - 50_000, abs=10)


def test_a_host_that_nothing_ties_has_no_time_of_the_others(tmp_path: Path) -> None:
    with Run.open(sealed(two_hosts(tmp_path / "run", num=0))) as run:
        found = align(run)
        assert found.hosts[1].how == NOT_TIED and found.hosts[1].reason and found.error_ns(OTHER, BOOT_ID) is None
        assert run.rows("SELECT aligned_ns(?, 5), aligned_ns(?, 5)", [OTHER, BOOT_ID]) == [(None, 5)]


def test_operations_that_were_matched_wrongly_are_told_by_causality(tmp_path: Path) -> None:
    build = two_hosts(tmp_path / "run")
    for row in build.rows["collective", 0]:
        if row["rank"] == 1 and row["seq"] > 30:
            row["seq"] += 1  # one operation was missed
    with Run.open(sealed(build)) as run:
        second = align(run).hosts[1]
        assert "contradict" in second.reason and second.error_ns is None and second.bound is None


def test_a_host_tied_through_a_third(tmp_path: Path) -> None:
    build, rng = RunBuilder(tmp_path / "run", world_size=3), random.Random(3)
    for seq in range(60):
        for group, members in ((WORLD + "-a", (0, 1)), (WORLD + "-b", (1, 2))):
            for rank in members:
                at = (seq * 10 + 5 * (rank == 2)) * MS + AHEAD * rank
                ends = (seq * 10 + (8 if group.endswith("b") else 3)) * MS + rng.randrange(10_000) + AHEAD * rank
                build.collective(rank, seq, 0, None, None, group_id=group, issued_ns=at, completed_ns=ends,
                                 state="completed", timing_source="trace")  # fmt: skip
    build.group(WORLD + "-a", [0, 1])
    build.group(WORLD + "-b", [1, 2])
    build.entities()
    for rank, boot_id in ((1, OTHER), (2, "33333333-cccc")):
        build.rows["process", None][rank]["boot_id"] = boot_id
    with Run.open(str(build.seal())) as run:
        found = align(run)
        third = found.host("33333333-cccc")
        assert third is not None and third.how == BY_OPERATIONS
        error, near = third.error_ns, found.error_ns(OTHER, BOOT_ID)
        assert error is not None and near is not None and error > near
        ((ahead,),) = run.rows("SELECT 1000000000 - aligned_ns('33333333-cccc', 1000000000)")
    assert abs(ahead - 2 * AHEAD) <= error
