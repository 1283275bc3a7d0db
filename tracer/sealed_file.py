"""Writing sealed files: Parquet with zstd, statistics, and encodings chosen by what a column holds.

Times and record numbers rise inside a process, so their differences are small: delta encoding. Floats: bytes split by
position. The rest repeats: dictionaries. `benchmarks/storage.py` measures the bytes per row.
"""

import contextlib
import hashlib
import os
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from rankscope.schema import paths
from rankscope.schema.arrow import arrow_schema
from rankscope.schema.declare import Column
from rankscope.schema.index import IndexEntry
from rankscope.schema.tables import TABLES

from .rundir import private_file, remove_if_there

ROW_GROUP_ROWS: Final = 32_768
"""Rows of one row group: what the agent keeps in memory of a table before it writes them."""
_LEVEL: Final = 1
_RISING: Final = ("record", "seq")


class ParquetFile:
    """A sealed file in the making, at a path where no reader looks."""

    def __init__(self, path: str, table: str, replaces: list[str]) -> None:
        self.path = path
        private_file(path).close()
        self._sink = pa.OSFile(path, "wb")
        dictionaries, encodings = _encodings(table)
        self._writer = pq.ParquetWriter(
            self._sink, arrow_schema(table), compression="zstd", compression_level=_LEVEL, version="2.6",
            use_dictionary=dictionaries, column_encoding=encodings, write_statistics=True,
        )  # fmt: skip
        if replaces:
            self._writer.add_key_value_metadata({paths.REPLACES: ",".join(replaces)})

    def add(self, rows: pa.Table) -> None:
        """Append one row group."""
        self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))

    def close(self) -> None:
        """Write the footer."""
        try:
            self._writer.close()
        finally:
            self._sink.close()

    def abandon(self) -> None:
        """Delete it, whatever state it is in."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self.close()
        with contextlib.suppress(OSError):
            remove_if_there(self.path)


def describe(staged: str, name: str) -> IndexEntry:
    """The index entry of the file at `staged`, which will be called `name`."""
    with pa.OSFile(staged, "rb") as file:
        found = read_footer(file)
    first, last = record_range(found)
    return IndexEntry(name, found.num_rows, os.stat(staged).st_size, file_digest(staged), first, last)


def read_footer(file: Any) -> pq.FileMetaData:
    """The metadata of a Parquet file. Raises pyarrow.ArrowInvalid or OSError for what is none."""
    return pq.ParquetFile(file).metadata


def record_range(metadata: pq.FileMetaData) -> tuple[int | None, int | None]:
    """Lowest and highest `record` by the statistics; (None, None) where there is no such column or value."""
    found = []
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            column = metadata.row_group(group).column(index)
            if column.path_in_schema == "record" and column.statistics is not None and column.statistics.has_min_max:
                found.append((column.statistics.min, column.statistics.max))
    return (min(low for low, _ in found), max(high for _, high in found)) if found else (None, None)


def file_digest(path: str) -> str:
    """The digest of a local file, as the index holds it."""
    with open(path, "rb") as file:
        return stream_digest(file)


def stream_digest(file: Any) -> str:
    """The digest of what an open file holds from its position on."""
    digest = hashlib.blake2b(digest_size=16)
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return f"blake2b:{digest.hexdigest()}"


def _encodings(table: str) -> tuple[list[str], dict[str, str]]:
    dictionaries, encodings = [], {}
    for column in TABLES[table].columns:
        if encoding := _encoding(column):
            encodings[column.name] = encoding
        elif not column.type.startswith("list"):
            dictionaries.append(column.name)
    return dictionaries, encodings


def _encoding(column: Column) -> str:
    if column.type == "int64" and (column.name in _RISING or column.name.endswith("_ns")):
        return "DELTA_BINARY_PACKED"
    return "BYTE_STREAM_SPLIT" if column.type == "float64" else ""
