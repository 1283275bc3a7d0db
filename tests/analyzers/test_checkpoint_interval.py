"""Young, Daly and the interval of a rare count, against published values."""

import math

import pytest

from rankscope.analyzers.checkpoint_interval import daly, poisson_interval, young


def test_young_and_daly():
    assert young(60, 21600) == pytest.approx(1609.97, abs=0.01)
    assert daly(60, 21600) == pytest.approx(1609.97 * (1 + math.sqrt(60 / 43200) / 3 + 60 / (18 * 21600)) - 60, abs=0.1)
    assert daly(10, 4) == 4  # a save that costs more than twice the time between failures


@pytest.mark.parametrize(
    "count, low, high",
    [(0, 0.0, 3.689), (1, 0.0253, 5.572), (2, 0.2422, 7.225), (10, 4.795, 18.39), (100, 81.36, 121.6)]
)  # fmt: skip
def test_the_exact_interval_of_a_poisson_count(count, low, high):
    found_low, found_high = poisson_interval(count)
    assert found_low == pytest.approx(low, abs=5e-4, rel=5e-4) and found_high == pytest.approx(high, rel=5e-4)
