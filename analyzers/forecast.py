"""What throughput a larger size will have, from at least two measured ones; never without its error on known series.

A textbook curve (Amdahl, USL) loses to carrying the last efficiency on, which in turn is too optimistic nearly always.
So the last efficiency is carried on and bent by a share of what the last step lost: with `loss` = 1 - slope between the
last two sizes (logarithms of throughput over size), throughput at N = carried * (N / n)^(-BEND * loss), and nothing is
added where the last step gained. Worked example: 100/s on 8, 180/s on 16, forecast at 32: slope 0.848, loss 0.152,
carried 360, times 2^(-0.6 * 0.152) gives 338.

The bracket is not that of a fit, which would be far too narrow: how far off such forecasts were, relative to how far
they reached and how much the last step lost, on the public series below, 80 % of the time. Constants: `calibrate` over
76 public series (MLPerf Training v2.1 to v5.1, llm-foundry, MaxText, Megatron-LM, the ultra-scale playbook, GNMT and
DeepSpeed BERT tables); `benchmarks/scaling.py` takes them again and tests each series with constants from the others.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

LEVEL: Final = 0.80
MIN_SIZES: Final = 3
"""Two tell the last loss; the third is held out to test the forecast on the user's own series."""
FARTHEST: Final = 4.0
"""Times the largest measured size, beyond which no honest forecast is possible."""
ASSUMED_NODE: Final = 8
"""Devices of a node, or of an NVLink domain, where the runs do not tell."""
_LEARNT_FROM: Final = 4.5
"""Longest step, in sizes, from which the constants are learnt."""
_FLOOR: Final = 0.05
"""Loss that is always reckoned with in the bracket: a step that cost nothing may be followed by one that does. Twice as
much where the last step left a node: what it lost is then not what the next one will."""
_BENDS: Final = tuple(round(0.3 + 0.05 * step, 2) for step in range(15))

Curve = Sequence[tuple[int, float]]
"""(size, throughput) by size."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """bend: share of the last loss that goes on. width: of the bracket, in units of what a step is reckoned to lose."""

    bend: float
    width: float


PUBLIC: Final = Calibration(bend=0.60, width=1.19)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Throughput at size `at`. low, high: bracket at LEVEL. linear: from the first size; carried: last efficiency."""

    at: int
    value: float
    low: float
    high: float
    linear: float
    carried: float
    notes: tuple[str, ...] = ()

    def error(self, truth: float) -> float:
        """Relative error against what was measured; negative where the forecast was too low."""
        return self.value / truth - 1

    def holds(self, truth: float) -> bool:
        """The bracket contains what was measured."""
        return self.low <= truth <= self.high


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no forecast is given."""

    at: int
    reason: str


def forecast(curve: Curve, at: int, node_size: int | None = None, calibration: Calibration = PUBLIC) -> Forecast:
    """The forecast, whether or not it ought to be given (`refusal`). curve: at least two sizes, rising."""
    (before, _), (last, throughput) = curve[-2], curve[-1]
    loss, reach = _loss(curve), math.log(at / last)
    carried = throughput * at / last
    value = carried * math.exp(-reach * calibration.bend * max(0.0, loss))
    crosses = _crosses(curve, node_size)
    half = calibration.width * _spread(curve, at, node_size)
    first, slowest = curve[0]
    return Forecast(
        at, value, value * math.exp(-half), value * math.exp(half), slowest * at / first, carried,
        _notes(before, last, node_size) if crosses else (),
    )  # fmt: skip


def refusal(curve: Curve, at: int) -> Refusal | None:
    """Why a forecast at `at` would not be honest; None where it is."""
    if len(curve) < MIN_SIZES:
        return Refusal(at, f"a forecast needs {MIN_SIZES} sizes, one of them to test it on; here are {len(curve)}")
    last = curve[-1][0]
    if at <= last:
        return Refusal(at, f"{at} is not larger than the largest measured size, {last}")
    if at > FARTHEST * last:
        return Refusal(at, f"{at} is more than {FARTHEST:g} times the largest measured size, {last}: "
                           f"measure at least {math.ceil(at / FARTHEST)} first")  # fmt: skip
    return None


def back_test(curve: Curve, node_size: int | None = None, calibration: Calibration = PUBLIC) -> Forecast | None:
    """The forecast of the largest size from the others; None with fewer than three sizes."""
    if len(curve) < MIN_SIZES:
        return None
    return forecast(curve[:-1], curve[-1][0], node_size, calibration)


def calibrate(series: Iterable[Curve]) -> Calibration:
    """Learn the constants from what each next size of each series was. Every series counts the same for the bend."""
    steps = [[(curve[:known], *curve[known]) for known in range(2, len(curve))
              if curve[known][0] <= _LEARNT_FROM * curve[known - 1][0]] for curve in series]  # fmt: skip
    steps = [found for found in steps if found]
    losses = [[_missed(known, at, truth, bend) for bend in _BENDS] for found in steps for known, at, truth in found]
    weights = np.array([1 / len(found) for found in steps for _ in found])
    bend = _BENDS[int(np.argmin(weights @ np.abs(np.array(losses))))]
    scores = [
        abs(_missed(known, at, truth, bend)) / _spread(known, at) for found in steps for known, at, truth in found
    ]
    return Calibration(bend, round(float(np.quantile(scores, LEVEL)), 2))


def _missed(known: Curve, at: int, truth: float, bend: float) -> float:
    """Logarithm of forecast / truth."""
    last, throughput = known[-1]
    reach = math.log(at / last)
    return math.log(throughput * at / last / truth) - reach * bend * max(0.0, _loss(known))


def _loss(curve: Curve) -> float:
    """1 - slope of the last step: 0 where throughput grew with the size, 1 where it did not grow."""
    (before, slower), (last, faster) = curve[-2], curve[-1]
    return 1 - math.log(faster / slower) / math.log(last / before)


def _spread(curve: Curve, at: int, node_size: int | None = None) -> float:
    """How far off a forecast may be, before the width that was learnt."""
    floor = 2 * _FLOOR if _crosses(curve, node_size) else _FLOOR
    return math.log(at / curve[-1][0]) * (floor + abs(_loss(curve)))


def _crosses(curve: Curve, node_size: int | None) -> bool:
    """The last step left a node."""
    return curve[-2][0] <= (node_size or ASSUMED_NODE) < curve[-1][0]


def _notes(before: int, last: int, node_size: int | None) -> tuple[str, ...]:
    known = f"{node_size} a node" if node_size else f"assumed at {ASSUMED_NODE}"
    return (f"the step from {before} to {last} left a node ({known}): its loss may not be that of the next one",)
