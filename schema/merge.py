"""One rule for rows that were written more than once, used by sealing, recovery and the reader.

Facts: of the rows with one key (`Table.key`) the last counts. Entities become known bit by bit (a process row is
written when it joins and again when it ends): of each column the last value that is not null counts. Loads pyarrow.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .arrow import rows_to_table
from .tables import TABLES


def merge_rows(data: pa.Table, table: str) -> pa.Table:
    """`data`, in the order of writing, with one row per key; a table without a key is returned as it is."""
    declared = TABLES[table]
    if not declared.key or data.num_rows < 2:
        return data
    if declared.table_class == "entity":
        return _last_values(data, table)
    return data.take(pa.array(last_positions(data, declared.key)))


def merge_journalled(data: pa.Table, table: str) -> pa.Table:
    """`data`, in the order of writing, with the last of the rows that a journal told more than once (a checkpoint's).

    Only tables of journal rows with a record number are touched; rows without one are all kept.
    """
    declared = TABLES[table]
    if declared.ring_kind or declared.key != ("proc", "record") or data.num_rows < 2:
        return data
    stands = np.zeros(data.num_rows, np.bool_)
    stands[last_positions(data, declared.key)] = True
    if data.column("record").null_count:
        stands |= data.column("record").is_null().to_numpy()
    return data if stands.all() else data.filter(pa.array(stands))


def last_positions(data: pa.Table, key: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """Ascending positions of the last row of each key."""
    codes = [_codes(data.column(name)) for name in key]
    order = np.lexsort([np.arange(data.num_rows), *reversed(codes)])
    differs = np.zeros(max(len(order) - 1, 0), np.bool_)
    for code in codes:
        differs |= code[order][1:] != code[order][:-1]
    found: npt.NDArray[np.int64] = np.sort(order[np.append(differs, True)]) if len(order) else order
    return found


def sort_rows(data: pa.Table, table: str) -> pa.Table:
    """`data` in the order of a sealed file (`Table.sort`)."""
    order = TABLES[table].sort
    if not order or data.num_rows < 2 or _is_sorted(data, order):
        return data
    import pyarrow.compute as pc

    return data.take(pc.sort_indices(data, sort_keys=[(name, "ascending") for name in order]))


def _is_sorted(data: pa.Table, order: tuple[str, ...]) -> bool:
    """Rows of one process mostly are; looking costs a hundredth of sorting and of loading what sorts. Nulls last."""
    columns = [data.column(name) for name in order]
    if not all(column.type == pa.int64() for column in columns):
        return False
    is_level = np.ones(data.num_rows - 1, np.bool_)
    for column in columns:
        values = _filled(column, np.iinfo(np.int64).max)
        if (is_level & (values[1:] < values[:-1])).any():
            return False
        is_level &= values[1:] == values[:-1]
    return True


def _filled(column: pa.ChunkedArray, null: int) -> npt.NDArray[np.int64]:
    """The values of a column of 64 bits, `null` for null; by its buffers, since methods load pyarrow.compute, 70 ms."""
    found = [np.zeros(0, np.int64)]
    for chunk in column.chunks:
        there, values = chunk.buffers()
        rows = slice(chunk.offset, chunk.offset + len(chunk))
        told = np.frombuffer(values, np.int64)[rows]
        if chunk.null_count:
            is_there = np.unpackbits(np.frombuffer(there, np.uint8), bitorder="little")[rows]
            told = np.where(is_there, told, null)
        found.append(told)
    return np.concatenate(found)


def _codes(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    if column.type == pa.int64():
        return _filled(column, -1)
    if pa.types.is_integer(column.type):
        return column.fill_null(-1).to_numpy().astype(np.int64)  # type: ignore[no-any-return]
    plain = column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
    indices = pa.array(plain.to_pylist(), pa.string()).dictionary_encode().indices.fill_null(-1)
    return indices.to_numpy(zero_copy_only=False).astype(np.int64)  # type: ignore[no-any-return]


def _last_values(data: pa.Table, table: str) -> pa.Table:
    found: dict[tuple[object, ...], dict[str, object]] = {}
    for row in data.to_pylist():
        known = found.setdefault(tuple(row[name] for name in TABLES[table].key), {})
        known.update({name: value for name, value in row.items() if value is not None})
    return rows_to_table(table, list(found.values()))
