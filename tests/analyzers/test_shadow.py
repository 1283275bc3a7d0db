"""The comparison with shadow steps: finds a planted cost, and says that it cannot tell where it cannot."""

import numpy as np
import pytest

from rankscope.analyzers.shadow import bootstrap, differences

COST = 0.02


def _rows(num: int, noise: float, cost: float = COST, seed: int = 1) -> list[tuple[int, int, float, bool]]:
    random, rows = np.random.default_rng(seed), []
    for step in range(num):
        is_shadow = step % 5 == 4
        mean = 1e7 if is_shadow else 1e7 * (1 + cost)
        rows.append((0, step, mean * (1 + noise * random.standard_normal()), is_shadow))
    return rows


def test_neighbours_are_recorded_steps_of_the_same_incarnation() -> None:
    rows = [(0, 3, 10.0, False), (0, 4, 8.0, True), (0, 5, 12.0, False), (0, 6, 12.0, True), (1, 7, 99.0, False)]
    assert differences(rows).tolist() == pytest.approx([(11 - 8) / 8, (12 - 12) / 12])
    assert differences([(0, 4, 8.0, True), (1, 5, 9.0, False)]).tolist() == []


def test_a_planted_cost_is_found_and_the_interval_holds_it() -> None:
    found = differences(_rows(2000, noise=0.02))
    interval = bootstrap(found)
    assert len(found) == 400
    assert 0 < interval.low < float(np.median(found)) < interval.high
    assert abs(float(np.median(found)) - COST) < 0.005  # its standard error is 0.0014
    assert bootstrap(found) == interval


def test_noise_alone_is_no_cost() -> None:
    """An interval of 95 % leaves 0 out in 1 of 20 runs; 8 of 40 or more would be one in 2,000."""
    found = [bootstrap(differences(_rows(120, noise=0.05, cost=0.0, seed=seed))) for seed in range(40)]
    assert sum(interval.low > 0 or interval.high < 0 for interval in found) < 8
