"""Who stands out: planted sets, ranks that take turns, idle ranks, permutations; from arrays alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.analyzers.focus import Focus
from rankscope.analyzers.late_ranks import BETWEEN, CHRONICALLY, ONCE, SINCE, late_ranks, wilson
from rankscope.analyzers.lateness import Lateness, Step
from rankscope.analyzers.sampled import Sample

MS = 1_000_000
STEP_MS = 100


def made(own_ms: np.ndarray, error_ns: int | None = 0, inherited_ms: np.ndarray | None = None) -> Lateness:
    own = (own_ms * MS).astype(np.int64)
    num_steps, num_ranks = own.shape
    zero = np.zeros_like(own)
    inherited = zero if inherited_ms is None else (inherited_ms * MS).astype(np.int64)
    return Lateness(
        tuple(range(num_ranks)), tuple(Step(0, step) for step in range(1, num_steps + 1)),
        np.full(num_steps, STEP_MS * MS), own, inherited, zero, zero, np.ones(own.shape, np.bool_), (), 10, 10,
        Focus(Sample("collective", 1, "step", 4)), error_ns, (),
    )  # fmt: skip


def noise(num_steps: int = 40, num_ranks: int = 4, seed: int = 0, scale: float = 5.0) -> np.ndarray:
    return scale * np.random.default_rng(seed).exponential(size=(num_steps, num_ranks))


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 8, 64])
def test_one_rank_chronically_late_is_named(num_ranks: int) -> None:
    for seed in range(10):
        own = noise(num_ranks=num_ranks, seed=seed)
        own[:, num_ranks - 1] += 50
        (found,) = late_ranks(made(own))
        assert (found.columns, found.when, found.rows) == ((num_ranks - 1,), CHRONICALLY, (0, 40))
        assert 0.9 <= found.share <= 1 and found.cost_ns == pytest.approx(40 * 45 * MS, rel=0.35)


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 8, 64])
@pytest.mark.parametrize("scale", [1.0, 10.0, 30.0])
def test_nobody_is_named_where_ranks_take_turns(num_ranks: int, scale: float) -> None:
    for seed in range(60):
        assert late_ranks(made(noise(36, num_ranks, seed, scale))) == ()


def test_a_set_is_named_as_a_whole() -> None:
    own = noise(num_ranks=8)
    own[:, 4:6] += 50
    (found,) = late_ranks(made(own))
    assert found.columns == (4, 5) and found.late.shape == (40, 2)
    half = noise(num_ranks=4)
    half[:, 2:] += 50
    (found,) = late_ranks(made(half))
    assert found.columns == (2, 3)


def test_since_until_and_once() -> None:
    own = noise(60)
    own[23:, 1] += 50
    (found,) = late_ranks(made(own))
    assert (found.columns, found.when, found.rows) == ((1,), SINCE, (23, 60))
    own = noise(60)
    own[15:35, 1] += 50
    (found,) = late_ranks(made(own))
    assert (found.columns, found.when, found.rows) == ((1,), BETWEEN, (15, 35))
    own = noise(60)
    own[33, 2] += 3000
    (found,) = late_ranks(made(own))
    assert (found.columns, found.when, found.rows) == ((2,), ONCE, (33, 34))
    own[33, 2] = 300  # three steps long: seen, but not worth a verdict
    assert late_ranks(made(own)) == ()


def test_two_ranks_late_one_after_the_other_are_two_findings() -> None:
    own = noise(60)
    own[:30, 0] += 40
    own[30:, 3] += 50
    found = late_ranks(made(own))
    assert [(item.columns, item.rows) for item in found] == [((3,), (30, 60)), ((0,), (0, 30))]


def test_a_part_of_less_than_two_seconds_is_no_trend() -> None:
    own = noise(60)
    own[45:, 1] += 50  # 15 steps of 100 ms
    assert late_ranks(made(own)) == ()
    own[38:, 1] += 50
    (found,) = late_ranks(made(own))
    assert (found.columns, found.when) == ((1,), SINCE)


def test_late_by_less_than_the_clocks_are_wrong_names_nobody() -> None:
    own = noise(scale=0.1)
    own[:, 1] += 5
    assert late_ranks(made(own)) != ()
    assert late_ranks(made(own, error_ns=6 * MS)) == ()


def test_a_rank_that_mostly_inherits_is_not_named_beside_the_one_it_inherits_from() -> None:
    own, inherited = noise(scale=0.1), np.zeros((40, 4))
    own[:, 0] += 50
    own[:, 1] += 6
    inherited[:, 1] += 44
    (found,) = late_ranks(made(own, inherited_ms=inherited))
    assert found.columns == (0,)


def test_too_few_steps_and_one_rank_alone_say_nothing() -> None:
    own = noise(19)
    own[:, 1] += 50
    assert late_ranks(made(own)) == () == late_ranks(made(noise(40, 1)))
    assert late_ranks(made(np.zeros((0, 0)))) == ()


@given(st.permutations(range(6)), st.integers(0, 1000))
def test_names_follow_the_ranks(order: list[int], seed: int) -> None:
    own = noise(num_ranks=6, seed=seed)
    own[:, 2] += 50
    (plain,), (moved,) = late_ranks(made(own)), late_ranks(made(own[:, order]))
    assert [order[column] for column in moved.columns] == list(plain.columns)
    assert (moved.rows, moved.cost_ns, moved.share) == (plain.rows, plain.cost_ns, plain.share)


def test_an_idle_rank_added_never_clears_a_straggler() -> None:
    own = noise()
    own[:, 2] += 50
    idle = np.hstack([own, np.zeros((40, 1))])
    (found,) = late_ranks(made(idle))
    assert found.columns == (2,)


def test_the_interval_of_a_share() -> None:
    assert wilson(1.0, 35) == pytest.approx(0.901, abs=0.001) and wilson(0.0, 10) == pytest.approx(0.0, abs=1e-9)
