"""Since which step is a rank late? Where the level of a series changes, if it does.

One change at a time: the place at which the means before and after differ most for their lengths (least squares, as in
Page's CUSUM; source: Truong, Oudre and Vayatis, Selective review of offline change point detection, 2020), of series
whose outliers are pulled in to 3 deviations, then each part anew. A change counts if it leaves at least `MIN_SIDE`
steps on each side, the medians differ by at least `MIN_SHIFT` of the mean step, and the difference is `MIN_SCORE` times
what the noise of the series explains; a smaller one (`LEAST_SHIFT`) where it is `CLEAR_SCORE` times that. Example: 20
steps late by 1 ms and 20 late by 41 ms, noise 2 ms, steps of 100 ms: a change at 20, shift 40 ms, score 40 / (2
sqrt(1/20 + 1/20)) = 63.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

MIN_SIDE: Final = 10
"""Steps on each side of a change."""
MIN_SHIFT: Final = 0.10
"""Of the mean step, by which the level has to change."""
LEAST_SHIFT, CLEAR_SCORE = 0.02, 35.0
"""A smaller change counts, too, where it is beyond all doubt."""
MIN_SCORE: Final = 7.0
"""Standard errors by median deviations: of 60 steps of 4 ranks of pure noise, one in a thousand reaches them."""
NEAR: Final = 30
"""Steps on each side that are compared to judge a change: farther ones may be on yet another level."""
MAX_CHANGES: Final = 7
DEVIATION: Final = 1.4826
"""Standard deviation over median absolute deviation, of a normal distribution."""
_PULLED_IN: Final = 3.0
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Change:
    """The level of column `column` changes before row `row`, by `shift` (in the series' unit); score: in errors."""

    row: int
    column: int
    shift: float
    score: float


def parts(series: Floats, scale: float) -> tuple[tuple[int, int], ...]:
    """(first row, row after the last) of the parts between which the level of any column of `series` changes.

    series: by (step, rank). scale: the mean step, in the same unit.
    """
    found = [(0, len(series))]
    pending = [(0, len(series))]
    while pending and len(found) <= MAX_CHANGES:
        first, end = pending.pop(0)
        change = change_point(series[first:end], scale)
        if change is not None:
            halves = [(first, first + change.row), (first + change.row, end)]
            found.remove((first, end))
            found += halves
            pending += halves
    return tuple(sorted(found))


def change_point(series: Floats, scale: float) -> Change | None:
    """The change with the highest score that counts, over all columns of `series`; None if there is none."""
    rows, columns = series.shape
    if rows < 2 * MIN_SIDE or not columns:
        return None
    places = np.arange(MIN_SIDE, rows - MIN_SIDE + 1)
    sums = np.cumsum(_pulled_in(series), axis=0)
    before = sums[places - 1] / places[:, None]
    after = (sums[-1] - sums[places - 1]) / (rows - places)[:, None]
    gain = np.abs(after - before) * np.sqrt(places * (rows - places) / rows)[:, None]
    row = places[np.argmax(gain, axis=0)]
    found = [_judged(series[:, column], int(row[column]), column, scale)
             for column in np.argsort(-gain.max(axis=0), kind="stable")[:MAX_CHANGES]]  # fmt: skip
    counted = [change for change in found if change is not None]
    return max(counted, key=lambda change: (change.score, -change.column), default=None)


def _judged(values: Floats, row: int, column: int, scale: float) -> Change | None:
    before, after = values[max(0, row - NEAR) : row], values[row : row + NEAR]
    shift = float(np.median(after) - np.median(before))
    noise = DEVIATION * max(spread(before), spread(after))
    error = noise * float(np.sqrt(1 / len(before) + 1 / len(after)))
    score = abs(shift) / error if error else float("inf")
    is_large = abs(shift) >= MIN_SHIFT * scale and score >= MIN_SCORE
    is_clear = abs(shift) >= LEAST_SHIFT * scale and score >= CLEAR_SCORE
    return Change(row, column, shift, score) if is_large or is_clear else None


def spread(values: Floats) -> float:
    """The median absolute deviation from the median."""
    return float(np.median(np.abs(values - np.median(values))))


def _pulled_in(series: Floats) -> Floats:
    """Outliers moved to 3 deviations from the quartiles: one long pause is no change of level.

    The quartiles, not the median: of a series with two levels these are the levels.
    """
    low, high = np.quantile(series, (0.2, 0.8), axis=0, method="nearest")
    spread = DEVIATION * np.minimum(
        np.median(np.abs(series - low), axis=0), np.median(np.abs(series - high), axis=0)
    )  # fmt: skip
    return np.clip(series, low - _PULLED_IN * spread, high + _PULLED_IN * spread)
