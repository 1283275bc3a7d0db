"""How far off the forecast of a larger size is, on many series: the largest size of each predicted from its others.

Every series is tested with constants learnt from the other series only. Series of fewer than 4 sizes teach, but are not
tested. A size that is too far for an honest forecast is refused; what would have been said counts here all the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from .forecast import Forecast, back_test, calibrate, refusal
from .scaling_points import Series

MIN_SIZES: Final = 4
MODELS: Final[dict[str, Callable[[Forecast], float]]] = {
    "rankscope": lambda told: told.value, "last efficiency carried": lambda told: told.carried,
    "linear from the first": lambda told: told.linear,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One series. truth: what was measured at the size that the forecast is of."""

    series: Series
    forecast: Forecast
    truth: float

    @property
    def is_refused(self) -> bool:
        """The size is too far from the others."""
        return refusal(self.series.curve[:-1], self.forecast.at) is not None


@dataclass(frozen=True, slots=True)
class Errors:
    """Absolute relative errors of one model over the series."""

    median: float
    p90: float


def held_out(series: Sequence[Series]) -> tuple[HeldOut, ...]:
    """The test of all series of at least MIN_SIZES sizes."""
    found = []
    for item in series:
        if len(item.curve) < MIN_SIZES:
            continue
        told = back_test(item.curve, calibration=calibrate(other.curve for other in series if other is not item))
        if told is not None:
            found.append(HeldOut(item, told, item.curve[-1][1]))
    return tuple(found)


def errors(tested: Sequence[HeldOut], model: str = "rankscope") -> Errors:
    """Of one of MODELS. Raises KeyError; ValueError without a series."""
    found = [abs(MODELS[model](item.forecast) / item.truth - 1) for item in tested]
    return Errors(float(np.median(found)), float(np.percentile(found, 90)))


def coverage(tested: Sequence[HeldOut]) -> float:
    """Share of the brackets that contain what was measured."""
    return sum(item.forecast.holds(item.truth) for item in tested) / len(tested)
