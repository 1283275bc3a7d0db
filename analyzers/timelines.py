"""Intervals of many processes at once: their times are put one after the other on one line.

A call of numpy takes 2 us however few values it gets, so processes of few rows are taken together, those of many by
themselves. No interval reaches into the next process, so that unions and their lengths are those of each process.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .columns import NULL, Flags, are_told, is_repeated
from .intervals import Ints, Union, union

_TOGETHER: Final = 100_000
"""Intervals from which a line is long enough."""
_LARGE: Final = 1 << 62
_NOWHERE: Final = (0, 0)
_NONE: Final = np.zeros(0, np.int64)

Places = Mapping[Any, tuple[int, int]]


class Told(NamedTuple):
    """Intervals of one kind. places: by key (a process), its first one and the one after its last; chosen: which count.

    Those that have no begin, or end before it, do not.
    """

    places: Places
    begins: Ints
    ends: Ints
    chosen: Flags | None = None


class Intervals(NamedTuple):
    """The intervals of one kind on a line. num: how many each key has."""

    begins: Ints
    ends: Ints
    num: Ints


@dataclass(frozen=True, slots=True)
class Line:
    """Some keys. bounds: where each begins, and the end of the last."""

    keys: tuple[Hashable, ...]
    bounds: Ints
    found: dict[str, Intervals]

    def union(self, kind: str) -> Union:
        """The union of the intervals of a kind."""
        return union(self.found[kind].begins, self.found[kind].ends)

    def lengths(self, of: Union) -> Ints:
        """The length of each key's part of a union."""
        edges = np.searchsorted(of.begins, self.bounds)
        found: Ints = of.before[edges[1:]] - of.before[edges[:-1]]
        return found

    def within(self, one: Union, other: Union) -> Ints:
        """The length of each key's part of an intersection; of `other` there should be fewer intervals."""
        before = np.zeros(len(other.begins) + 1, np.int64)
        np.cumsum(one.until(other.ends) - one.until(other.begins), out=before[1:])
        edges = np.searchsorted(other.begins, self.bounds)
        found: Ints = before[edges[1:]] - before[edges[:-1]]
        return found


def lines(keys: Sequence[Hashable], told: dict[str, Told]) -> Iterator[Line]:
    """All keys, in their order, some on each line."""
    counted = [item.places for item in told.values() if not is_repeated(item.begins)]
    chosen, num = list[Hashable](), 0
    for number, key in enumerate(keys):
        chosen.append(key)
        num += sum(high - low for low, high in (places.get(key, _NOWHERE) for places in counted))
        if num >= _TOGETHER or number == len(keys) - 1:
            yield from _lines(tuple(chosen), told)
            chosen, num = [], 0


def _lines(keys: tuple[Hashable, ...], told: dict[str, Told]) -> Iterator[Line]:
    """One line, or several if the times of all do not fit on one."""
    found = {kind: _intervals(keys, item) for kind, item in told.items()}
    low = min((int(item.begins.min()) for item in found.values() if len(item.begins)), default=0)
    high = max((int(item.ends.max()) for item in found.values() if len(item.ends)), default=0)
    length, num = high - low + 1, len(keys)
    if num == 1:
        yield Line(keys, np.array([low, high + 1]), found)
    elif length * num >= _LARGE:
        for half in (keys[: num // 2], keys[num // 2 :]):
            yield from _lines(half, told)
    else:
        bounds = np.arange(num + 1) * length
        yield Line(keys, bounds, {kind: _shifted(item, bounds[:-1] - low) for kind, item in found.items()})


def _intervals(keys: tuple[Hashable, ...], told: Told) -> Intervals:
    if is_repeated(told.begins) and len(told.begins) and told.begins[0] == NULL:
        return Intervals(_NONE, _NONE, np.zeros(len(keys), np.int64))
    places = [told.places.get(key, _NOWHERE) for key in keys]
    num = np.array([high - low for low, high in places])
    begins, ends = _taken(told.begins, places), _taken(told.ends, places)
    is_there = are_told(begins, ends)
    if told.chosen is not None:
        is_there &= _taken(told.chosen, places)
    if is_there.all():
        return Intervals(begins, ends, num)
    num = np.bincount(np.repeat(np.arange(len(keys)), num)[is_there], minlength=len(keys))
    return Intervals(begins[is_there], ends[is_there], num)


def _taken(values: NDArray[Any], places: list[tuple[int, int]]) -> NDArray[Any]:
    """The values at some places, nearly always neighbours."""
    if all(high == low for (_, high), (low, _) in pairwise(places)):
        return values[places[0][0] : places[-1][1]]
    return np.concatenate([values[low:high] for low, high in places])


def _shifted(found: Intervals, shift: Ints) -> Intervals:
    each = np.repeat(shift, found.num)
    return found._replace(begins=found.begins + each, ends=found.ends + each)
