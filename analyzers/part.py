"""One part of a run, open: the same views as a run has, over some of its files, and columns of them as numpy arrays.

Sealed partitions that consist of one file, nearly all of a finished run, are read straight into arrays; others through
the view, which leaves superseded rows out. Views are made when a statement reads them.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache, cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import duckdb
import numpy as np
import pyarrow as pa

from .buckets import BUCKET_MACRO
from .columns import Columns, Flags, are_told
from .intervals import Ints, heads
from .listing import Listing
from .parts import LARGE, READ, Task
from .read_columns import as_columns, read_columns
from .statements import counted_step_view
from .unsealed import Unsealed
from .views import crowded, empty_view, make_views

if TYPE_CHECKING:
    from .partials import Partial


_STEPS: Final = ("proc", "rank", "step", "start_ns", "end_ns", "left_out")
_EVERYTHING: Final = "SELECT * FROM "
_numbers = count()
_nothing: dict[str, pa.Table] = {}
"""What statements give that have nothing to read: parts are many, and each of these takes 5 ms."""


class Part:
    """An open part. connection: for statements; a run's own one where the part is the whole run."""

    def __init__(self, task: Task, connection: duckdb.DuckDBPyConnection, missing: Collection[str] = ()) -> None:
        """missing: the tables of which the connection has no views yet."""
        self.task, self.connection = task, connection
        self._missing = set(missing)
        self._known: dict[str, Columns] = {}
        self._wanted: dict[str, tuple[str, ...]] = {}
        self._offered: dict[str, pa.Table] = {}
        self._empty: set[str] = set()

    def expect(self, wanted: dict[str, tuple[str, ...]]) -> None:
        """Columns by table that will be asked for: they are read together."""
        self._wanted = wanted

    @classmethod
    @contextmanager
    def open(cls, task: Task, threads: int, memory_limit: str) -> "Iterator[Part]":
        """The part of `task` in a database of its own, which ends with it."""
        server, name = _server(threads, memory_limit), f"part_{next(_numbers)}"
        server.execute(f"ATTACH ':memory:' AS {name}")
        try:
            with closing(server.cursor()) as connection:
                connection.execute(f"USE {name}")
                connection.execute("SET python_enable_replacements = false")
                connection.execute("SET enable_progress_bar = false")
                connection.execute(BUCKET_MACRO)
                yield cls(task, connection, READ)
        finally:
            server.execute(f"DETACH {name}")

    def views(self, *tables: str) -> None:
        """Make the views of `tables` that a statement reads, if they are not there yet: it costs 2 ms each."""
        if missing := self._missing.intersection(tables):
            self._missing -= missing
            unsealed = Unsealed(self.task.facts, self.task.entities, (), 0, 0)
            make_views(self.connection, self.task.place, Listing(self.task.sealed, (), (), (), {}), unsealed, missing)
            for table in missing:
                self._bind(table)
            if "step" in missing:
                self.connection.execute(counted_step_view())

    def contribution(self, partial: "Partial") -> pa.Table:
        """The rows of a partial's statement: over relations that were offered, or over any views."""
        sql = partial.statement
        known = self._offered.get(sql.removeprefix(_EVERYTHING))
        if known is not None:
            return known
        is_nothing = partial.needs in self._empty
        if is_nothing and sql in _nothing:
            return _nothing[sql]
        if not partial.relations:
            self.views(*READ)
        found = self.connection.sql(sql).to_arrow_table()
        if is_nothing:
            _nothing[sql] = found
        return found

    def rows(self, sql: str, *tables: str) -> list[tuple[Any, ...]]:
        """The rows of a statement over views of `tables`."""
        self.views(*tables)
        return self.connection.execute(sql).fetchall()

    def columns(self, table: str, names: Sequence[str]) -> Columns:
        """`names` and the incarnation of all rows of a large table, processes in runs. Kept with the part."""
        known = self._known.get(table)
        if known is None or not known.has(names):
            known = self._known[table] = self._read(table, tuple(dict.fromkeys((*self._wanted.get(table, ()), *names))))
        return known

    def _read(self, table: str, names: Sequence[str]) -> Columns:
        files = [item for item in self.task.sealed if item.table == table]
        is_whole = self.task.procs is None
        if not self.task.facts.get(table) and (not files or (is_whole and not crowded(files, {}))):
            return read_columns(self.task.place, files, names, table)
        self.views(table)
        sql = f"SELECT incarnation, {', '.join(names)} FROM {table}"
        return as_columns(self.connection.sql(sql).to_arrow_table())

    def counted(self, columns: Columns) -> Flags:
        """Which rows, of `columns` with a step, belong to a step that counts."""
        found = np.zeros(columns.num_rows, np.bool_)
        for low, high in columns.runs:
            steps, counted = columns.numbers["step"][low:high], self._counted_steps.get(columns.process(low))
            if counted is not None:
                first = heads(steps)  # rows come in runs of a step
                place = np.searchsorted(counted, steps[first])
                is_counted = counted[np.minimum(place, len(counted) - 1)] == steps[first]
                found[low:high] = np.repeat(is_counted, np.diff(np.append(first, high - low)))
        return found

    @property
    def steps(self) -> Columns:
        """proc, incarnation, rank, step, start_ns, end_ns, left_out."""
        return self.columns("step", _STEPS)

    @cached_property
    def counted_steps(self) -> Columns:
        """Those of them that view counted_step has."""
        rows = self.steps
        is_ended = are_told(rows.numbers["start_ns"], rows.numbers["end_ns"])
        return rows.where(is_ended & (rows.codes["left_out"] < 0) & (rows.numbers["step"] > 0))

    @cached_property
    def _counted_steps(self) -> dict[tuple[int, int], Ints]:
        """The steps that count, in order, by incarnation and process."""
        rows = self.counted_steps
        return {rows.process(low): np.unique(rows.numbers["step"][low:high]) for low, high in rows.runs}

    def offer(self, name: str, rows: pa.Table) -> None:
        """Make `rows` a relation of the part's statements."""
        self.connection.register(name, rows)
        self._offered[name] = rows

    def offer_none(self, name: str, table: str) -> None:
        """Make a relation like `table`, without a row: nothing is opened for it."""
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {empty_view(table)}")
        self._empty.add(name)

    def withdraw(self) -> None:
        """Take back what was offered: a run's own connection is used on."""
        for name in self._offered:
            self.connection.unregister(name)
        self._offered, self._known, self._empty = {}, {}, set()

    def _bind(self, table: str) -> None:
        """Restrict a table to the part's processes."""
        if self.task.procs is not None and table in (*LARGE, "step"):
            low, high = self.task.procs
            first = "true" if low is None else f"proc >= {low}"
            last = "true" if high is None else f"proc < {high}"
            self.connection.execute(f"ALTER VIEW {table} RENAME TO _whole_{table}")
            self.connection.execute(f"CREATE VIEW {table} AS SELECT * FROM _whole_{table} WHERE {first} AND {last}")


@cache
def _server(threads: int, memory_limit: str) -> duckdb.DuckDBPyConnection:
    """One instance of DuckDB for all parts of a process: to start one takes 30 ms."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False})
    connection.execute(f"SET threads = {threads}")
    connection.execute(f"SET memory_limit = '{memory_limit}'")
    return connection
