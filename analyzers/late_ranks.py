"""Which ranks stand out by their own lateness, in which steps, and what that costs: from one number per step and rank.

Of all sets of the latest ranks (at most half of them) the one with the widest gap to the rest is looked at. A rank of
it is late in a step if it is later than every rank of the rest, and later than the rest's median by a margin: `FACTOR`
times what the latest of the rest usually shows against that median (its 75th percentile over the steps), at least the
error of the clocks; where the rest is one rank, whose median it is, the spread of the difference over the steps stands
for that. It is named if at least `CHRONIC` of the steps are so with a confidence of 95 % (Wilson), and its cost is at
least `MIN_COST` of the time. cost: by how much sooner each step's last rank would have come without it.

Nobody stands out where ranks take turns: they are each other's margin. Where a step's lateness belongs to one rank and
is worth `ONCE_STEPS` steps, that is told as having happened once. It cannot see that all ranks are late together.
Source of the thresholds: `3-metrics`, Stragglers; FACTOR and MIN_COST leave out what a busy machine does to even loads.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .change_point import DEVIATION, MIN_SIDE, parts, spread
from .lateness import Lateness

ANALYZER: Final = "late_ranks"
CHRONIC: Final = 0.60
"""Share of the steps in which a rank has to be late."""
MIN_STEPS: Final = 20
"""Counted steps from which anything is said."""
MIN_PART_NS: Final = 2_000_000_000
"""What a part of the run has to last: a busy host's scheduler slights a rank for as long as a second."""
FACTOR: Final = 1.5
QUANTILE: Final = 0.75
MIN_COST: Final = 0.02
"""Of the time of the steps."""
ONCE_STEPS: Final = 5.0
"""Median steps that a single delay has to cost."""
ONCE_COST: Final = 0.01
"""Of the time of all counted steps, that it has to cost as well."""
ALIKE: Final = 0.5
"""Lateness of the least late rank of a set over that of the latest."""
MAX_ONCE: Final = 3
HEIR: Final = 0.25
"""Own lateness over inherited, below which a rank only passes on what another did."""
TURNS: Final = "and the ranks take turns"
CHRONICALLY, SINCE, BETWEEN, ONCE = "chronic", "since", "between", "once"
_Z: Final = 1.96
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
    own = np.where(found.is_known, found.own_ns, 0).astype(np.float64)
    num = found.is_known.sum(axis=1)
    order = np.sort(np.where(found.is_known, own, np.inf), axis=1)
    middle = np.take_along_axis(order, np.maximum(0, (num - 1) // 2)[:, None], axis=1)
    is_heir = found.own_ns < HEIR * found.inherited_ns
    return np.where(found.is_known, np.where(is_heir, np.minimum(own - middle, 0.0), own - middle), 0.0)


def late_ranks(found: Lateness) -> tuple[Finding, ...]:
    """Who stands out, the dearest first; empty if nobody does."""
    beyond = excess(found)
    if found.num_ranks < 2 or not len(beyond):
        return ()
    scale = float(found.duration_ns.mean())
    pieces = [_part(found, beyond, first, end) for first, end in parts(beyond, scale)]
    named = [item for item in pieces if item is not None]
    whole = None if named else _part(found, beyond, 0, len(beyond))
    joined = _merged(named, found, beyond) if whole is None else [whole]
    return tuple(sorted(joined, key=lambda item: (-item.cost_ns, item.rows))) or _once(found, beyond)


def whose_turn(late: Lateness) -> str:
    """That the ranks take turns, unless one comes last in most of the steps, or of a part of them, and by more than
    chance.
    """
    beyond = excess(late)
    latest = np.where(beyond.max(axis=1) > 0, np.argmax(beyond, axis=1), -1)
    for column in np.argsort(-np.bincount(latest[latest >= 0], minlength=len(late.ranks)), kind="stable")[:MAX_ONCE]:
        is_last = latest == column
        window = densest(is_last.tolist())
        is_whole = 10 * (window[1] - window[0]) >= 9 * len(latest)
        first, end = (0, len(latest)) if is_whole else window
        num, often = end - first, int(is_last[first:end].sum())
        if num < MIN_SIDE or often / num < CHRONIC or wilson(often / num, num) <= 1 / len(late.ranks):
            continue
        why = "too little to name it"
        if is_whole:
            return f"mostly rank {late.ranks[column]} (in {often} of them): {why}"
        if int(late.duration_ns[first:end].sum()) < MIN_PART_NS:
            why = f"less than the {MIN_PART_NS // 10**9} s that it takes to name it"
        steps = f"from step {late.steps[first].step} to {late.steps[end - 1].step}"
        return f"mostly rank {late.ranks[column]} {steps} (in {often} of {num} steps): {why}"
    return TURNS


def densest(flags: list[bool]) -> tuple[int, int]:
    """First and, not included, last of the part in which those that are set most outweigh the others, at CHRONIC."""
    best = reach = 0.0
    found, first = (0, 0), 0
    for at, is_set in enumerate(flags):
        if reach <= 0:
            reach, first = 0.0, at
        reach += 1 - CHRONIC if is_set else -CHRONIC
        if reach > best:
            best, found = reach, (first, at + 1)
    return found


def wilson(share: float, number: int) -> float:
    """Lower end of the 95 % interval of a share. Example: 35 of 35 give 0.901."""
    z2 = _Z * _Z / number
    return (share + z2 / 2 - _Z * sqrt(share * (1 - share) / number + z2 / (4 * number))) / (1 + z2)


def _part(found: Lateness, beyond: Floats, first: int, end: int) -> Finding | None:
    """The set that stands out in the steps from `first` to before `end`."""
    is_whole = end - first == len(beyond)
    if end - first < MIN_STEPS if is_whole else int(found.duration_ns[first:end].sum()) < MIN_PART_NS:
        return None
    part = beyond[first:end]
    order = np.argsort(-np.median(part, axis=0), kind="stable")
    floor = MIN_COST * float(found.duration_ns[first:end].mean())
    best: Finding | None = None
    for size in range(1, max(1, len(order) // 2) + 1):
        if float(np.median(part[:, order[size - 1]])) < max(floor, ALIKE * float(np.median(part[:, order[0]]))):
            break  # who is far less late than another costs nothing beside it
        item = _set(found, part, (first, end), order[:size])
        if item is not None and (best is None or item.ratio > best.ratio):
            best = item
    return best


def _set(found: Lateness, part: Floats, rows: tuple[int, int], columns: NDArray[np.intp]) -> Finding | None:
    columns = np.sort(columns)
    rest = np.sort(np.delete(part, columns, axis=1), axis=1)
    middle, latest = rest[:, (rest.shape[1] - 1) // 2], rest[:, -1]
    chosen = part[:, columns] - middle[:, None]
    if rest.shape[1] == 1:
        usual = DEVIATION * spread(chosen[:, 0])
    else:
        usual = float(np.quantile(latest - middle, QUANTILE, method="nearest"))
    margin = max(FACTOR * usual, float(found.error_ns or 0))
    late = (chosen > margin) & (part[:, columns] > latest[:, None])
    share = float(late.mean(axis=0).min())
    cost = int(np.maximum(0.0, part[:, columns].max(axis=1) - latest).sum())
    if wilson(share, len(part)) < CHRONIC or cost < MIN_COST * float(found.duration_ns[rows[0] : rows[1]].sum()):
        return None
    ratio = float(np.median(chosen, axis=0).min()) / max(usual, 1.0)
    return Finding(tuple(map(int, columns)), rows, _when(rows, len(found.steps)), late, share, cost, margin, ratio)


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
