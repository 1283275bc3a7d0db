"""Block lengths against those of another implementation, intervals against what they promise."""

import math

import numpy as np
import pytest
from scaling_series import step_times

from rankscope.analyzers.bootstrap import (
    Resampled,
    interval_of_mean,
    interval_of_ratio,
    optimal_block_length,
    student,
)


@pytest.mark.parametrize(
    ("values", "length"),
    [
        ([((i * 37) % 101) / 101 + ((i // 9) % 3) for i in range(120)], 27.434210181351023),
        ([math.sin(0.7 * i) + 0.1 * (i % 7) for i in range(50)], 13.301302120169712),
    ],
)
def test_block_lengths_are_those_of_arch(values: list[float], length: float) -> None:
    # arch 8.0.0, arch.bootstrap.optimal_block_length(values)["circular"]
    assert optimal_block_length(np.array(values)) == pytest.approx(length, rel=1e-9)


def test_a_constant_series_has_no_width() -> None:
    series = Resampled.of([2.0] * 50)
    assert interval_of_mean(series) == (2.0, 2.0)
    assert series.block_length == 1
    assert series.num_effective == 50


def test_too_few_steps_give_no_interval() -> None:
    assert interval_of_mean(Resampled.of([1.0] * 7)) is None
    assert interval_of_ratio(Resampled.of([1.0] * 50), Resampled.of([1.0] * 7)) is None


@pytest.mark.parametrize(("freedom", "quantile"), [(3, 2.3534), (10, 1.8125), (100, 1.6602)])
def test_quantiles_of_student(freedom: float, quantile: float) -> None:
    assert student(0.95, freedom) == pytest.approx(quantile, rel=0.004)


def test_memory_of_the_steps_widens_the_interval() -> None:
    free, bound = (Resampled.of(step_times(1, memory=memory)) for memory in (0.0, 0.8))
    assert bound.standard_error > 1.8 * free.standard_error
    assert bound.num_effective < 0.5 * len(bound.values)


def test_a_ratio_of_sums_is_exact_and_its_error_is_that_of_the_sums() -> None:
    random = np.random.default_rng(3)
    seconds = random.uniform(1, 2, 400)
    samples = 10 * seconds
    rate = Resampled.of_ratio(samples, seconds)
    assert rate.mean == pytest.approx(10)
    assert rate.standard_error < 1e-9, "samples in proportion to time leave nothing uncertain"


def test_a_very_long_series_keeps_its_mean() -> None:
    values = step_times(2, num=120_000)
    series = Resampled.of(values)
    assert len(series.values) < 60_000
    assert series.mean == pytest.approx(values.mean(), rel=1e-6)


def test_ninety_percent_intervals_of_an_efficiency_hold_in_85_to_95_percent() -> None:
    held = 0
    for seed in range(200):
        small, large = step_times(2 * seed, 1.0), step_times(2 * seed + 1, 0.6)
        bounds = interval_of_ratio(Resampled.of(small), Resampled.of(large))
        assert bounds is not None
        held += bounds[0] <= 1 / 0.6 <= bounds[1]
    assert 170 <= held <= 190
