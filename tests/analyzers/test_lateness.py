"""Lateness, inheritance and blame: worked out by hand, against a brute-force oracle, and under permutation."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grid_run import grid
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_builder import MS, WORLD, RunBuilder, healthy_run, proc_of

from rankscope.analyzers import sampled
from rankscope.analyzers.lateness import Lateness, lateness
from rankscope.analyzers.run import Run


def read(path: Path) -> Lateness:
    with Run.open(str(path)) as run:
        return lateness(run)


def in_ms(values: Any) -> list[list[float]]:
    return [[value / MS for value in row] for row in values]


def test_a_healthy_run_by_hand(tmp_path: Path) -> None:
    found = read(healthy_run(tmp_path / "run"))
    assert found.ranks == (0, 1) and [item.step for item in found.steps] == [1, 2, 3, 4, 5]
    assert in_ms(found.own_ns) == [[0, 20]] * 5 and in_ms(found.wait_ns) == [[20, 0]] * 5
    assert in_ms(found.blame_ns) == [[0, 20]] * 5 and not found.inherited_ns.any()
    assert found.duration_ns.tolist() == [100 * MS] * 4 + [300 * MS]
    assert (found.num_matched, found.num_operations, found.compared.window, found.error_ns) == (5, 5, "", 0)


@pytest.mark.parametrize("late", [0, 1, 2, 3])
def test_a_slow_rank_makes_its_peer_late_but_the_lateness_is_inherited(tmp_path: Path, late: int) -> None:
    found = read(grid(tmp_path / "run", late))
    peer = late ^ 1
    own = [[30 if rank == late else 0 for rank in range(4)]] * 3
    inherited = [[30 if rank == peer else 0 for rank in range(4)]] * 3
    assert in_ms(found.own_ns) == own and in_ms(found.inherited_ns) == inherited
    assert in_ms(found.wait_ns) == [[0 if rank == late else 30 for rank in range(4)]] * 3
    assert in_ms(found.blame_ns) == [[90 if rank == late else 0 for rank in range(4)]] * 3
    assert [(item.heir, item.source, item.amount_ns) for item in found.inheritance] == [(peer, late, 3 * 30 * MS)]


def test_twenty_operations_in_flight_behind_one_delay_are_one_delay(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for step in range(3):
        start = 1000 * step
        for rank, late in ((0, 0), (1, 200)):
            for number in range(20):  # the completions are found only at the end of the backward pass
                build.collective(rank, 20 * step + number, start + 100 + late + number, None, start + 400, step=step)
            build.step(rank, step, start, start + 1000)
    build.entities()
    found = read(build.seal())
    assert in_ms(found.own_ns) == [[0, 200]] * 2
    assert in_ms(found.wait_ns) == [[200, 0]] * 2 and in_ms(found.blame_ns) == [[0, 200]] * 2


@pytest.mark.parametrize("is_waited", [True, False])
def test_a_lag_carried_through_operations_that_nobody_waits_for_is_one_lag(tmp_path: Path, is_waited: bool) -> None:
    """Four buckets 100 ms apart, all 40 ms late, and 10 more at the last: nobody waits before the end."""
    build = RunBuilder(tmp_path / "run")
    for step in range(3):
        start = 1000 * step
        for rank, late in ((0, 0), (1, 40)):
            for number in range(4):
                begin = start + 100 * (number + 1) + late + (10 if late and number == 3 else 0)
                end = start + (510 if number == 3 or not is_waited else 500)
                waited = (start + 500, end) if is_waited else None
                build.collective(rank, 4 * step + number, begin, waited, end, step=step)
            build.step(rank, step, start, start + 1000)
    build.entities()
    found = read(build.seal())
    assert in_ms(found.own_ns) == [[0, 50]] * 2 and in_ms(found.wait_ns) == [[50, 0]] * 2


def test_a_delay_between_two_operations_is_seen_although_nobody_saw_the_first_one_end(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for step in range(3):
        start = 1000 * step
        for rank, late in ((0, 0), (1, 50)):
            build.collective(rank, 2 * step, start + 100, None, start + 400, step=step)
            build.collective(rank, 2 * step + 1, start + 150 + late, None, start + 400, step=step)
            build.step(rank, step, start, start + 1000)
    build.entities()
    assert in_ms(read(build.seal()).own_ns) == [[0, 50]] * 2


def test_what_is_queued_behind_its_predecessor_is_not_late(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for step in range(3):
        start = 1000 * step
        for rank, second in ((0, 110), (1, 190)):  # rank 1 issues it later, but before the first one was over
            build.collective(rank, 2 * step, start + 100, (start + 195, start + 200), start + 200, step=step)
            build.collective(rank, 2 * step + 1, start + second, (start + 200, start + 210), start + 210, step=step)
            build.step(rank, step, start, start + 1000)
    build.entities()
    found = read(build.seal())
    assert not found.own_ns.any() and not found.wait_ns.any()


@pytest.mark.parametrize(("op", "waiters"), [("broadcast", {1, 2}), ("reduce", {0}), ("all_reduce", {0, 1, 2})])
def test_who_waits_for_whom_depends_on_the_operation(tmp_path: Path, op: str, waiters: set[int]) -> None:
    """Root 0 comes at 130, rank 1 at 100, rank 2 at 160: the root of a broadcast waits for nobody, that of a reduce for
    the last, and nobody but it.
    """
    build = RunBuilder(tmp_path / "run", world_size=3)
    for step in range(2):
        for rank, begin in ((0, 130), (1, 100), (2, 160)):
            at = 1000 * step + begin
            build.collective(rank, step, at, None, 1000 * step + 170, step=step, op=op, root=0)
            build.step(rank, step, 1000 * step, 1000 * (step + 1))
    build.entities()
    found = read(build.seal())
    last = 130 if op == "broadcast" else 160
    waits = [max(0, last - begin) if rank in waiters else 0 for rank, begin in enumerate((130, 100, 160))]
    assert in_ms(found.wait_ns) == [waits]


def test_an_operation_that_the_others_need_not_wait_for_hides_no_lateness(tmp_path: Path) -> None:
    """Rank 2 comes 40 ms late to a broadcast from rank 0, after which the others go on; all wait for it at the next."""
    build = RunBuilder(tmp_path / "run", world_size=3)
    for step in range(3):
        start = 1000 * step
        for rank, late in ((0, 0), (1, 0), (2, 40)):
            begin = start + 100 + late
            build.collective(rank, 2 * step, begin, (begin, begin + 2), begin + 2, step=step, op="broadcast", root=0)
            build.collective(rank, 2 * step + 1, begin + 10, (begin + 10, start + 160), start + 160, step=step)
            build.step(rank, step, start, start + 1000)
    build.entities()
    found = read(build.seal())
    assert in_ms(found.own_ns) == [[0, 0, 40]] * 2 and in_ms(found.wait_ns) == [[40, 40, 0]] * 2


def test_operations_with_a_member_missing_and_launches_on_a_device_accuse_nobody(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.add("process_group", group_id="nccl-group", incarnation=0, member_starts=[0], member_strides=[1],
              member_counts=[2], size=2, backend="cuda:nccl", mesh_dimension="dp")  # fmt: skip
    for step in range(2):
        for rank in (0, 1):
            at = 1000 * step + 50 * rank
            if rank == 0:
                build.collective(rank, step, at, None, at + 10, step=step)
            build.collective(rank, step, at, None, None, step=step, group_id="nccl-group", timing_source="none")
            build.step(rank, step, 1000 * step, 1000 * (step + 1))
    build.entities()
    found = read(build.seal())
    assert (found.num_matched, found.num_operations, found.ranks) == (0, 1, ())


def random_run(
    root: Path, rng: random.Random, shift: int = 0, shuffle: random.Random | None = None, *, is_met: bool = False
) -> Path:
    """Three ranks in three groups of two and one of all, at random times, with and without known ends.

    is_met: all wait for each operation before they issue the next one of the group; groups overlap as before.
    """
    build = RunBuilder(root, world_size=3)
    teams = {WORLD: [0, 1, 2], "a": [0, 1], "b": [1, 2], "c": [0, 2]}
    for team, members in teams.items():
        if team != WORLD:
            build.add("process_group", group_id=team, incarnation=0, member_starts=[members[0]], size=2,
                      member_strides=[members[1] - members[0]], member_counts=[2], backend="gloo")  # fmt: skip
    numbers = dict.fromkeys(teams, 0)
    for step in range(4):
        free = dict.fromkeys(teams, 1000 * step)
        for _ in range(rng.randint(1, 6)):
            team = rng.choice(sorted(teams))
            start = (free[team] if is_met else 1000 * step) + rng.randint(0, 120)
            begins = [start + rng.randint(0, 100) for _ in teams[team]]
            end = max(begins) + rng.randint(0, 5) if is_met or rng.random() < 0.5 else None
            free[team] = end or 0
            for rank, begin in zip(teams[team], begins, strict=True):
                waited = None if end is None else (begin + shift, end + shift)
                build.collective(rank, numbers[team], begin + shift, waited, None if end is None else end + shift,
                                 step=step, group_id=team)  # fmt: skip
            numbers[team] += 1
        for rank in range(3):
            build.step(rank, step, 1000 * step + shift, 1000 * (step + 1) + shift)
    build.entities()
    return build.seal(shuffle=shuffle)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6))
def test_parts_sum_to_the_whole_and_waits_are_the_union_of_a_brute_force_oracle(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    is_met = bool(seed % 2)
    path = random_run(tmp_path_factory.mktemp("random") / "run", random.Random(seed), is_met=is_met)
    with Run.open(str(path)) as run:
        found = lateness(run)
        rows = run.rows("SELECT s.rank, a.arrival_ns, l.last_ns, s.lateness_ns, s.inherited_ns, s.wait_ns, s.waited_ns "
                        "FROM _late_share s JOIN _late_last l USING (operation) JOIN _late_arrival a USING (operation, "
                        "proc)")  # fmt: skip
    assert found.wait_ns.sum() == found.blame_ns.sum()  # all that is waited falls on somebody
    assert all(0 <= inherited <= late and waited >= 0 for _, _, _, late, inherited, _, waited in rows)
    for rank in {row[0] for row in rows}:
        waits = [row for row in rows if row[0] == rank]
        covered = {at for _, arrival, last, *_ in waits for at in range(arrival // MS, last // MS)}
        charged = sum(row[5] for row in waits)
        assert charged == len(covered) * MS if is_met else charged <= len(covered) * MS


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6))
def test_neither_the_order_of_rows_nor_the_zero_of_the_clock_changes_anything(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("random")
    plain = read(random_run(folder / "plain", random.Random(seed)))
    for name, shift, shuffle in (("shuffled", 0, random.Random(seed + 1)), ("shifted", 123_456, None)):
        other = read(random_run(folder / name, random.Random(seed), shift, shuffle))
        assert other.ranks == plain.ranks and other.steps == plain.steps and other.inheritance == plain.inheritance
        for field in ("own_ns", "inherited_ns", "wait_ns", "blame_ns", "duration_ns"):
            assert np.array_equal(getattr(other, field), getattr(plain, field)), (name, field)


def test_of_a_large_run_blocks_of_steps_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = grid(tmp_path / "run", num_steps=100)
    monkeypatch.setattr(sampled, "MAX_ROWS", 400)
    found = read(path)  # of 1,200
    assert found.compared.sample.stride == 3 and [item.step for item in found.steps] == [
        step for step in range(1, 100) if step // 4 % 3 == 1 and step % 4
    ]
    monkeypatch.setattr(sampled, "MAX_ROWS", 100)
    assert read(path).compared.sample.stride == 3  # fewer steps would not do
    assert in_ms(found.own_ns) == [[30, 0, 0, 0]] * len(found.steps)
    assert in_ms(found.inherited_ns) == [[0, 30, 0, 0]] * len(found.steps)


def test_a_run_without_operations(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for step in range(3):
        build.step(0, step, 100 * step, 100 * (step + 1))
    build.entities()
    found = read(build.seal())
    assert found.ranks == () and found.steps == () and found.num_operations == 0
    assert found.own_ns.shape == (0, 0) and proc_of(0) == 1000
