"""One part of a run, open: the same views as a run has, over some of its files, and columns of them as numpy arrays.

Sealed partitions that consist of one file, nearly all of a finished run, are read straight into arrays (about 10 ns a
value); others through the view, which leaves superseded rows out. Arrays have no nulls: NULL stands for none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rankscope.schema.arrow import arrow_schema

from .buckets import BUCKET_MACRO
from .intervals import Ints, segments
from .listing import Listing, RunFile
from .parts import LARGE, READ, Task
from .statements import derived_views
from .unsealed import Unsealed
from .views import crowded, make_views

NULL: Final = int(np.iinfo(np.int64).min)
"""Stands for null in an array of numbers; below every number that occurs."""

OFTEN_NULL: Final = frozenset(
    {"src", "dst", "tag", "device_start_ns", "device_end_ns", "wait_device_start_ns", "wait_device_end_ns"}
)
"""Numbers that whole files may lack: only of these the statistics are looked at."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows as arrays. numbers: by column; codes: of text columns, indices into `texts`, -1 for null."""

    num_rows: int
    numbers: dict[str, Ints]
    codes: dict[str, Ints]
    texts: dict[str, list[str]]

    def has(self, names: Sequence[str]) -> bool:
        """All of `names` are there."""
        return all(name in self.numbers or name in self.codes for name in names)

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


class Part:
    """An open part. connection: with views of the part's rows; a run's own one where the part is the whole run."""

    def __init__(self, task: Task, connection: duckdb.DuckDBPyConnection) -> None:
        self.task, self.connection = task, connection
        self._known: dict[str, Columns] = {}
        self._wanted: dict[str, tuple[str, ...]] = {}
        self._offered: list[str] = []

    def expect(self, wanted: dict[str, tuple[str, ...]]) -> None:
        """Columns by table that will be asked for: they are read together."""
        self._wanted = wanted

    @classmethod
    def open(cls, task: Task, threads: int, memory_limit: str) -> "Part":
        """The part of `task` in a connection of its own. Close it by closing that."""
        connection = duckdb.connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False})
        connection.execute(f"SET threads = {threads}")
        connection.execute(f"SET memory_limit = '{memory_limit}'")
        connection.execute("SET python_enable_replacements = false")
        connection.execute("SET enable_progress_bar = false")
        connection.execute(BUCKET_MACRO)
        unsealed = Unsealed(task.facts, task.entities, (), 0, 0)
        make_views(connection, task.place, Listing(task.sealed, (), (), (), {}), unsealed, READ)
        part = cls(task, connection)
        part._bind()
        for sql in derived_views():
            connection.execute(sql)
        return part

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a statement over the part."""
        return self.connection.execute(sql).fetchall()

    def columns(self, table: str, names: Sequence[str]) -> Columns:
        """`names` and the incarnation of all rows of a large table, processes in runs. Kept with the part."""
        known = self._known.get(table)
        if known is None or not known.has(names):
            known = self._known[table] = self._read(table, tuple(dict.fromkeys((*self._wanted.get(table, ()), *names))))
        return known

    def _read(self, table: str, names: Sequence[str]) -> Columns:
        files = [item for item in self.task.sealed if item.table == table]
        is_plain = self.task.bounds.procs is None and self.task.bounds.window is None
        if is_plain and not crowded(files, self.task.facts.get(table, {})) and not self.task.facts.get(table):
            pieces = [_read(self.task, item, names) for item in files]
            if pieces:
                return _columns(pa.concat_tables(pieces))
        return self.selected(f"SELECT incarnation, {', '.join(names)} FROM {table}")

    def selected(self, sql: str) -> Columns:
        """The rows of a statement over the part as arrays; process and incarnation among them."""
        return _columns(self.connection.sql(sql).to_arrow_table())

    def counted(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Which rows, of `columns` with a step, belong to a step that counts."""
        codes, pairs = columns.processes()
        known = {(int(incarnation), int(proc)): code for code, (incarnation, proc) in enumerate(pairs)}
        chosen: dict[int, Ints] = {}
        for (incarnation, proc), steps in self._counted_steps.items():
            if (incarnation, proc) in known:
                chosen[known[incarnation, proc]] = steps
        found, steps_of_rows = np.zeros(columns.num_rows, np.bool_), columns.numbers["step"]
        for code, low, high in segments(codes):
            counted = chosen.get(code)
            if counted is not None:
                own = steps_of_rows[low:high]
                place = np.searchsorted(counted, own)
                found[low:high] = counted[np.minimum(place, len(counted) - 1)] == own
        return found

    @cached_property
    def _counted_steps(self) -> dict[tuple[int, int], Ints]:
        """The steps that count, in order, by incarnation and process."""
        rows = self.connection.sql(
            "SELECT DISTINCT incarnation, proc, step FROM counted_step ORDER BY incarnation, proc, step"
        ).fetchnumpy()
        incarnations, procs, steps = (np.asarray(rows[name], np.int64) for name in ("incarnation", "proc", "step"))
        heads = Columns(len(steps), {"incarnation": incarnations, "proc": procs}, {}, {}).processes()[0]
        return {(int(incarnations[low]), int(procs[low])): steps[low:high] for _, low, high in segments(heads)}

    def offer(self, name: str, rows: pa.Table) -> None:
        """Make `rows` a relation of the part's statements."""
        self.connection.register(name, rows)
        self._offered.append(name)

    def withdraw(self) -> None:
        """Take back what was offered: a run's own connection is used on."""
        for name in self._offered:
            self.connection.unregister(name)
        self._offered, self._known = [], {}

    def _bind(self) -> None:
        """Restrict the large tables to the part's bounds."""
        bounds = self.task.bounds
        for table in LARGE:
            conditions = _between("proc", bounds.procs)
            if table == "collective":
                conditions += _between("seq", bounds.window)
            if conditions:
                self.connection.execute(f"ALTER VIEW {table} RENAME TO _whole_{table}")
                self.connection.execute(
                    f"CREATE VIEW {table} AS SELECT * FROM _whole_{table} WHERE {' AND '.join(conditions)}"
                )
        if conditions := _between("proc", bounds.procs):
            self.connection.execute("ALTER VIEW step RENAME TO _whole_step")
            self.connection.execute(f"CREATE VIEW step AS SELECT * FROM _whole_step WHERE {' AND '.join(conditions)}")


def _between(column: str, bounds: tuple[int | None, int | None] | None) -> list[str]:
    if bounds is None:
        return []
    low, high = bounds
    return [*([f"{column} >= {low}"] if low is not None else []), *([f"{column} < {high}"] if high is not None else [])]


def _read(task: Task, item: RunFile, names: Sequence[str]) -> pa.Table:
    """Columns that a file of an older minor version lacks are null."""
    with task.place.filesystem.open_input_file(item.path) as source:
        file = pq.ParquetFile(source)
        there = [name for name in names if name in item.columns and not (name in OFTEN_NULL and _is_null(file, name))]
        rows = file.read(columns=there, use_threads=False)
    types = pa.schema([arrow_schema(item.table).field(name).remove_metadata().with_nullable(True) for name in names])
    for name in names:
        if name not in there:
            rows = rows.append_column(name, pa.nulls(rows.num_rows, types.field(name).type))
    rows = rows.select(list(names)).cast(types)
    incarnation = pa.array(np.full(rows.num_rows, item.incarnation, np.int64))
    return rows.append_column("incarnation", incarnation).replace_schema_metadata(None)


def _is_null(file: pq.ParquetFile, name: str) -> bool:
    """The statistics of the file tell that the column holds nothing: it need not be decoded."""
    footer = file.metadata
    index = footer.schema.names.index(name)
    for group in range(footer.num_row_groups):
        column = footer.row_group(group).column(index)
        if column.statistics is None or column.statistics.null_count != column.num_values:
            return False
    return True


def _columns(rows: pa.Table) -> Columns:
    numbers, codes, texts = {}, {}, {}
    for name in rows.column_names:
        column = rows.column(name)
        if pa.types.is_dictionary(column.type) or pa.types.is_string(column.type):
            codes[name], texts[name] = _codes(column)
        else:
            if column.null_count == rows.num_rows:
                numbers[name] = np.full(rows.num_rows, NULL, np.int64)
                continue
            if column.null_count:
                column = pc.fill_null(column.cast(pa.int64()), pa.scalar(NULL, pa.int64()))
            numbers[name] = column.to_numpy().astype(np.int64, copy=False)
    return Columns(rows.num_rows, numbers, codes, texts)


def _codes(column: pa.ChunkedArray) -> tuple[Ints, list[str]]:
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    whole = column.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # no chunk at all
        return np.zeros(0, np.int64), []
    indices = whole.indices.fill_null(-1) if whole.null_count else whole.indices
    return indices.to_numpy(zero_copy_only=False).astype(np.int64), whole.dictionary.to_pylist()
