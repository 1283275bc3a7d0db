"""Questions over the large tables in two halves, so that one process or many machines give the same answer.

A `Partial` is what one part of a run (some nodes' files; of a very large node those of some processes) contributes: a
statement over the part's views, or over a relation that the part computes where order matters (`relations`). A part
holds all rows of a process or none. A `Pair` is a question: the statement `<name>_merge` over the tables
`partial_<analyzer>_<name>`, which hold the contributions of all parts. The statement `<name>` without a suffix is the
definition, over the whole run; the merged partials equal it for any split, to the last bit (a property test).

A question whose answer for a part is the definition over it (`Pair.of_parts`) has no statement of its own: it is the
merge over what one part, the whole run, contributes.

So what a partial gives must be mergeable: counts, sums of integers (as BIGINT or DECIMAL(38, 0)), minima, maxima,
counts by logarithmic bucket. No averages, no sums of floats, no medians; ties of arg_max are broken by rank.

`gather` reads each part once for all partials that are asked for; `report` asks for those of all its questions at once.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import duckdb
import pyarrow as pa

from .engines import run_tasks
from .parts import Task, given_of, plan
from .statements import statement, whole

if TYPE_CHECKING:
    from .run import Row, Run

_KEPT: Final = "partials"


@dataclass(frozen=True, slots=True)
class Given:
    """A small table that every part gets: the rows of `sql` in the run's own connection, once `after` is gathered."""

    name: str
    sql: str
    after: "tuple[Partial, ...]" = ()


@dataclass(frozen=True, slots=True)
class Partial:
    """The first half: statement `name` of `<analyzer>.sql`. tables: the large ones it reads.

    relations: those of `relations.RELATIONS` that it reads; instead: one of them that stands for table collective.
    needs: one of them without whose rows it contributes nothing.
    given: small tables of the run that it reads; only: one of them whose processes have all rows that it needs.
    """

    analyzer: str
    name: str
    tables: tuple[str, ...] = ("collective",)
    relations: tuple[str, ...] = ()
    instead: str = ""
    needs: str = ""
    given: tuple[Given, ...] = ()
    only: str = ""

    @property
    def table(self) -> str:
        """Where the contributions of all parts are gathered."""
        return f"partial_{self.analyzer}_{self.name.removesuffix('_partial')}"

    @property
    def statement(self) -> str:
        """The SQL over one part."""
        sql = statement(self.analyzer, self.name)
        return sql.replace("FROM collective ", f"FROM {self.instead} ") if self.instead else sql


@dataclass(frozen=True, slots=True)
class Pair:
    """A question: statement `<name>_merge` of `<analyzer>.sql` over the tables of `partials`.

    has_own: the definition is a statement of its own. views: of a question without one, names and statements of what
    parts compute as relations.
    """

    analyzer: str
    name: str
    partials: tuple[Partial, ...]
    has_own: bool = True
    views: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_rows(cls, analyzer: str, name: str, tables: tuple[str, ...] = ("collective",)) -> "Pair":
        """A question whose definition, asked of any rows, is its own partial."""
        return cls(analyzer, name, (Partial(analyzer, name, tables=tables),))

    @classmethod
    def of_parts(cls, analyzer: str, name: str, tables: tuple[str, ...], *, given: tuple[Given, ...] = ()) -> "Pair":
        """A question of statements `<name>_partial` and `<name>_merge`, the first of which reads the run's views."""
        return cls(analyzer, name, (Partial(analyzer, f"{name}_partial", tables, given=given),), has_own=False)

    @property
    def definition(self) -> str:
        """The statement over the run's views that gives the same rows."""
        if self.has_own:
            return statement(self.analyzer, self.name)
        return whole(self.analyzer, self.name, given_of(self.partials) | dict(self.views))

    def rows(self, run: "Run") -> "list[Row]":
        """The answer of `run`. Raises what `Run.rows` does."""
        gather(run, self.partials)
        return run.rows(self.merge)

    @property
    def merge(self) -> str:
        """The statement over the gathered tables."""
        return statement(self.analyzer, f"{self.name}_merge")


def gather_all(run: "Run", pairs: Iterable[Pair]) -> None:
    """Gather what several questions need, reading the run once. Raises UnreadableFile."""
    gather(run, [item for pair in pairs for item in pair.partials])


def gather(run: "Run", partials: Sequence[Partial]) -> None:
    """Fill the tables of those of `partials` that the run's connection does not have yet.

    Raises UnreadableFile.
    """
    missing = tuple(dict.fromkeys(item for item in partials if item.table not in _known(run)))
    if missing:
        gather(run, [first for item in missing for given in item.given for first in given.after])
        run.attempt(lambda: _gather(run, missing))
        _known(run).update(item.table for item in missing)


def _known(run: "Run") -> set[str]:
    """The tables that are there; none once the run was read anew."""
    known = run.kept.setdefault(_KEPT, set())
    assert isinstance(known, set)
    return known


def fill(run: "Run", tasks: list[Task]) -> None:
    """Compute `tasks` and fill the tables of their partials with what they contribute, in their order."""
    found: dict[str, list[pa.Table]] = defaultdict(list)
    for part in run_tasks(run, tasks):
        for name, rows in part.items():
            found[name].append(rows)
    for name, pieces in found.items():
        _keep(run.connection, name, pa.concat_tables(pieces, promote_options="permissive"))


def _gather(run: "Run", partials: tuple[Partial, ...]) -> None:
    """A partial over tables without a row costs no reading of the others."""
    idle = tuple(item for item in partials if not item.relations and not _has_rows(run, item))
    for item in idle:
        small = ", ".join(f"{name} AS ({sql})" for name, sql in given_of((item,)).items())
        sql = f"WITH {small} SELECT * FROM ({item.statement})" if small else item.statement
        _keep(run.connection, item.table, run.connection.sql(sql).to_arrow_table())
    if busy := tuple(item for item in partials if item not in idle):
        fill(run, plan(run, busy))


def _has_rows(run: "Run", partial: Partial) -> bool:
    return any(run.size(table).num_rows for table in partial.tables)


def _keep(connection: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> None:
    connection.register("_pieces", rows)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM _pieces")
    connection.unregister("_pieces")
