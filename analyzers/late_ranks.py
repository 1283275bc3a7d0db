"""Which ranks stand out by their own lateness, in which steps, and what that costs: from one number per step and rank.

A rank is late in a step if its own lateness, beyond the median rank's, exceeds that of every rank outside the set and a
margin: `FACTOR` times what the latest of the others usually shows (their 75th percentile over the steps), and the error
of the clocks. Of all sets of the latest ranks (at most half of them) the one with the widest gap to the rest is taken.
It is named if each of its ranks is late in at least `CHRONIC` of the steps (80 % of a part shorter than 20 steps), and
its cost is at least `MIN_COST` of the time. cost: by how much sooner each step's last rank would have come without it.

Nobody stands out where ranks take turns: they are each other's margin. Where a step's lateness belongs to one rank and
is worth `ONCE_STEPS` steps, that is told as having happened once. It cannot see that all ranks are late together.
Source of the thresholds: `3-metrics`, Stragglers; FACTOR and MIN_COST leave out what a busy machine does to even loads.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .change_point import parts
from .lateness import Lateness

CHRONIC: Final = 0.60
"""Share of the steps in which a rank has to be late."""
MIN_STEPS: Final = 20
CHRONIC_OF_FEW: Final = 0.80
"""The share of a part shorter than that."""
FACTOR: Final = 1.5
QUANTILE: Final = 0.75
MIN_COST: Final = 0.02
"""Of the time of the steps."""
ONCE_STEPS: Final = 5.0
"""Median steps that a single delay has to cost."""
ONCE_COST: Final = 0.01
"""Of the time of all counted steps, that it has to cost as well."""
MAX_ONCE: Final = 3
HEIR: Final = 0.25
"""Own lateness over inherited, below which a rank only passes on what another did."""
CHRONICALLY, SINCE, BETWEEN, ONCE = "chronic", "since", "between", "once"
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Finding:
    """Columns of `Lateness` that are late together. rows: first, and the one after the last. when: CHRONICALLY, ...

    late: by (row of the part, column of the set). share: of the part's steps, in which the least late of them is late.
    cost_ns: over the part. margin_ns: what counted as late. ratio: lateness of the least late over what others show.
    """

    columns: tuple[int, ...]
    rows: tuple[int, int]
    when: str
    late: Bools
    share: float
    cost_ns: int
    margin_ns: float
    ratio: float


def excess(found: Lateness) -> Floats:
    """Own lateness beyond the median rank's, by (step, rank) in ns; 0 where a rank has nothing to compare.

    Heirs are 0 as well: the little that they add to what they inherited is the error of telling the two apart.
    """
    is_own = found.is_known & (found.own_ns >= HEIR * found.inherited_ns)
    own = np.where(is_own, found.own_ns, 0).astype(np.float64)
    num = found.is_known.sum(axis=1)
    order = np.sort(np.where(found.is_known, own, np.inf), axis=1)
    middle = np.take_along_axis(order, np.maximum(0, (num - 1) // 2)[:, None], axis=1)
    return np.where(found.is_known, own - middle, 0.0)


def late_ranks(found: Lateness) -> tuple[Finding, ...]:
    """Who stands out, the dearest first; empty if nobody does."""
    beyond = excess(found)
    if found.num_ranks < 2 or not len(beyond):
        return ()
    scale = float(found.duration_ns.mean())
    pieces = _merged([
        item for first, end in parts(beyond, scale) if (item := _part(found, beyond, first, end)) is not None
    ], found, beyond)  # fmt: skip
    return tuple(sorted(pieces, key=lambda item: (-item.cost_ns, item.rows))) or _once(found, beyond)


def _part(found: Lateness, beyond: Floats, first: int, end: int) -> Finding | None:
    """The set that stands out in the steps from `first` to before `end`."""
    steps = end - first
    is_whole = steps == len(beyond)
    if is_whole and steps < MIN_STEPS:
        return None
    part = beyond[first:end]
    order = np.argsort(-np.median(part, axis=0), kind="stable")
    sorted_part = part[:, order]
    rest = np.maximum.accumulate(sorted_part[:, ::-1], axis=1)[:, ::-1]
    floor = MIN_COST * float(found.duration_ns[first:end].mean())
    best: Finding | None = None
    for size in range(1, max(1, len(order) // 2) + 1):
        middle = float(np.median(sorted_part[:, size - 1]))
        if middle < floor:
            break
        item = _set(found, sorted_part[:, :size], rest[:, size], (first, end), order[:size], middle)
        if item is not None and (best is None or item.ratio > best.ratio):
            best = item
    return best


def _set(
    found: Lateness, chosen: Floats, rest: Floats, rows: tuple[int, int], columns: NDArray[np.intp], middle: float
) -> Finding | None:  # fmt: skip
    usual = float(np.quantile(rest, QUANTILE, method="nearest"))
    margin = max(FACTOR * usual, float(found.error_ns or 0))
    late = (chosen > margin) & (chosen > rest[:, None])
    share = float(late.mean(axis=0).min())
    cost = int(np.maximum(0.0, chosen.max(axis=1) - np.maximum(rest, 0.0)).sum())
    steps = rows[1] - rows[0]
    if share < (CHRONIC if steps >= MIN_STEPS else CHRONIC_OF_FEW):
        return None
    if cost < MIN_COST * float(found.duration_ns[rows[0] : rows[1]].sum()):
        return None
    by_column = np.argsort(columns)
    return Finding(
        tuple(map(int, columns[by_column])), rows, _when(rows, len(found.steps)), late[:, by_column], share, cost,
        margin, middle / max(usual, 1.0),
    )  # fmt: skip


def _when(rows: tuple[int, int], num_steps: int) -> str:
    if rows == (0, num_steps):
        return CHRONICALLY
    return SINCE if rows[1] == num_steps else BETWEEN


def _merged(pieces: list[Finding], found: Lateness, beyond: Floats) -> list[Finding]:
    """Neighbouring parts with the same ranks are one, if they stand out in it as a whole."""
    joined: list[Finding] = []
    for item in pieces:
        last = joined[-1] if joined else None
        if last is not None and last.columns == item.columns and last.rows[1] == item.rows[0]:
            both = _part(found, beyond, last.rows[0], item.rows[1])
            if both is not None and both.columns == item.columns:
                joined[-1] = both
                continue
        joined.append(item)
    return joined


def _once(found: Lateness, beyond: Floats) -> tuple[Finding, ...]:
    """Single steps of which one rank cost several steps' time."""
    ordered = np.sort(beyond, axis=1)
    cost = ordered[:, -1] - np.maximum(0.0, ordered[:, -2])
    least = max(ONCE_STEPS * float(np.median(found.duration_ns)), ONCE_COST * float(found.duration_ns.sum()),
                float(found.error_ns or 0))  # fmt: skip
    rows = [int(row) for row in np.argsort(-cost, kind="stable")[:MAX_ONCE] if cost[row] >= least]
    return tuple(_single(beyond, row, int(cost[row]), least, float(np.median(found.duration_ns))) for row in rows)


def _single(beyond: Floats, row: int, cost: int, least: float, usual: float) -> Finding:
    """A delay of one step. least: what is told at all; usual: the median step."""
    column = int(np.argmax(beyond[row]))
    return Finding((column,), (row, row + 1), ONCE, np.ones((1, 1), np.bool_), 1.0, cost, least, cost / max(1.0, usual))
