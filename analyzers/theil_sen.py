"""A trend that single outliers cannot make: the median slope of all pairs of points, with Sen's interval.

The interval is from the distribution of Kendall's tau, ties in y counted. It takes points as independent; neighbouring
steps are not quite, so it is somewhat too narrow. Example: (0, 0), (1, 1), (2, 2), (3, 30) has the slopes 1, 1, 29, 1,
14.5, 10 and the median 5.5. Source: P. K. Sen, JASA 63 (1968) 1379.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

LEVEL: Final = 0.95
METHOD: Final = "Theil-Sen, Sen's interval"
MIN_POINTS: Final = 5
"""Below it the interval would be all slopes, whatever they are."""


@dataclass(frozen=True, slots=True)
class Trend:
    """slope: per unit of x; low, high: its interval at LEVEL."""

    slope: float
    low: float
    high: float

    @property
    def is_rising(self) -> bool:
        """The interval lies above 0."""
        return self.low > 0


def theil_sen(x: Sequence[float], y: Sequence[float]) -> Trend | None:
    """The trend of y over x; None for fewer than MIN_POINTS points. Cost grows with the square of their number."""
    if len(x) < MIN_POINTS:
        return None
    xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
    left, right = np.triu_indices(len(xs), 1)
    run = xs[right] - xs[left]
    slopes = np.sort((ys[right] - ys[left])[run != 0] / run[run != 0])
    if not len(slopes):
        return None
    half = NormalDist().inv_cdf((1 + LEVEL) / 2) * float(np.sqrt(_variance(ys)))
    low = round((len(slopes) - half) / 2) - 1
    high = round((len(slopes) + half) / 2)
    return Trend(
        float(np.median(slopes)), float(slopes[max(0, low)]), float(slopes[min(len(slopes) - 1, max(0, high))])
    )


def _variance(ys: np.ndarray) -> float:
    """Of Kendall's S, with the correction for ties."""
    n = len(ys)
    _, ties = np.unique(ys, return_counts=True)
    tied = float(np.sum(ties * (ties - 1) * (2 * ties + 5)))
    return (n * (n - 1) * (2 * n + 5) - tied) / 18
