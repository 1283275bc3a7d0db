"""Where a level changes: planted changes are found to the step, noise and single pauses are none."""

import numpy as np
import pytest

from rankscope.analyzers.change_point import change_point, parts

SCALE = 100.0


def series(*levels: tuple[int, float], noise: float = 2.0, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate([level + noise * rng.standard_normal(length) for length, level in levels])[:, None]


def test_the_example_of_the_docstring() -> None:
    found = change_point(series((20, 1.0), (20, 41.0)), SCALE)
    assert found is not None and (found.row, found.column) == (20, 0)
    assert found.shift == pytest.approx(40, abs=2) and found.score > 20


@pytest.mark.parametrize("at", [10, 17, 40, 90])
def test_a_change_is_found_to_the_step_down_to_ten_steps_on_each_side(at: int) -> None:
    assert parts(series((at, 0.0), (100 - at, 30.0)), SCALE) == ((0, at), (at, 100))


def test_both_changes_of_a_passing_fault_are_found() -> None:
    assert parts(series((30, 0.0), (20, 30.0), (50, 0.0)), SCALE) == ((0, 30), (30, 50), (50, 100))


def test_too_short_a_side_too_small_a_shift_and_a_single_pause_are_no_change() -> None:
    assert parts(series((95, 0.0), (5, 50.0)), SCALE) == ((0, 100),)
    assert parts(series((50, 0.0), (50, 9.0)), SCALE) == ((0, 100),)
    assert parts(series((50, 0.0), (50, 1.5), noise=0.01), SCALE) == ((0, 100),)
    paused = series((60, 0.0))
    paused[30] = 5000.0
    assert parts(paused, SCALE) == ((0, 60),)
    assert change_point(series((19, 0.0)), SCALE) is None


def test_a_small_shift_counts_where_it_is_beyond_all_doubt() -> None:
    assert parts(series((50, 0.0), (50, 9.0), noise=0.1), SCALE) == ((0, 50), (50, 100))


@pytest.mark.parametrize("noise", [1.0, 30.0])
def test_noise_is_no_change(noise: float) -> None:
    rng = np.random.default_rng(1)
    draws = [noise * np.abs(rng.standard_normal((60, 4))) for _ in range(100)]
    assert sum(change_point(draw, SCALE) is not None for draw in draws) <= 1


def test_the_column_that_changes_is_told() -> None:
    quiet = series((60, 0.0))
    both = np.hstack([quiet, series((25, 0.0), (35, 40.0), seed=2), quiet])
    found = change_point(both, SCALE)
    assert found is not None and (found.row, found.column) == (25, 1)
