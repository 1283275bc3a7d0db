"""How often to save: Young's and Daly's optimum from what a save costs and how often the job fails.

With C the time that a save holds the training up and M the mean time between failures, Young (1974): sqrt(2 C M); Daly
(2006), for C < 2 M: sqrt(2 C M) [1 + sqrt(C / 2M) / 3 + C / 18 M] - C, else M. Example: C = 60 s, M = 6 h = 21600 s:
Young 1610 s, Daly 1610 x (1 + 0.0124 + 0.0002) - 60 = 1570 s.

Failures are rare, so their rate is uncertain: k failures in a time T give the exact (Garwood) 95 % interval of the mean
of a Poisson count, and the optimum is taken at both ends.
"""

import math
from collections.abc import Callable
from typing import Final

LEVEL: Final = 0.95
_STEPS: Final = 100
"""Halvings of the interval in which a bound is looked for."""


def young(cost_ns: float, between_failures_ns: float) -> float:
    """Young's interval, ns."""
    return math.sqrt(2 * cost_ns * between_failures_ns)


def daly(cost_ns: float, between_failures_ns: float) -> float:
    """Daly's interval (his higher-order estimate), ns."""
    cost, between = cost_ns, between_failures_ns
    if cost >= 2 * between:
        return between
    return young(cost, between) * (1 + math.sqrt(cost / (2 * between)) / 3 + cost / (18 * between)) - cost


def poisson_interval(count: int, level: float = LEVEL) -> tuple[float, float]:
    """Exact bounds of the mean of a Poisson count: 2 gives 0.242 and 7.225 at 95 %."""
    tail = (1 - level) / 2
    low = 0.0 if count == 0 else _solve(lambda mean: 1 - _cdf(count - 1, mean) - tail, 0.0, float(count))
    return low, _solve(lambda mean: tail - _cdf(count, mean), float(count), 2 * count + 20.0)


def _cdf(count: int, mean: float) -> float:
    """P(X <= count) of a Poisson variable."""
    if mean == 0:
        return 1.0
    return math.fsum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1))


def _solve(rising: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
