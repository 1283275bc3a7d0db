"""One host's clock against another's: a continuous, piecewise-linear offset from single noisy differences.

Kernels slew clocks, they do not step them (CLOCK_MONOTONIC never jumps), so the offset is continuous, with corners
where a slew begins or ends. Differences are reduced to medians of blocks, which outliers cannot move; the corners are
those that minimise the squared residuals plus a price for each (dynamic programming over the blocks, exact); the
offsets at the corners follow by least squares. A window's error is the dispersion of the single differences in it, and
the furthest that one of its blocks is from the line.

Example: differences 5, 5, 5, 65, 5 at any times are an offset of 5 without drift.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FOREVER_NS: Final = 1 << 62
"""Windows reach from -FOREVER_NS to FOREVER_NS; differences of two times in it still fit 64 bits."""
LONGEST_NS: Final = 600_000_000_000
"""A window is no longer: a drift in whole parts per billion is then right to 0.3 us."""
NEAR_NS: Final = 1_000_000_000
"""So far outside what was observed (or a quarter of its length) the error is still that of the nearest window."""
BEYOND_NS: Final = LONGEST_NS
"""So much further the drift is carried on, with an error that nobody knows; beyond that the offset is constant."""
LEVEL: Final = 0.95
"""Share of the single differences within the error of the line."""
LEAST_ERROR_NS: Final = 1_000
"""No host reads its clock, and sees an operation end, more exactly than this."""
FEW: Final = 8
"""With fewer differences there is no telling a drift: the offset is their median."""
_MAX_BLOCKS: Final = 192
_LEAST_BLOCKS: Final = 4
"""Blocks of a piece between two corners, at least."""
_PRICE: Final = 4.0
"""Of a corner, in units of the blocks' variance times the logarithm of their number (BIC has 1 per parameter)."""


@dataclass(frozen=True, slots=True)
class Window:
    """From `from_ns` to `until_ns` of the host's own clock it is ahead by offset_ns + (t - from_ns) x drift_ppb / 1e9.

    error_ns: None where nothing is known of it. offset_ns is None for a host that nothing ties to the others.
    """

    from_ns: int
    until_ns: int
    offset_ns: int | None
    drift_ppb: int
    error_ns: int | None


EXACT: Final = Window(-FOREVER_NS, FOREVER_NS, 0, 0, 0)
UNKNOWN: Final = Window(-FOREVER_NS, FOREVER_NS, None, 0, None)


def constant(offset_ns: int, error_ns: int) -> tuple[Window, ...]:
    """The same offset at all times."""
    return (Window(-FOREVER_NS, FOREVER_NS, offset_ns, 0, error_ns),)


def fit(times: Ints, differences: Ints) -> tuple[Window, ...]:
    """The windows for differences (host minus reference) seen at `times` of the host's clock; at least one is needed.

    Both in ns, in any order.
    """
    order = np.lexsort((differences, times))
    times, differences = times[order], differences[order]
    middle, origin = int(np.median(differences)), int(times[0])
    if len(times) < FEW or times[0] == times[-1]:
        return constant(middle, _error(differences - middle))
    x, y = (times - origin).astype(np.float64), (differences - middle).astype(np.float64)
    blocks_x, blocks_y = _blocks(x, y)
    knots = _long_pieces_cut(_knots(blocks_x, blocks_y, float(x[-1])))
    corners, values = knots.astype(np.int64), np.rint(_offsets(blocks_x, blocks_y, knots)).astype(np.int64)
    errors = _errors(
        corners, (x, y - np.interp(x, corners, values)), (blocks_x, blocks_y - np.interp(blocks_x, corners, values))
    )
    return _windows(corners, values, errors, origin, middle)


def with_errors(windows: tuple[Window, ...], change: Callable[[int], int | None]) -> tuple[Window, ...]:
    """The same windows with other errors; where nothing is known of the error it stays so."""
    return tuple(
        replace(window, error_ns=change(window.error_ns)) if window.error_ns is not None else window
        for window in windows
    )


def correction(times: Ints, windows: tuple[Window, ...]) -> Ints:
    """What to subtract from `times` of the host's clock, by the same whole-number arithmetic as the SQL macro.

    Raises ValueError for a host whose offset is not known.
    """
    starts = np.array([window.from_ns for window in windows], np.int64)
    if any(window.offset_ns is None for window in windows):
        raise ValueError("the offset of this host is not known")
    offsets = np.array([window.offset_ns for window in windows], np.int64)
    drifts = np.array([window.drift_ppb for window in windows], np.int64)
    at = np.searchsorted(starts, times, side="right") - 1
    product = (times - starts[at]) * drifts[at]
    moved: Ints = offsets[at] + np.sign(product) * (np.abs(product) // 1_000_000_000)
    return moved


def _windows(knots: Ints, values: Ints, errors: list[int], origin: int, middle: int) -> tuple[Window, ...]:
    """The pieces between the knots, the outer ones carried on, further out without an error, and then a constant."""
    drifts = np.rint(np.diff(values) / np.diff(knots) * 1e9).astype(np.int64).tolist()
    margin = min(BEYOND_NS, max(NEAR_NS, int(knots[-1]) // 4))
    first, last = int(values[0]), int(values[-1])
    starts = [-BEYOND_NS - margin, -margin, *knots[1:-1].tolist(), int(knots[-1]) + margin]
    offsets = [first - _carried(BEYOND_NS + margin, drifts[0]), first - _carried(margin, drifts[0]),
               *values[1:-1].tolist(), last + _carried(margin, drifts[-1])]  # fmt: skip
    end, ending = starts[-1] + BEYOND_NS, offsets[-1] + _carried(BEYOND_NS, drifts[-1])
    known: list[int | None] = [None, *errors, None]
    found = [
        Window(origin + start, origin + until, middle + offset, drift, error)
        for start, until, offset, drift, error in zip(
            starts, [*starts[1:], end], offsets, [drifts[0], *drifts, drifts[-1]], known, strict=True
        )
    ]
    return (
        Window(-FOREVER_NS, found[0].from_ns, found[0].offset_ns, 0, None), *found,
        Window(found[-1].until_ns, FOREVER_NS, middle + ending, 0, None),
    )  # fmt: skip


def _carried(elapsed_ns: int, drift_ppb: int) -> int:
    return round(elapsed_ns * drift_ppb / 1e9)


def _errors(knots: Ints, singles: tuple[Floats, Floats], blocks: tuple[Floats, Floats]) -> list[int]:
    """Of each piece: the dispersion of its single residuals, and how far a block's median is from the line at most.

    Each pair: times, residuals. The blocks show where the line does not follow the clock.
    """
    number = len(knots) - 1
    pieces, bends = (np.clip(np.searchsorted(knots, x, side="right") - 1, 0, number - 1) for x, _ in (singles, blocks))
    whole = _error(singles[1])
    found = []
    for i in range(number):
        own = singles[1][pieces == i]
        bend = np.abs(blocks[1][bends == i]).max(initial=0.0)
        found.append((_error(own) if len(own) >= FEW else whole) + int(np.ceil(bend)))
    return found


def _error(residuals: npt.NDArray[np.float64] | Ints) -> int:
    return max(LEAST_ERROR_NS, int(np.ceil(np.quantile(np.abs(residuals), LEVEL, method="higher"))))


def _blocks(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Medians of neighbouring differences, and the mean times of them; the last block has what is left over too."""
    size = max(min(3, len(x) // FEW), len(x) // _MAX_BLOCKS)
    number = max(1, len(x) // size)
    whole = size * (number - 1)
    mean, median = x[:whole].reshape(-1, size).mean(axis=1), np.median(y[:whole].reshape(-1, size), axis=1)
    return np.append(mean, x[whole:].mean()), np.append(median, np.median(y[whole:]))


def _knots(x: Floats, y: Floats, last: float) -> Floats:
    """Times of the corners, 0 and `last` included: where the lines of neighbouring pieces meet."""
    edges = _pieces(x, y - np.polyval(np.polyfit(x, y, 1), x)) if len(x) >= 2 * _LEAST_BLOCKS else [0, len(x)]
    lines = [np.polyfit(x[begin:end], y[begin:end], 1) for begin, end in pairwise(edges)] if len(edges) > 2 else []
    corners = [0.0]
    for cut, (left, right) in zip(edges[1:-1], pairwise(lines), strict=True):
        meet = (right[1] - left[1]) / (left[0] - right[0]) if left[0] != right[0] else (x[cut - 1] + x[cut]) / 2
        corners.append(float(np.clip(meet, x[cut - 2], x[cut + 1])))
    return np.unique(np.rint([*corners, last]))


def _pieces(x: Floats, y: Floats) -> list[int]:
    """The first block of each piece, and behind them the number of blocks."""
    count, variance = len(x), _variance(y)
    if float(y @ y) <= variance * (count + 3 * np.sqrt(2 * count)):  # one line leaves no more than noise
        return [0, count]
    costs, price = _piece_costs(x, y), _PRICE * variance * np.log(count)
    best, cut = np.full(count + 1, np.inf), np.zeros(count + 1, np.int64)
    best[0] = -price
    for end in range(_LEAST_BLOCKS, count + 1):
        totals = best[: end - _LEAST_BLOCKS + 1] + costs[: end - _LEAST_BLOCKS + 1, end - 1] + price
        cut[end] = int(np.argmin(totals))
        best[end] = totals[cut[end]]
    edges = [count]
    while edges[-1] > 0:
        edges.append(int(cut[edges[-1]]))
    return edges[::-1]


def _piece_costs(x: Floats, y: Floats) -> Floats:
    """costs[i, j]: squared residuals of the best line through blocks i to j, both included."""
    scaled = x / max(float(x[-1]), 1.0)
    sums = [np.concatenate([[0.0], np.cumsum(term)]) for term in
            (np.ones_like(y), scaled, y, scaled * scaled, scaled * y, y * y)]  # fmt: skip
    n, sx, sy, sxx, sxy, syy = (total[None, 1:] - total[:-1, None] for total in sums)
    n = np.maximum(n, 1.0)
    vxx, vxy, vyy = sxx - sx * sx / n, sxy - sx * sy / n, syy - sy * sy / n
    costs: Floats = np.maximum(vyy - np.where(vxx > 0, vxy * vxy / np.where(vxx > 0, vxx, 1.0), 0.0), 0.0)
    return costs


def _variance(y: Floats) -> float:
    """Of single blocks about a smooth curve, from second differences: their variance is six times as large."""
    seconds = np.diff(y, 2)
    return max(1.0, (1.4826 * float(np.median(np.abs(seconds)))) ** 2 / 6)


def _long_pieces_cut(knots: Floats) -> Floats:
    """With further knots where two are more than LONGEST_NS apart."""
    found = [knots[:1]]
    for left, right in pairwise(knots.tolist()):
        found.append(np.linspace(left, right, max(2, 1 + int(np.ceil((right - left) / LONGEST_NS))))[1:])
    return np.rint(np.concatenate(found))


def _offsets(x: Floats, y: Floats, knots: Floats) -> Floats:
    """Offsets at the knots: least squares, bent only where the blocks say so, not where a knot has none beside it."""
    at = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
    share = (x - knots[at]) / (knots[at + 1] - knots[at])
    matrix = np.zeros((len(x) + len(knots), len(knots)))
    rows = np.arange(len(x))
    matrix[rows, at], matrix[rows, at + 1] = 1 - share, share
    for i in range(1, len(knots) - 1):  # a faint wish for straightness keeps knots without blocks in line
        left, right = knots[i] - knots[i - 1], knots[i + 1] - knots[i]
        matrix[len(x) + i, i - 1 : i + 2] = 1e-3 * np.array([right, -(left + right), left]) / (left + right)
    solved: Floats = np.linalg.lstsq(matrix, np.concatenate([y, np.zeros(len(knots))]), rcond=None)[0]
    return solved
