"""Intervals of a mean over steps that resemble their neighbours: the circular block bootstrap in closed form.

Step times are autocorrelated, so 1,000 steps say less than 1,000 independent ones would: whole blocks of neighbours are
drawn again. What many draws would give, the variance of their means, is known without drawing: that of the block sums.
Blocks cut correlations at their ends, by an amount that falls with one over their length, so the variance for blocks of
twice the length, once more as far on, stands for blocks without ends. The block length is that of Politis and White
(Econometric Reviews 23, 2004) with the correction of Patton, Politis and White (28, 2009); `num_effective` is how many
independent steps would leave the same standard error. Measured with `benchmarks/scaling.py`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

LEVEL: Final = 0.90
METHOD: Final = "circular block bootstrap, Student's t"
MIN_STEPS: Final = 8
"""Below it no interval is given."""
_LONGEST: Final = 50_000
"""Longest series that is taken as it is; longer ones are averaged over neighbours first, which keeps blocks whole."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Resampled:
    """The mean of a series and how far off it may be. values: in the order of time."""

    values: Floats

    @classmethod
    def of(cls, values: Sequence[float] | Floats) -> "Resampled":
        """From any sequence; a very long one is averaged over neighbours."""
        found = np.asarray(values, np.float64)
        width = -(-len(found) // _LONGEST)
        return cls(found[: len(found) // width * width].reshape(-1, width).mean(axis=1) if width > 1 else found)

    @classmethod
    def of_ratio(cls, above: Floats, below: Floats) -> "Resampled":
        """A series whose mean is sum(above) / sum(below) and whose standard error is that of this ratio, linearised."""
        ratio = above.sum() / below.sum()
        return cls.of(ratio + (above - ratio * below) / below.mean())

    @cached_property
    def mean(self) -> float:
        """Of the series."""
        return float(self.values.mean())

    @cached_property
    def block_length(self) -> int:
        """Neighbours drawn together; at most a quarter of the series."""
        return max(1, min(round(optimal_block_length(self.values)), len(self.values) // 4))

    @cached_property
    def standard_error(self) -> float:
        """Of the mean."""
        short, long = (self._long_run_variance(times * self.block_length) for times in (1, 2))
        return math.sqrt(max(short, 2 * long - short) / max(1, len(self.values) - 1))

    @cached_property
    def num_effective(self) -> float:
        """Independent steps that would leave the same standard error; at most as many as there are."""
        if self.standard_error == 0:
            return float(len(self.values))
        return min(float(len(self.values)), float(self.values.var(ddof=1)) / self.standard_error**2)

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the standard error: 3/2 of the blocks (Bartlett), half of that for twice the length."""
        return 0.75 * len(self.values) / self.block_length

    def _long_run_variance(self, length: int) -> float:
        """Variance of the mean of blocks drawn again, times the number of values."""
        means = _block_sums(self.values, length) / length
        return length * float(np.mean((means - self.mean) ** 2))


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """variance: of the logarithm of a mean; freedom: degrees of freedom of that variance."""

    variance: float
    freedom: float

    @classmethod
    def of(cls, series: Resampled) -> "Uncertainty | None":
        """None for a series that is too short or whose mean is not positive."""
        if len(series.values) < MIN_STEPS or series.mean <= 0:
            return None
        return cls((series.standard_error / series.mean) ** 2, series.freedom)


def interval_of_ratio(above: Resampled, below: Resampled, level: float = LEVEL) -> tuple[float, float] | None:
    """Interval of mean(above) / mean(below), two independent series; None where `Uncertainty.of` is."""
    one, other = Uncertainty.of(above), Uncertainty.of(below)
    return None if one is None or other is None else interval_around(above.mean / below.mean, (one, other), level)


def interval_of_mean(series: Resampled, level: float = LEVEL) -> tuple[float, float] | None:
    """Interval of a positive mean; None where `Uncertainty.of` is."""
    found = Uncertainty.of(series)
    return None if found is None else interval_around(series.mean, (found,), level)


def interval_around(value: float, parts: Sequence[Uncertainty], level: float = LEVEL) -> tuple[float, float]:
    """Interval of a product or ratio of independent means, on the scale of its logarithm."""
    total = sum(part.variance for part in parts)
    if total == 0:
        return value, value
    # Welch and Satterthwaite: the degrees of freedom of a sum of variances
    freedom = total**2 / sum(part.variance**2 / part.freedom for part in parts)
    factor = math.exp(student((1 + level) / 2, freedom) * math.sqrt(total))
    return value / factor, value * factor


def student(share: float, freedom: float) -> float:
    """Quantile of Student's t by Cornish and Fisher's expansion: at 0.95 within 1 % from 3 degrees on."""
    z, n = NormalDist().inv_cdf(share), max(2.0, freedom)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


def optimal_block_length(values: Floats) -> float:
    """Block length of the circular bootstrap of the mean; 1 for a series that is too short or does not vary."""
    num = len(values)
    centred = values - values.mean() if num else values
    if num < MIN_STEPS or not np.any(centred):
        return 1.0
    lags = max(5, int(math.log10(num)))
    most = min(math.ceil(math.sqrt(num)) + lags, num - 2)
    covariances = np.array([centred[lag:] @ centred[: num - lag] for lag in range(most + 1)]) / num
    window = min(2 * max(_last_significant(centred, covariances, lags), 1), most)
    orders = np.arange(1, window + 1)
    weights = np.where(orders / window <= 0.5, 1.0, 2 * (1 - orders / window))
    long_run = covariances[0] + 2 * float(weights @ covariances[1 : window + 1])
    slope = 2 * float((weights * orders) @ covariances[1 : window + 1])
    if long_run == 0:
        return 1.0
    length = (2 * slope**2 / (4 / 3 * long_run**2)) ** (1 / 3) * num ** (1 / 3)
    return float(max(1.0, min(length, math.ceil(min(3 * math.sqrt(num), num / 3)))))


def _last_significant(centred: Floats, covariances: Floats, lags: int) -> int:
    """The lag after which `lags` autocorrelations in a row are not significant; the largest looked at if none is."""
    num = len(centred)
    limit = 2 * math.sqrt(math.log10(num) / num)
    squares = np.concatenate([[0.0], np.cumsum(centred**2)])
    small = []
    for lag in range(len(covariances)):
        scale = math.sqrt((squares[num] - squares[lag + 1]) * squares[num - lag - 1])
        small.append(abs(covariances[lag]) * num < limit * scale)
        if len(small) > lags and all(small[-lags - 1 : -1]):
            return lag - lags
    return len(covariances) - 1


def _block_sums(values: Floats, length: int) -> Floats:
    """Sum of the block that begins at each value; the end is followed by the beginning."""
    total = np.concatenate([[0.0], np.cumsum(np.concatenate([values, values[: length - 1]]))])
    sums: Floats = total[length:] - total[:-length]
    return sums
