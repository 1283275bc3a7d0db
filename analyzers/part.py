"""One part of a run, open: the same views as a run has, over some of its files, and columns of them as numpy arrays.

Sealed partitions that consist of one file, nearly all of a finished run, are read straight into arrays; others through
the view, which leaves superseded rows out.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from .buckets import BUCKET_MACRO
from .columns import Columns, Flags
from .intervals import Ints, segments
from .listing import Listing
from .parts import LARGE, READ, Task
from .read_columns import as_columns, read_columns
from .statements import counted_step_view
from .unsealed import Unsealed
from .views import crowded, empty_view, make_views


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
        connection.execute(counted_step_view())
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
        if files and is_plain and not crowded(files, self.task.facts.get(table, {})) and not self.task.facts.get(table):
            return read_columns(self.task.place, files, names)
        return self.selected(f"SELECT incarnation, {', '.join(names)} FROM {table}")

    def selected(self, sql: str) -> Columns:
        """The rows of a statement over the part as arrays; process and incarnation among them."""
        return as_columns(self.connection.sql(sql).to_arrow_table())

    def counted(self, columns: Columns) -> Flags:
        """Which rows, of `columns` with a step, belong to a step that counts."""
        codes, pairs = columns.processes
        steps = columns.numbers["step"]
        if not columns.num_rows:
            return np.zeros(0, np.bool_)
        heads = np.flatnonzero((codes[1:] != codes[:-1]) | (steps[1:] != steps[:-1])) + 1  # rows come in runs of a step
        heads = np.concatenate([np.zeros(1, np.int64), heads])
        found, of_heads = np.zeros(len(heads), np.bool_), steps[heads]
        for code, low, high in segments(codes[heads]):
            counted = self._counted_steps.get((int(pairs[code][0]), int(pairs[code][1])))
            if counted is not None:
                place = np.searchsorted(counted, of_heads[low:high])
                found[low:high] = counted[np.minimum(place, len(counted) - 1)] == of_heads[low:high]
        return np.repeat(found, np.diff(np.append(heads, columns.num_rows)))

    @cached_property
    def _counted_steps(self) -> dict[tuple[int, int], Ints]:
        """The steps that count, in order, by incarnation and process."""
        rows = self.connection.sql(
            "SELECT DISTINCT incarnation, proc, step FROM counted_step ORDER BY incarnation, proc, step"
        ).fetchnumpy()
        incarnations, procs, steps = (np.asarray(rows[name], np.int64) for name in ("incarnation", "proc", "step"))
        heads = Columns(len(steps), {"incarnation": incarnations, "proc": procs}, {}, {}).processes[0]
        return {(int(incarnations[low]), int(procs[low])): steps[low:high] for _, low, high in segments(heads)}

    def offer(self, name: str, rows: pa.Table) -> None:
        """Make `rows` a relation of the part's statements."""
        self.connection.register(name, rows)
        self._offered.append(name)

    def offer_none(self, name: str, table: str) -> None:
        """Make a relation like `table`, without a row: nothing is opened for it."""
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {empty_view(table)}")

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
