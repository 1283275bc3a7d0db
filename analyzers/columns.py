"""Rows of a part as numpy arrays, and the orders in which they are gone through."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rankscope.schema.arrow import arrow_schema

from .intervals import Ints

NULL: Final = int(np.iinfo(np.int64).min)
"""Stands for null in an array of numbers; below every number that occurs."""
_DIGIT: Final = 16
"""Bits that are sorted at once: numpy sorts 16-bit integers by counting."""
_MOST_DIGITS: Final = 3

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Columns:
    """Rows as arrays. numbers: by column; codes: of text columns, indices into `texts`, -1 for null."""

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
        return chosen[self.codes[column]]

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
    def processes(self) -> tuple[Ints, Ints]:
        """(code of each row's process and incarnation, [[incarnation, proc] by code]).

        Rows come in runs of one process, so only the heads of the runs are compared.
        """
        proc, incarnation = self.numbers["proc"], self.numbers["incarnation"]
        changes = np.flatnonzero((proc[1:] != proc[:-1]) | (incarnation[1:] != incarnation[:-1])) + 1
        heads = np.concatenate([[0], changes]).astype(np.int64)[: max(1, self.num_rows)]
        if not self.num_rows:
            return np.zeros(0, np.int64), np.zeros((0, 2), np.int64)
        pairs, codes = np.unique(np.stack([incarnation[heads], proc[heads]], axis=1), axis=0, return_inverse=True)
        lengths = np.diff(np.append(heads, self.num_rows))
        return np.repeat(codes.reshape(-1).astype(np.int64), lengths), pairs

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
        return stable_order(self.lanes)


def stable_order(key: Ints) -> Ints:
    """Ascending order of keys, equal ones as they stand. Of keys that lie close by counting, 20 ns a row and digit."""
    low = int(key.min()) if len(key) else 0
    num_bits = (int(key.max()) - low).bit_length() if len(key) else 0
    if num_bits > _DIGIT * _MOST_DIGITS:
        return np.argsort(key, kind="stable")
    raised = key if low >= 0 and int(key.max(initial=0)).bit_length() <= num_bits else key - low
    order: Ints = np.argsort(raised.astype(np.uint16), kind="stable")  # keeps the lowest bits
    for shift in range(_DIGIT, num_bits, _DIGIT):
        order = order[np.argsort((raised[order] >> shift).astype(np.uint16), kind="stable")]
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
    return pa.DictionaryArray.from_arrays(places, pa.array(texts, pa.string()))


def nullable(values: Ints, kind: pa.DataType | None = None) -> pa.Array:
    """A column of numbers; NULL is null."""
    return pa.array(values, pa.int64(), mask=values == NULL).cast(kind or pa.int64())


def difference(begins: Ints, ends: Ints) -> Ints:
    """ends - begins; NULL where one is not known."""
    found = ends - begins
    if len(found) and (begins.min() == NULL or ends.min() == NULL):
        found[(begins == NULL) | (ends == NULL)] = NULL
    return found
