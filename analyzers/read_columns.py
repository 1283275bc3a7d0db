"""Columns of large tables as numpy arrays: of sealed files, read straight into them, and of rows in memory.

Arrays have no nulls: NULL stands for none. Rows of one process stand together, as they follow each other in the files.
Only what differs is decoded: a column of which the footers tell that it holds one value, or none, becomes an array that
repeats one place in memory. About 7 ns a value.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rankscope.schema.arrow import arrow_schema

from .columns import NULL, Columns, numbered, repeated
from .intervals import Ints
from .listing import RunFile
from .place import Place

_FEW: Final = frozenset(
    {
        "src", "dst", "tag", "device_start_ns", "device_end_ns", "wait_device_start_ns", "wait_device_end_ns",
        "proc", "rank", "bytes_in", "state", "phase", "tier", "timing_source", "op", "stage", "role",
    }
)  # fmt: skip
"""Columns that may hold one value, or none, in whole files: only of these the footers are asked."""
_WHOLE: Final = 16
"""Bytes up to which a footer tells texts whole."""
_TOGETHER: Final = 250_000
"""Rows that are decoded at once, about: each call costs time, and values beside their copies cost memory."""
_KEYS: Final = ("incarnation", "proc")


def read_columns(place: Place, files: Sequence[RunFile], names: Sequence[str], table: str) -> Columns:
    """`names` and the incarnation of all rows of `files`, of one table.

    Columns that a file of an older minor version lacks are null. Raises OSError or pyarrow.ArrowException.
    """
    schema = arrow_schema(table)
    parts = [_Part(item, _footer(place, item)) for item in files]
    alike = _alike(parts, names)
    keys: dict[str, Ints] = {}
    if len({item.incarnation for item in files}) == 1:
        alike["incarnation"] = files[0].incarnation
    else:
        told = [NULL if item.incarnation is None else item.incarnation for item in files]
        keys["incarnation"] = np.repeat(np.array(told, np.int64), [item.num_rows for item in files])
    if "proc" in names and "proc" not in alike:
        procs = [_numbers(values) for _, values, _ in _pieces(place, parts, ["proc"])]
        keys["proc"] = np.concatenate([np.zeros(0, np.int64), *procs])
    found = _Found.of(sum(item.num_rows for item in files), keys)
    for name in (*names, "incarnation"):
        if name not in keys:
            found.make(name, pa.int64() if name == "incarnation" else schema.field(name).type, alike.get(name, ...))
    for name, values, first in _pieces(place, parts, [name for name in names if name not in {*alike, *keys}]):
        found.put(name, values, first)
    return found.columns()


def as_columns(rows: pa.Table) -> Columns:
    """Rows in memory as arrays."""
    found = _Found.of(rows.num_rows, {name: _numbers(rows.column(name)) for name in _KEYS if name in rows.column_names})
    for name in rows.column_names:
        if name not in found.numbers:
            found.make(name, rows.schema.field(name).type, ...)
            found.put(name, rows.column(name), 0)
    return found.columns()


class _Part(NamedTuple):
    """A file and its footer."""

    item: RunFile
    footer: pq.FileMetaData


class _Piece(NamedTuple):
    """Values of a column. first: the number of their first row among those of all files."""

    name: str
    values: pa.ChunkedArray
    first: int


@dataclass(frozen=True, slots=True)
class _Order:
    """Where rows go so that those of a process stand together. heads: the first row of each run of rows that stay
    together, and at the end the number of rows; places: where each run begins.
    """

    heads: list[int]
    places: list[int]

    @classmethod
    def of(cls, num_rows: int, keys: dict[str, Ints]) -> "_Order":
        """Processes in the order of their first rows."""
        is_head = np.zeros(max(0, num_rows - 1), np.bool_)
        for key in keys.values():
            is_head |= key[1:] != key[:-1]
        heads = np.concatenate([[0], np.flatnonzero(is_head) + 1])[: max(1, num_rows)]
        code = np.zeros(len(heads), np.int64)
        for key in keys.values() if num_rows else ():
            code = numbered(code * len(heads) + numbered(key[heads]))
        order = np.argsort(code, kind="stable")
        lengths = np.diff(np.append(heads, num_rows))
        places = np.empty(len(heads), np.int64)
        places[order] = np.cumsum(lengths[order]) - lengths[order]
        if (places == heads).all():
            heads = places = places[:1]
        return cls([*heads.tolist(), num_rows], places.tolist())

    def put(self, found: Ints, values: Ints, first: int) -> None:
        """Write the values of the rows from `first` on to their places."""
        low, end = first, first + len(values)
        run = bisect_right(self.heads, low) - 1
        while low < end:
            high = min(self.heads[run + 1], end)
            place = self.places[run] + low - self.heads[run]
            found[place : place + high - low] = values[low - first : high - first]
            low, run = high, run + 1


@dataclass(frozen=True, slots=True)
class _Found:
    """Columns that are being filled."""

    num_rows: int
    order: _Order
    numbers: dict[str, Ints]
    codes: dict[str, Ints]
    texts: dict[str, dict[str, int]]

    @classmethod
    def of(cls, num_rows: int, keys: dict[str, Ints]) -> "_Found":
        """keys: the columns that tell processes apart."""
        found = cls(num_rows, _Order.of(num_rows, keys), {}, {}, {})
        for name, values in keys.items():
            found.numbers[name] = np.empty(num_rows, np.int64)
            found.order.put(found.numbers[name], values, 0)
        return found

    def make(self, name: str, kind: pa.DataType, value: Any) -> None:
        """A column that holds one value or none (None), or is to be filled (...)."""
        if not _is_text(kind):
            self.numbers[name] = (np.empty(self.num_rows, np.int64) if value is ... else
                                  repeated(NULL if value is None else value, self.num_rows))  # fmt: skip
            return
        self.texts[name] = {}
        self.codes[name] = (np.empty(self.num_rows, np.int32) if value is ... else
                            repeated(self._code(name, value), self.num_rows, np.int32))  # fmt: skip

    def put(self, name: str, values: pa.ChunkedArray, first: int) -> None:
        """Write the values of the rows from `first` on."""
        for chunk in values.chunks:
            if name in self.codes:
                self.order.put(self.codes[name], self._coded(name, chunk), first)
            else:
                self.order.put(self.numbers[name], _whole(chunk), first)
            first += len(chunk)

    def columns(self) -> Columns:
        """What was found."""
        return Columns(self.num_rows, self.numbers, self.codes, {name: list(told) for name, told in self.texts.items()})

    def _coded(self, name: str, chunk: pa.Array) -> Ints:
        """Places in the column's texts, which stand in the order of their first use."""
        whole = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        codes = np.array([*(self._code(name, text) for text in whole.dictionary.to_pylist()), -1], np.int32)
        places = whole.indices.fill_null(len(whole.dictionary)) if whole.indices.null_count else whole.indices
        found: Ints = codes.take(places.to_numpy())
        return found

    def _code(self, name: str, text: str | None) -> int:
        told = self.texts[name]
        return -1 if text is None else told.setdefault(text, len(told))


def _numbers(values: pa.ChunkedArray) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *(_whole(chunk) for chunk in values.chunks)])


def _whole(chunk: pa.Array) -> Ints:
    """A column of numbers without nulls."""
    if chunk.null_count:
        chunk = pc.fill_null(chunk.cast(pa.int64()), NULL)
    found: Ints = chunk.to_numpy(zero_copy_only=False)
    return found


def _footer(place: Place, item: RunFile) -> pq.FileMetaData:
    with place.filesystem.open_input_file(item.path) as source:
        footer = pq.ParquetFile(source).metadata
    if footer.num_rows != item.num_rows:
        raise OSError(f"{item.path}: changed while it was read")
    return footer


def _alike(parts: Sequence[_Part], names: Sequence[str]) -> dict[str, Any]:
    """The columns that hold one value in all rows, or none."""
    found: dict[str, Any] = {}
    for name in names:
        value = _only(parts, name) if name in _FEW else ...
        if value is not ...:
            found[name] = value
    return found


def _only(parts: Sequence[_Part], name: str) -> Any:
    """The one value of a column; None if it holds nothing, ... if there are several or that is not told."""
    found: Any = ...
    for item, footer in parts:
        leaves = footer.schema.names
        leaf = leaves.index(name) if name in item.columns and name in leaves else None
        for number in range(footer.num_row_groups):
            value = None if leaf is None else _only_of_group(footer.row_group(number).column(leaf))
            if value is ... or found not in (..., value):
                return ...
            found = value
    return found


def _only_of_group(column: pq.ColumnChunkMetaData) -> Any:
    told = column.statistics
    if told is None or not told.has_null_count:
        return ...
    if told.null_count == column.num_values:
        return None
    if told.null_count or not told.has_min_max:
        return ...
    least = told.min
    if least != told.max or (isinstance(least, str) and len(least) > _WHOLE):
        return ...
    return least


def _pieces(place: Place, parts: Sequence[_Part], names: Sequence[str]) -> Iterator[_Piece]:
    """The columns of all files, some row groups at a time."""
    first = 0
    for item, footer in parts if names else ():
        there = [name for name in names if name in item.columns]
        absent = [name for name in names if name not in item.columns]
        yield from (_Piece(name, _nulls(item, name), first) for name in absent)
        with place.filesystem.open_input_file(item.path) as source:
            file = pq.ParquetFile(source, metadata=footer)
            for groups, low in _groups(footer) if there else ():
                rows = file.read_row_groups(groups, columns=there, use_threads=False)
                yield from (_Piece(name, rows.column(name), first + low) for name in there)
        first += item.num_rows


def _groups(footer: pq.FileMetaData) -> list[tuple[list[int], int]]:
    """Neighbouring row groups of about _TOGETHER rows together, and their first row."""
    found: list[tuple[list[int], int]] = []
    low = 0
    for number in range(footer.num_row_groups):
        if not found or low - found[-1][1] >= _TOGETHER:
            found.append(([], low))
        found[-1][0].append(number)
        low += footer.row_group(number).num_rows
    return found


def _nulls(item: RunFile, name: str) -> pa.ChunkedArray:
    kind = arrow_schema(item.table).field(name).type
    return pa.chunked_array([pa.nulls(item.num_rows, pa.string() if _is_text(kind) else kind)])


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind) or pa.types.is_string(kind))
