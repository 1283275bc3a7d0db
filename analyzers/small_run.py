"""An imported run that is small and whole, read straight from its files: for questions that need no database.

DuckDB and its views take a third of a second to begin, which is longer than the work on a run of some files.
`open_small` gives None for everything out of the ordinary (a live run, rows in no sealed file, several files of one
partition, a file that cannot be read, nulls where numbers are expected, many rows); then `Run` must be asked, whose
numbers are the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rankscope.schema.catalogue import CATALOGUE
from rankscope.schema.errors import InputError
from rankscope.schema.measurement import Measurement, Provenance
from rankscope.schema.tables import TABLES
from rankscope.schema.version import ONTOLOGY_VERSION

from .digest import dataset_digest
from .intervals import Ints
from .listing import Listing, RunFile, is_entity, list_run
from .own_version import own_version
from .place import Place, locate
from .unsealed import Unsealed, read_unsealed

MAX_ROWS: Final = 500_000
"""Of all fact tables together: beyond, a database is faster."""


class NotSmall(Exception):
    """It cannot be answered this way."""


@dataclass(frozen=True)
class SmallRun:
    """One such run."""

    place: Place
    listing: Listing
    unsealed: Unsealed

    @cached_property
    def digest(self) -> str:
        """As of `Run`."""
        return dataset_digest(self.place, self.listing, self.unsealed)

    @property
    def run_id(self) -> str:
        """As of `Run`."""
        return str(self.listing.document["run_id"])

    def files(self, table: str) -> list[RunFile]:
        """The files of a fact table, each a partition."""
        return [item for item in self.listing.sealed if item.table == table]

    def read(self, item: RunFile, columns: list[str]) -> pa.Table:
        """Columns of a file. Raises NotSmall."""
        try:
            with self.place.filesystem.open_input_file(item.path) as source:
                texts = [name for name in columns if TABLES[item.table].column(name).type == "string"]
                return pq.ParquetFile(source, read_dictionary=texts).read(columns, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise NotSmall from error

    def entities(self, table: str) -> list[dict[str, Any]]:
        """The rows of an entity table."""
        rows = self.unsealed.entities.get(table)
        return [] if rows is None else rows.to_pylist()

    def size(self, table: str) -> tuple[int, int]:
        """Files and rows, as evidence counts them."""
        sealed = self.files(table)
        if is_entity(table):
            rows = self.unsealed.entities.get(table)
            return (0, 0) if rows is None else (max(1, len(sealed)), rows.num_rows)
        return len(sealed), sum(item.num_rows for item in sealed)


@dataclass(frozen=True, slots=True)
class SmallEvidence:
    """Turns values of a small run into measurements; as `Evidence`, but that no database took part."""

    run: SmallRun
    analyzer: str
    statement: str
    tables: tuple[str, ...]
    coverage: float | None
    window: str
    predicate: str = ""
    caveats: tuple[str, ...] = ()

    def measurement(
        self, name: str, value: float | int | str | None, scope: dict[str, Any], n: int, *, reason: str = ""
    ) -> Measurement:
        """The measurement `name`. Raises KeyError if the catalogue does not know it."""
        entry, sizes = CATALOGUE[name], [self.run.size(table) for table in self.tables]
        return Measurement(name, value, entry.unit, scope, n, Provenance(
            analyzer=self.analyzer, definition=entry.definition, statement=self.statement, tables=self.tables,
            dataset_digest=self.run.digest, num_files=sum(files for files, _ in sizes),
            num_rows=sum(rows for _, rows in sizes), predicate=self.predicate, window=self.window,
            coverage=self.coverage, timing_source="trace", caveats=self.caveats, rankscope_version=own_version(),
            ontology_version=ONTOLOGY_VERSION,
        ), None, reason)  # fmt: skip


def open_small(address: str) -> SmallRun | None:
    """The run called `address`; None if it is not small, imported, sealed and whole."""
    try:
        place = locate(address)
        if not place.is_there:
            return None
        listing = list_run(place)
        tables = {item.table for item in listing.sealed}
        if "kernel" not in tables or "capture" in tables or not _is_whole(listing):
            return None
        found = SmallRun(place, listing, read_unsealed(place, listing))
        return found if _is_sealed(found) and _is_imported(found) else None
    except (InputError, NotSmall, OSError, pa.ArrowException):
        return None


def _is_whole(listing: Listing) -> bool:
    facts = [item for item in listing.sealed if not is_entity(item.table)]
    is_small = sum(item.num_rows for item in facts) <= MAX_ROWS
    is_apart = len({(item.table, item.partition) for item in facts}) == len(facts)
    return is_small and is_apart and not listing.faults and not listing.streams


def _is_sealed(run: SmallRun) -> bool:
    unsealed = run.unsealed
    ids = {row["run_id"] for row in run.entities("run")}
    return not (unsealed.facts or unsealed.faults or unsealed.num_leftovers) and ids == {
        run.listing.document.get("run_id")
    }


def _is_imported(run: SmallRun) -> bool:
    """It has kernels, and no operation that a hook saw."""
    tiers = (words_of(run.read(item, ["tier"]), "tier")[1] for item in run.files("collective"))
    return run.size("kernel")[1] > 0 and all(told == ["imported"] for told in tiers)


def numbers_of(rows: pa.Table, name: str) -> Ints:
    """A column of whole numbers. Raises NotSmall if one is null."""
    column = rows.column(name)
    if column.null_count:
        raise NotSmall
    return np.concatenate([np.zeros(0, np.int64), *(chunk.to_numpy() for chunk in column.chunks)])


def words_of(rows: pa.Table, name: str, missing: str | None = None) -> tuple[Ints, list[str]]:
    """A column of repeated texts: positions in a list. missing: stands for null. Raises NotSmall for null without."""
    column = rows.column(name)
    if not pa.types.is_dictionary(column.type) or (column.null_count and missing is None):
        raise NotSmall
    codes, words = [np.zeros(0, np.int64)], dict[str, int]()
    for chunk in column.chunks:
        own = [words.setdefault(word, len(words)) for word in chunk.dictionary.to_pylist()]
        own.append(words.setdefault(missing or "", len(words)) if chunk.null_count else 0)
        indices = chunk.indices.fill_null(len(own) - 1) if chunk.null_count else chunk.indices
        codes.append(np.array(own, np.int64)[indices.to_numpy()])
    return np.concatenate(codes), list(words)


def coverage_of(run: SmallRun) -> float | None:
    """Rows present / expected, as `coverage.py` has it for a run whose operations are all imported."""
    claimed: dict[int, int] = {}
    processes = run.entities("process")
    for row in processes:
        claimed[row["proc"]] = max(claimed.get(row["proc"], 0), row["num_records"] or 0)
    present = 0
    for proc, num_rows, last_record in _records(run):
        present += num_rows
        claimed[proc] = max(claimed.get(proc, 0), last_record + 1)
    last = max((row["incarnation"] or 0 for row in processes), default=0)
    ranks = {row["rank"] for row in processes if (row["incarnation"] or 0) == last}
    size = max((row["world_size"] or 0 for row in run.entities("run")), default=0)
    num_missing = sum(rank not in ranks for rank in range(size))
    expected = sum(claimed.values())
    expected += round(expected / max(1, len(claimed)) * num_missing)
    return present / expected if expected else None


def _records(run: SmallRun) -> Iterator[tuple[int, int, int]]:
    """Process, rows and last record, of each file."""
    for table in (name for name, declared in TABLES.items() if declared.ring_kind):
        for item in run.files(table):
            rows = run.read(item, ["proc", "record"])
            procs, records = numbers_of(rows, "proc"), numbers_of(rows, "record")
            for proc in set(procs.tolist()):
                own = records[procs == proc]
                yield proc, len(own), int(own.max())
