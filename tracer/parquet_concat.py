"""Joining sealed files without decoding them: the pages are copied, and the footers become one.

An hour of a busy node is tens of millions of rows; decoding and encoding them again would take a minute at the end of
the job, copying their bytes takes as long as the disk needs. Only files of one schema and without page indexes or bloom
filters (ours) can be joined. Source: parquet.thrift (FileMetaData, RowGroup, ColumnChunk, ColumnMetaData).
"""

import struct
from typing import Any, Final

from .rundir import private_file
from .thrift_compact import BINARY, I16, I64, LIST, STRUCT, Reader, Struct, Value, encode

_MAGIC: Final = b"PAR1"
_CHUNK: Final = 1 << 20
_SCHEMA, _NUM_ROWS, _ROW_GROUPS, _KEY_VALUES = 2, 3, 4, 5
_GROUP_COLUMNS, _GROUP_OFFSET, _GROUP_ORDINAL = 1, 5, 7
_CHUNK_OFFSET, _CHUNK_META = 2, 3
_PAGE_OFFSETS: Final = (9, 10, 11)
"""data_page_offset, index_page_offset, dictionary_page_offset of ColumnMetaData."""
_UNSUPPORTED: Final = (4, 6, 8)
"""offset_index_offset, column_index_offset, crypto_metadata of ColumnChunk."""


class CannotJoin(Exception):
    """The files have different schemas, or something in them that is not copied."""


def concatenate(sources: list[Any], target: str, extra: dict[str, str]) -> None:
    """Write the row groups of the open files `sources`, in order, to a new file `target`.

    extra: entries for the file's metadata (others are kept from the first file). Raises CannotJoin, OSError.
    """
    footers = [_footer(source) for source in sources]
    if any(footer[_SCHEMA] != footers[0][0][_SCHEMA] for footer, _ in footers):
        raise CannotJoin("the schemas differ")
    with private_file(target) as out:
        out.write(_MAGIC)
        groups: list[Struct] = []
        for source, (footer, end) in zip(sources, footers, strict=True):
            shift = out.tell() - len(_MAGIC)
            _copy(source, end, out)
            groups += [_shifted(group, shift) for group in footer[_ROW_GROUPS].value[1]]
        data = encode(_joined(footers[0][0], groups, sum(footer[_NUM_ROWS].value for footer, _ in footers), extra))
        out.write(data + struct.pack("<I", len(data)) + _MAGIC)


def _footer(source: Any) -> tuple[Struct, int]:
    """The footer of an open Parquet file, and the position where the pages end."""
    size = source.seek(0, 2)
    source.seek(size - 8)
    tail = source.read(8)
    if len(tail) < 8 or tail[4:] != _MAGIC:
        raise CannotJoin("not a Parquet file")
    end = size - 8 - struct.unpack("<I", tail[:4])[0]
    source.seek(end)
    try:
        return Reader(source.read(size - 8 - end)).struct(), end
    except (IndexError, ValueError) as error:
        raise CannotJoin(f"its footer cannot be read: {error}") from error


def _copy(source: Any, end: int, out: Any) -> None:
    source.seek(len(_MAGIC))
    left = end - len(_MAGIC)
    while left > 0:
        data = source.read(min(_CHUNK, left))
        if not data:
            raise CannotJoin("a file is shorter than its footer says")
        out.write(data)
        left -= len(data)


def _shifted(group: Struct, shift: int) -> Struct:
    columns = [_shifted_chunk(chunk, shift) for chunk in group[_GROUP_COLUMNS].value[1]]
    moved = {**group, _GROUP_COLUMNS: Value(LIST, (STRUCT, columns))}
    if _GROUP_OFFSET in group:
        moved[_GROUP_OFFSET] = Value(I64, group[_GROUP_OFFSET].value + shift)
    return moved


def _shifted_chunk(chunk: Struct, shift: int) -> Struct:
    if any(field in chunk for field in _UNSUPPORTED):
        raise CannotJoin("a file has a page index or is encrypted")
    meta = dict(chunk[_CHUNK_META].value)
    for field in _PAGE_OFFSETS:
        if field in meta:
            meta[field] = Value(I64, meta[field].value + shift)
    moved = {**chunk, _CHUNK_META: Value(STRUCT, meta)}
    if chunk[_CHUNK_OFFSET].value:
        moved[_CHUNK_OFFSET] = Value(I64, chunk[_CHUNK_OFFSET].value + shift)
    return moved


def _joined(first: Struct, groups: list[Struct], num_rows: int, extra: dict[str, str]) -> Struct:
    for ordinal, group in enumerate(groups):
        if _GROUP_ORDINAL in group:
            group[_GROUP_ORDINAL] = Value(I16, min(ordinal, 32_767))
    entries = [entry for entry in first[_KEY_VALUES].value[1] if entry[1].value.decode() not in extra]
    entries += [{1: Value(BINARY, key.encode()), 2: Value(BINARY, text.encode())} for key, text in extra.items()]
    return {**first, _NUM_ROWS: Value(I64, num_rows), _ROW_GROUPS: Value(LIST, (STRUCT, groups)),
            _KEY_VALUES: Value(LIST, (STRUCT, entries))}  # fmt: skip
