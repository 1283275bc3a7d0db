"""Segments: the rows of one table, incarnation and node on their way from memory to a sealed file.

Every flush appends them to a stream in the run directory, so that nothing older than two seconds hangs on this machine.
Rows that are final also gather into row groups of a Parquet file, which appears under its name when the segment is
sealed, every ten minutes and at the end. Rows that may still change are in the stream only: what is superseded never
reaches a sealed file. Memory: one row group a table.
"""

from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from rankscope.schema import paths
from rankscope.schema.arrow import conform
from rankscope.schema.index import IndexEntry
from rankscope.schema.merge import merge_journalled, merge_rows, sort_rows

from .index import relative
from .rundir import RunDir
from .sealed_file import ROW_GROUP_ROWS, ParquetFile, describe
from .stream_file import StreamFile

SEAL_NS: Final = 600_000_000_000
"""A segment is sealed when it is this old."""


class Segment:
    """One fact table, incarnation and node, from a first row to a sealed file.

    streams: where the stream is appended (the run directory, or the spool). sealed: where the file will appear; None
    while it cannot be reached, then there is only the stream.
    """

    def __init__(self, table: str, incarnation: int, node: str, k: str, opened_ns: int) -> None:
        self.table, self.incarnation, self.node, self.k, self.opened_ns = table, incarnation, node, k, opened_ns
        self.num_final = 0
        self._stream: StreamFile | None = None
        self._file: ParquetFile | None = None
        self._gathered: list[pa.Table] = []
        self._num_gathered = 0

    @property
    def stream_name(self) -> str:
        """The stream's name in the run directory, or in the spool."""
        folder = relative(paths.live_folder("", self.node))
        return f"{folder}/{paths.stream_name(self.table, self.incarnation, self.k)}"

    def append(self, streams: RunDir, final: list[pa.Table], provisional: list[pa.Table]) -> None:
        """Bring rows to the stream. Raises OSError; the segment must then be abandoned."""
        if self._stream is None:
            self._stream = StreamFile(streams.local_path(self.stream_name), self.table)
        rows = pa.concat_tables([*provisional, *final]).unify_dictionaries()
        self._stream.append(rows)

    def gather(self, sealed: RunDir, final: list[pa.Table], spool: str) -> None:
        """Keep final rows for the sealed file; writes a row group when there are enough. Raises OSError."""
        self._gathered += final
        added = sum(table.num_rows for table in final)
        self._num_gathered += added
        self.num_final += added
        if self._num_gathered >= ROW_GROUP_ROWS:
            self._write_group(sealed, spool)

    def seal(self, sealed: RunDir, spool: str) -> IndexEntry | None:
        """Let the sealed file appear; None if there was no final row. The stream stays, for `close`. Raises OSError."""
        if self._num_gathered:
            self._write_group(sealed, spool)
        if self._file is None:
            return None
        self._file.close()
        name = sealed_name(self.table, self.incarnation, self.node, self.k)
        entry = describe(self._file.path, name)
        sealed.publish(self._file.path, name)
        self._file = None
        return entry

    def close(self) -> None:
        """Close the stream, and drop a file that is not sealed. Raises nothing: both may be beyond reach."""
        try:
            if self._stream is not None:
                self._stream.close()
            if self._file is not None:
                self._file.abandon()
        except OSError:
            pass
        self._stream, self._file, self._gathered = None, None, []

    def _write_group(self, sealed: RunDir, spool: str) -> None:
        if self._file is None:
            name = sealed_name(self.table, self.incarnation, self.node, self.k)
            self._file = ParquetFile(sealed.staging_path(name, spool), self.table, [])
        rows = pa.concat_tables(self._gathered).unify_dictionaries()
        self._file.add(sort_rows(merge_journalled(rows.combine_chunks(), self.table), self.table))
        self._gathered, self._num_gathered = [], 0


class EntityRows:
    """The rows of one entity table and node. They are few: all are kept until the sealed file is written."""

    def __init__(self, table: str, node: str, k: str) -> None:
        self.table, self.node, self.k = table, node, k
        self._stream: StreamFile | None = None
        self._rows: list[pa.Table] = []

    @property
    def stream_name(self) -> str:
        """The stream's name in the run directory, or in the spool."""
        return f"{relative(paths.live_folder('', self.node))}/{paths.stream_name(self.table, None, self.k)}"

    def append(self, streams: RunDir, rows: pa.Table) -> None:
        """Bring rows to the stream. Raises OSError; this object must then be abandoned."""
        if self._stream is None:
            self._stream = StreamFile(streams.local_path(self.stream_name), self.table)
        self._stream.append(rows)
        self._rows.append(rows)

    def seal(self, sealed: RunDir, spool: str) -> IndexEntry | None:
        """Merge the rows into the node's file of this table. Hold the node's lock. Raises OSError."""
        if not self._rows:
            return None
        entry = seal_entities(sealed, self.table, self.node, self._rows, [self.k], spool)
        self._rows = []
        return entry

    def close(self) -> None:
        """Close the stream."""
        try:
            if self._stream is not None:
                self._stream.close()
        except OSError:
            pass
        self._stream = None


def sealed_name(table: str, incarnation: int, node: str, k: str) -> str:
    """The name of a sealed file of facts in the run directory."""
    return f"{relative(paths.fact_folder('', table, incarnation, node))}/{k}.parquet"


def seal_entities(
    sealed: RunDir, table: str, node: str, rows: list[pa.Table], replaces: list[str], spool: str
) -> IndexEntry:
    """Write the node's file of an entity table: what it held, and `rows` after it. Hold the node's lock."""
    name = relative(paths.entity_file("", table, node))
    try:
        with sealed.open(name) as file:
            rows = [conform(pq.read_table(file), table), *rows]
    except (FileNotFoundError, pa.ArrowInvalid):
        pass
    merged = merge_rows(pa.concat_tables(rows).unify_dictionaries(), table)
    return write_sealed(sealed, table, name, [sort_rows(merged, table)], replaces, spool)


def write_sealed(
    sealed: RunDir, table: str, name: str, groups: list[pa.Table], replaces: list[str], spool: str
) -> IndexEntry:
    """Write `groups` as the row groups of one sealed file. Raises OSError."""
    staged = sealed.staging_path(name, spool)
    file = ParquetFile(staged, table, replaces)
    try:
        for group in groups:
            file.add(group)
        file.close()
        entry = describe(staged, name)
        sealed.publish(staged, name)
    except BaseException:
        file.abandon()
        raise
    return entry
