"""Lengths of unions and intersections of intervals, with numpy: the same integers that a sweep in SQL gives.

Intervals are half open, [begin, end), in nanoseconds; end >= begin. A union is kept as `Union`: disjoint intervals in
order and how much of it lies before each, so that the part of it within any [a, b) costs two searches.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Union:
    """Disjoint intervals in order. before: the length of all intervals before each, and of all at the end."""

    begins: Ints
    ends: Ints
    before: Ints

    @property
    def length(self) -> int:
        """The length of the union."""
        return int(self.before[-1])

    def until(self, times: Ints) -> Ints:
        """The length of the part of the union before each of `times`. Example: [0, 2), [5, 9) until 6: 3."""
        place = np.searchsorted(self.begins, times, side="right")
        last = np.maximum(place - 1, 0)
        within = np.minimum(times - self.begins[last], self.ends[last] - self.begins[last]) if len(self.begins) else 0
        return np.where(place > 0, self.before[last] + within, 0).astype(np.int64)


def union(begins: Ints, ends: Ints) -> Union:
    """The union of intervals in any order. Example: [0, 3), [2, 4), [6, 7) are [0, 4), [6, 7).

    A gap is where as many have ended as begun, so begins and ends are each sorted by themselves: they nearly are.
    """
    begins, ends = _sorted(begins), _sorted(ends)
    is_gap = begins[1:] > ends[:-1]
    if is_gap.all():
        starts, stops = begins, ends
    else:
        gaps = np.flatnonzero(is_gap)
        starts = np.concatenate([begins[:1], begins[gaps + 1]])
        stops = np.concatenate([ends[gaps], ends[-1:]])
    before = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(stops - starts, out=before[1:])
    return Union(starts, stops, before)


def _sorted(values: Ints) -> Ints:
    return np.sort(values, kind="stable") if (values[1:] < values[:-1]).any() else values


def both(first: Union, second: Union) -> Union:
    """The intersection of two unions."""
    if not len(first.begins) or not len(second.begins):
        return union(np.zeros(0, np.int64), np.zeros(0, np.int64))
    begins = np.concatenate([first.begins, second.begins])
    order = np.argsort(begins, kind="stable")  # merges two sorted runs
    is_first = order < len(first.begins)
    begins, place_one = begins[order], np.cumsum(is_first) - 1
    place_two = np.arange(len(begins)) - place_one - 1
    ends = np.minimum(first.ends[np.maximum(place_one, 0)], second.ends[np.maximum(place_two, 0)])
    is_inside = (place_one >= 0) & (place_two >= 0) & (ends > begins)
    return union(begins[is_inside], ends[is_inside])


def segments(codes: Ints) -> list[tuple[int, int, int]]:
    """(code, first row, row after the last) of each run of equal codes."""
    edges = [*heads(codes).tolist(), len(codes)]
    return [(int(codes[low]), low, high) for low, high in pairwise(edges)]


def bundles(ends: Iterable[int], least: int) -> list[tuple[int, int]]:
    """First row and the row after the last of neighbouring runs together, of `least` rows or more but for the last.

    ends: the row after the last of each run.
    """
    cuts, last = [0], 0
    for last in ends:
        if last - cuts[-1] >= least:
            cuts.append(last)
    return list(pairwise([*cuts, last] if last > cuts[-1] else cuts))


def heads(values: Ints) -> Ints:
    """The first row of each run of equal values."""
    found: Ints = np.concatenate([[0], np.flatnonzero(values[1:] != values[:-1]) + 1])[: len(values)]
    return found
