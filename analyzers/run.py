"""The run reader: everything of one run behind DuckDB views named like the tables of the ontology.

`Run.open` takes a run directory, an object-store address or an id; sealed Parquet, streams not sealed yet and what
crashed or living processes of this host left behind are one dataset. What cannot be read is named in `faults` and
lowers the coverage; only what would make every number wrong is refused (another run's files, a newer ontology, no
rows). Memory is bounded: large tables are only touched by DuckDB, which spills to a temporary folder of its own.
"""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeVar

import duckdb
import pyarrow as pa

from rankscope.schema.errors import EmptyRun, MixedRuns, NotARun, UnreadableFile
from rankscope.schema.tables import TABLES

from .buckets import BUCKET_MACRO
from .digest import Input, dataset_digest, inputs, unreadable_files
from .engines import IN_PROCESS, Engine
from .listing import FOREIGN, Fault, Listing, list_run, relative_path
from .place import Place, locate
from .statements import counted_step_view
from .unsealed import Unsealed, leftovers_of, read_unsealed
from .views import crowded, make_views, quoted

MEMORY_LIMIT: Final = "3GB"
"""What DuckDB may hold before it spills; the whole report is to stay below 4 GiB."""
_MANY_FILES: Final = 64
_HELD_ROWS: Final = 4_000_000
_ATTEMPTS: Final = 3
"""A run that is still going may seal a file between listing and reading it."""

Row = tuple[Any, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TableSize:
    """num_files: sealed files and unsealed sources; num_rows: as the files say, superseded rows included."""

    num_files: int
    num_rows: int


@dataclass
class Run:
    """An open run. Not for several threads at once. Close it, or use it as a context manager."""

    place: Place
    threads: int | None = None
    excluded: frozenset[str] = frozenset()
    faults: tuple[Fault, ...] = ()
    engine: Engine = IN_PROCESS
    listing: Listing = field(init=False)
    unsealed: Unsealed = field(init=False)
    connection: duckdb.DuckDBPyConnection = field(init=False)
    kept: dict[str, object] = field(default_factory=dict, init=False)
    """What analyzers keep with temporary tables of `connection`: both are gone when the run is read anew."""
    _stack: ExitStack = field(default_factory=ExitStack, init=False)

    @classmethod
    def open(cls, run: str, *, threads: int | None = None, engine: Engine = IN_PROCESS) -> "Run":
        """Open the run called `run`. engine: where the large tables are read.

        Raises NotARun, EmptyRun, MixedRuns, NewerOntology or UnreadableFile, each with one line that says what is
        wrong.
        """
        opened = cls(locate(run), threads, engine=engine)
        try:
            opened._load()
        except BaseException:
            opened.close()
            raise
        return opened

    @cached_property
    def run_id(self) -> str:
        """The run's id; its address where nobody wrote one down."""
        known = self.listing.document.get("run_id")
        found = [row["run_id"] for row in self._entity_rows("run")]
        return str(known or (found[0] if found else self.place.address))

    @cached_property
    def digest(self) -> str:
        """Hash of the sorted digests of the files and unsealed rows."""
        return dataset_digest(self.place, self.listing, self.unsealed)

    def rows(self, sql: str, parameters: Sequence[object] | dict[str, object] = ()) -> list[Row]:
        """The rows of a statement over the views.

        A file that proves unreadable only now (damaged pages, gone since) is left out, named, and the statement run
        again. Raises UnreadableFile if that does not help.
        """
        return self.attempt(lambda: self.connection.execute(sql, parameters or None).fetchall())

    def attempt(self, work: Callable[[], T]) -> T:
        """What `work`, which reads the run, returns; done again without the files that prove unreadable.

        Raises UnreadableFile if that does not help.
        """
        for attempt in range(_ATTEMPTS):
            try:
                return work()
            except (duckdb.BinderException, duckdb.ParserException, duckdb.CatalogException):
                raise
            except (duckdb.Error, pa.ArrowException, OSError) as error:
                if attempt == _ATTEMPTS - 1:
                    raise UnreadableFile(f"{self.place.address}: {_first_line(error)}") from error
                self._leave_out_what_is_broken(error)
        raise AssertionError("unreachable")

    def anew(self, work: Callable[[], T]) -> T:
        """What `work` returns, which keeps temporary tables: done again if the run was read anew meanwhile, without
        the files that proved unreadable, since its tables are gone then.
        """
        for _ in range(_ATTEMPTS):
            before = self.faults
            try:
                found = work()
            except duckdb.CatalogException:
                if self.faults == before:
                    raise
                continue
            if self.faults == before:
                return found
        return work()

    def size(self, table: str) -> TableSize:
        """How many files and rows `table` has, before superseded rows are left out."""
        known = self.kept.get(f"size of {table}")
        if not isinstance(known, TableSize):
            known = self.kept[f"size of {table}"] = self._size(table)
        return known

    def num_rows(self, table: str) -> int | None:
        """Rows of the view of `table`, where the files tell it: no row can have been written twice."""
        files = [item for item in self.listing.sealed if item.table == table]
        loose = self.unsealed.facts.get(table, {})
        return None if not files or loose or crowded(files, loose) else sum(item.num_rows for item in files)

    def hold(self, table: str) -> None:
        """Keep a table in memory from now on, if that is small and in many files: to open 2,000 of them takes each
        statement half a second. Gone when the run is read anew. Raises UnreadableFile.
        """
        size = self.size(table)
        if size.num_files >= _MANY_FILES and size.num_rows <= _HELD_ROWS and f"held {table}" not in self.kept:
            self.rows(f"CREATE TEMP TABLE {table} AS FROM {table}")  # found before the view of that name
            self.kept[f"held {table}"] = True

    def _size(self, table: str) -> TableSize:
        sealed = [item for item in self.listing.sealed if item.table == table]
        if table in self.unsealed.entities:
            return TableSize(max(1, len(sealed)), self.unsealed.entities[table].num_rows)
        loose = self.unsealed.facts.get(table, {})
        return TableSize(
            len(sealed) + len(loose),
            sum(item.num_rows for item in sealed) + sum(rows.num_rows for rows in loose.values()),
        )

    def inputs(self, tables: tuple[str, ...]) -> tuple[Input, ...]:
        """The files, and the rows in no file yet, that `tables` consist of, each with its digest."""
        return inputs(self.place, self.listing, self.unsealed, tables)

    def again(self, *, threads: int | None = None) -> "Run":
        """A fresh reader of this run, which leaves out what this one found damaged. Raises what `open` does."""
        fresh = Run(self.place, threads, self.excluded, self.faults)
        try:
            fresh._load()
        except BaseException:
            fresh.close()
            raise
        return fresh

    def close(self) -> None:
        """Give everything back, the temporary folder included."""
        self._stack.close()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load(self) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                self._read()
                break
            except (duckdb.Error, FileNotFoundError) as error:
                if attempt == _ATTEMPTS - 1:
                    raise UnreadableFile(f"{self.place.address}: {_first_line(error)}") from error
                if not isinstance(error, duckdb.IOException | FileNotFoundError):  # a page of it, not the file
                    self._exclude_what_is_broken()
        self._check()

    def _read(self) -> None:
        self._stack.close()
        self.kept.clear()
        leftovers = leftovers_of(self.place)
        listing = list_run(self.place) if self.place.is_there else Listing((), (), (), (), {})
        sealed = tuple(item for item in listing.sealed if item.path not in self.excluded)
        self.listing = Listing(sealed, listing.streams, listing.index, listing.faults, listing.document)
        self.unsealed = read_unsealed(self.place, self.listing, leftovers)
        named = {fault.path for fault in (*listing.faults, *self.unsealed.faults)}
        broken = tuple(fault for fault in self.faults if fault.path not in named)
        self.faults = tuple(sorted((*listing.faults, *self.unsealed.faults, *broken), key=lambda fault: fault.path))
        self.connection = self._connect()
        make_views(self.connection, self.place, self.listing, self.unsealed)
        self.connection.execute(counted_step_view())

    def _connect(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False})
        self._stack.callback(connection.close)
        spill = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="rankscope-", ignore_cleanup_errors=True))
        connection.execute(f"SET temp_directory = {quoted(spill)}")
        connection.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
        connection.execute("SET python_enable_replacements = false")
        connection.execute("SET enable_progress_bar = false")
        if self.threads is not None:
            connection.execute(f"SET threads = {int(self.threads)}")
        connection.execute(BUCKET_MACRO)
        return connection

    def _check(self) -> None:
        address = self.place.address
        ids = {str(row["run_id"]) for row in self._entity_rows("run") if row["run_id"]}
        if known := self.listing.document.get("run_id"):
            ids.add(str(known))
        if len(ids) > 1:
            raise MixedRuns(
                f"{address}: files of {len(ids)} runs in one folder ({', '.join(sorted(ids))}); give each its own"
            )
        if any(self.size(name).num_rows for name, table in TABLES.items() if table.table_class != "conclusion"):
            return
        readable = [fault for fault in self.faults if fault.reason != FOREIGN]
        if readable:
            raise UnreadableFile(f"{address}: no file of it can be read; {readable[0].path}: {readable[0].reason}")
        if not self.place.is_there:
            raise NotARun(f"{address}: no such run")
        if self.listing.document:
            raise EmptyRun(f"{address}: the run has no rows")
        raise NotARun(f"{address}: not a run directory" + ("" if self.listing.faults else ", it is empty"))

    def _entity_rows(self, table: str) -> list[dict[str, Any]]:
        rows = self.unsealed.entities.get(table)
        return [] if rows is None else rows.to_pylist()

    def _exclude_what_is_broken(self) -> bool:
        """Name every file that cannot be read whole, and leave it out from now on. False if there is none."""
        broken = unreadable_files(self.place, self.listing)
        faults = tuple(Fault(relative_path(self.place, path), reason) for path, reason in broken.items())
        self.excluded |= frozenset(broken)
        self.faults = (*self.faults, *faults)
        return bool(broken)

    def _leave_out_what_is_broken(self, error: BaseException) -> None:
        before = {item.path for item in self.listing.sealed}
        is_broken = self._exclude_what_is_broken()
        self._load()
        self.__dict__.pop("digest", None)
        if not is_broken and before == {item.path for item in self.listing.sealed}:
            raise UnreadableFile(f"{self.place.address}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
