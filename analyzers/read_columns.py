"""Columns of large tables as numpy arrays: of sealed files, read straight into them, and of rows in memory.

Arrays have no nulls: NULL stands for none. Of a file only what differs is decoded: a column of which the footer tells
that it holds one value, or none, is filled in. About 10 ns a value.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rankscope.schema.arrow import arrow_schema

from .columns import NULL, Columns
from .intervals import Ints
from .listing import RunFile
from .place import Place

_FEW: Final = frozenset(
    {
        "src", "dst", "tag", "device_start_ns", "device_end_ns", "wait_device_start_ns", "wait_device_end_ns",
        "proc", "rank", "bytes_in", "state", "phase", "tier", "timing_source", "op", "stage", "role",
    }
)  # fmt: skip
"""Columns that may hold one value, or none, in a whole row group: only of these the footer is asked."""
_WHOLE: Final = 16
"""Bytes up to which a footer tells texts whole."""


def read_columns(place: Place, files: Sequence[RunFile], names: Sequence[str]) -> Columns:
    """`names` and the incarnation of all rows of `files`, of one table, in their order.

    Columns that a file of an older minor version lacks are null. Raises OSError or pyarrow.ArrowException.
    """
    schema = arrow_schema(files[0].table)
    texts = [name for name in names if _is_text(schema.field(name).type)]
    num_rows = sum(item.num_rows for item in files)
    numbers = {name: np.empty(num_rows, np.int64) for name in (*names, "incarnation") if name not in texts}
    codes = {name: _Codes(np.empty(num_rows, np.int32), {}) for name in texts}
    low = 0
    for item in files:
        high = low + item.num_rows
        numbers["incarnation"][low:high] = NULL if item.incarnation is None else item.incarnation
        for name, values, first, last in _read(place, item, names):
            if name in codes:
                codes[name].put(values, low + first, low + last)
            else:
                _put(numbers[name], values, low + first, low + last)
        low = high
    return _columns(num_rows, numbers, codes)


def as_columns(rows: pa.Table) -> Columns:
    """Rows in memory as arrays."""
    numbers, codes = {}, {}
    for name in rows.column_names:
        if _is_text(rows.column(name).type):
            codes[name] = _Codes(np.empty(rows.num_rows, np.int32), {})
            codes[name].put(rows.column(name), 0, rows.num_rows)
        else:
            numbers[name] = np.empty(rows.num_rows, np.int64)
            _put(numbers[name], rows.column(name), 0, rows.num_rows)
    return _columns(rows.num_rows, numbers, codes)


@dataclass(frozen=True, slots=True)
class _Codes:
    """A text column: `found` is filled with places in `texts`, in the order of their first use."""

    found: Ints
    texts: dict[str, int]

    def put(self, values: Any, low: int, high: int) -> None:
        """values: a column of texts, one text for all rows, or None."""
        if not isinstance(values, pa.ChunkedArray):
            self.found[low:high] = -1 if values is None else self._code(values)
            return
        for chunk in values.chunks:
            whole = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
            codes = np.array([-1 if text is None else self._code(text) for text in whole.dictionary.to_pylist()] + [-1])
            places = whole.indices.fill_null(len(whole.dictionary)) if whole.indices.null_count else whole.indices
            np.take(codes.astype(np.int32), places.to_numpy(), out=self.found[low : low + len(chunk)])
            low += len(chunk)

    def _code(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))


def _columns(num_rows: int, numbers: dict[str, Ints], codes: dict[str, _Codes]) -> Columns:
    found = {name: column.found for name, column in codes.items()}
    return Columns(num_rows, numbers, found, {name: list(column.texts) for name, column in codes.items()})


def _put(found: Ints, values: Any, low: int, high: int) -> None:
    """values: a column of numbers, one number for all rows, or None."""
    if not isinstance(values, pa.ChunkedArray):
        found[low:high] = NULL if values is None else values
        return
    for chunk in values.chunks:
        if chunk.null_count == len(chunk):
            found[low : low + len(chunk)] = NULL
        else:
            whole = pc.fill_null(chunk.cast(pa.int64()), NULL) if chunk.null_count else chunk
            found[low : low + len(chunk)] = whole.to_numpy(zero_copy_only=False)
        low += len(chunk)


def _read(place: Place, item: RunFile, names: Sequence[str]) -> Iterator[tuple[str, Any, int, int]]:
    """Each column of each row group of a file: all of its values, its only value, or None for nothing but nulls; and
    the first row of the group and the row after its last.
    """
    with place.filesystem.open_input_file(item.path) as source:
        file = pq.ParquetFile(source)
        footer = file.metadata
        if footer.num_rows != item.num_rows:
            raise OSError(f"{item.path}: changed while it was read")
        leaves = {name: leaf for leaf, name in enumerate(footer.schema.names)}
        few = {name: leaves[name] for name in names if name in _FEW and name in leaves}
        absent = {name: None for name in names if name not in item.columns}
        low = 0
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            high = low + group.num_rows
            alike = {name: _only(group.column(leaf)) for name, leaf in few.items()}
            known = absent | {name: value for name, value in alike.items() if value is not ...}
            rest = [name for name in names if name not in known]
            rows = file.read_row_group(number, columns=rest, use_threads=False)
            yield from ((name, value, low, high) for name, value in known.items())
            yield from ((name, rows.column(name), low, high) for name in rest)
            low = high


def _only(column: pq.ColumnChunkMetaData) -> Any:
    """The one value of a column; None if it holds nothing, ... if there are several or that is not told."""
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


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind) or pa.types.is_string(kind))
