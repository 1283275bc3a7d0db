"""Rows of a part as numpy arrays, and the orders in which they are gone through."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rankscope.schema.arrow import arrow_schema

from .intervals import Ints, bundles

NULL: Final = int(np.iinfo(np.int64).min)
"""Stands for null in an array of numbers; below every number that occurs."""
_DIGIT: Final = 16
"""Bits that are sorted at once: numpy sorts 16-bit integers by counting."""
_MOST_DIGITS: Final = 3
_PIECE: Final = 50_000
"""Rows of a piece: a column of them has 400 KB."""

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Columns:
    """Rows as arrays, those of a process together. numbers: by column; codes: of text columns, indices into `texts`, -1
    for null.
    """

    num_rows: int
    numbers: dict[str, Ints]
    codes: dict[str, Ints]
    texts: dict[str, list[str]]

    def has(self, names: Sequence[str]) -> bool:
        """All of `names` are there."""
        return all(name in self.numbers or name in self.codes for name in names)

    def is_any(self, column: str, texts: Sequence[str]) -> Flags:
        """Which rows hold one of `texts` in a text column."""
        chosen = np.array([text in texts for text in self.texts[column]] + [False], np.bool_)
        codes = self.codes[column]
        return repeated(chosen[codes[0]], len(codes), np.bool_) if is_repeated(codes) and len(codes) else chosen[codes]

    def taken(self, places: Ints, names: Sequence[str]) -> dict[str, pa.Array]:
        """Columns `names` of the rows at `places`, of the types of table collective."""
        kinds, found = arrow_schema("collective"), dict[str, pa.Array]()
        for name in names:
            if name in self.codes:
                found[name] = coded_text(self.codes[name][places], self.texts[name])
            else:
                kind = kinds.field(name).type if name in kinds.names else pa.int64()
                found[name] = nullable(self.numbers[name][places], kind)
        return found

    @cached_property
    def runs(self) -> list[tuple[int, int]]:
        """First row of each process and incarnation, and the row after its last: their rows stand together."""
        if not self.num_rows:
            return []
        proc, incarnation = self.numbers["proc"], self.numbers["incarnation"]
        is_head = proc[1:] != proc[:-1]
        if not is_repeated(incarnation):
            is_head |= incarnation[1:] != incarnation[:-1]
        return list(pairwise([0, *(np.flatnonzero(is_head) + 1).tolist(), self.num_rows]))

    @property
    def heads(self) -> Ints:
        """The first row of each."""
        return np.array([low for low, _ in self.runs], np.int64)

    @cached_property
    def places(self) -> dict[tuple[int, int], tuple[int, int]]:
        """First row and the one after the last by (incarnation, process)."""
        return {self.process(low): (low, high) for low, high in self.runs}

    def process(self, row: int) -> tuple[int, int]:
        """(incarnation, process) of a row."""
        return int(self.numbers["incarnation"][row]), int(self.numbers["proc"][row])

    @cached_property
    def processes(self) -> tuple[Ints, Ints]:
        """(code of each row's process and incarnation, [[incarnation, proc] by code])."""
        heads = self.heads
        pairs = np.stack([self.numbers[name][heads] for name in ("incarnation", "proc")], axis=1)
        return np.repeat(np.arange(len(heads)), [high - low for low, high in self.runs]), pairs

    def where(self, chosen: Flags) -> "Columns":
        """Some of the rows."""
        if chosen.all():
            return self
        places = np.flatnonzero(chosen)
        numbers, codes = ({name: values[places] for name, values in of.items()} for of in (self.numbers, self.codes))
        return Columns(len(places), numbers, codes, self.texts)

    def pieces(self) -> "list[Columns]":
        """The rows of some processes at a time, few enough that what is computed of them stays near the processor."""
        return [self._within(low, high) for low, high in bundles((end for _, end in self.runs), _PIECE)] or [self]

    def _within(self, low: int, high: int) -> "Columns":
        numbers, codes = ({name: values[low:high] for name, values in of.items()} for of in (self.numbers, self.codes))
        return Columns(high - low, numbers, codes, self.texts)

    @cached_property
    def lanes(self) -> Ints:
        """A code of each row's process, incarnation and group: code of the process times `num_groups`, plus that of
        the group, with none first.
        """
        return self.processes[0] * self.num_groups + self.codes["group_id"] + 1

    @property
    def num_groups(self) -> int:
        """Groups, and one more for none."""
        return len(self.texts["group_id"]) + 1

    @cached_property
    def by_lane(self) -> Ints:
        """The order of rows by lane; those of a lane as they stand."""
        codes = self.codes["group_id"]
        if is_repeated(codes):
            return np.arange(self.num_rows)
        order = np.empty(self.num_rows, np.int64)
        for low, high in self.runs:
            order[low:high] = stable_order(codes[low:high])
            order[low:high] += low
        return order


def joined(values: Iterable[Ints]) -> Ints:
    """Whole numbers one after the other; there may be none."""
    return np.concatenate([np.zeros(0, np.int64), *values])


def repeated(value: int, num_rows: int, kind: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
    """An array that holds one value, as one place in memory: not to be written to."""
    return np.broadcast_to(np.array(value, kind), num_rows)


def is_repeated(values: Ints) -> bool:
    """All values are the same, as `repeated` makes them: told without looking at them."""
    return values.strides == (0,)


def is_null(values: Ints) -> Flags:
    """Which values are not known."""
    return repeated(values[0] == NULL, len(values), np.bool_) if is_repeated(values) and len(values) else values == NULL


def are_told(begins: Ints, ends: Ints) -> Flags:
    """Which intervals have a begin, and no end before it."""
    return ~is_null(begins) & (ends >= begins)


def stable_order(key: Ints) -> Ints:
    """Ascending order of keys, equal ones as they stand. Of keys that lie close by counting, 20 ns a row and digit."""
    low = int(key.min()) if len(key) else 0
    num_bits = (int(key.max()) - low).bit_length() if len(key) else 0
    if num_bits > _DIGIT * _MOST_DIGITS:
        return np.argsort(key, kind="stable")
    raised = key if low >= 0 and int(key.max(initial=0)).bit_length() <= num_bits else key - low
    order: Ints = np.argsort(raised.astype(np.uint16), kind="stable")  # keeps the lowest bits
    for shift in range(_DIGIT, num_bits, _DIGIT):
        order = order.take(np.argsort((raised.take(order) >> shift).astype(np.uint16), kind="stable"))
    return order


def lies_close(key: Ints) -> bool:
    """Keys of at least 0 among which counting every possible one costs less than sorting them."""
    return int(key.max(initial=0)) <= max(4 * len(key), 1 << 20)


def numbered(values: Ints) -> Ints:
    """A number from 0 for each distinct value, in the order of their first use."""
    found: Ints = pa.array(values).dictionary_encode().indices.to_numpy().astype(np.int64)
    return found


def coded_text(codes: Ints, texts: Sequence[str]) -> pa.Array:
    """A column of texts from their codes; -1 is null."""
    places = pa.array(codes.astype(np.int32), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(places, pa.array(texts or [""], pa.string()))  # DuckDB 1.1 crashes on none


def nullable(values: Ints, kind: pa.DataType | None = None) -> pa.Array:
    """A column of numbers; NULL is null."""
    return pa.array(values, pa.int64(), mask=values == NULL).cast(kind or pa.int64())


def difference(begins: Ints, ends: Ints) -> Ints:
    """ends - begins; NULL where one is not known."""
    found = ends - begins
    if len(found) and (begins.min() == NULL or ends.min() == NULL):
        found[(begins == NULL) | (ends == NULL)] = NULL
    return found
