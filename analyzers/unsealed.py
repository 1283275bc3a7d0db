"""The rows of a run that are in no Parquet file yet: streams of living or dead agents, and rings and journals on this
host.

They are read into memory (a stream holds at most ten minutes of one node) and merged by the rule of `schema.merge`;
entity tables, which are small, are merged with their sealed files in the same way. Reading never writes.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from rankscope.schema.arrow import conform
from rankscope.schema.errors import UnreadableFile
from rankscope.schema.merge import merge_rows
from rankscope.schema.paths import local_folders
from rankscope.schema.streams import read_stream
from rankscope.schema.tables import TABLES

from .listing import Fault, Listing, RunFile, in_threads, is_entity, relative_path
from .place import Place

if TYPE_CHECKING:
    from rankscope.schema.leftovers import Leftover

Partition = tuple[int | None, str]
_Parts = dict[tuple[str, Partition], list[pa.Table]]
_Reader = Callable[[Place, RunFile], pa.Table]
_PARTITION_COLUMNS: Final = ("incarnation", "node")


@dataclass(frozen=True, slots=True)
class Unsealed:
    """facts: table -> partition -> rows; entities: table -> rows, sealed ones included; num_leftovers: processes of
    this host whose rows may be in no file yet; num_alive: of these, still running."""

    facts: dict[str, dict[Partition, pa.Table]]
    entities: dict[str, pa.Table]
    faults: tuple[Fault, ...]
    num_leftovers: int
    num_alive: int


def read_unsealed(place: Place, listing: Listing, leftovers: "Sequence[Leftover] | None" = None) -> Unsealed:
    """Everything of the run that is not in a sealed fact file.

    leftovers: those of this machine, found before the listing was made: what an agent seals and deletes meanwhile is in
    one or the other. Raises NewerOntology, and FileNotFoundError where one is gone by now: it was sealed since.
    """
    faults: list[Fault] = []
    parts: _Parts = defaultdict(list)
    entities = [item for item in listing.sealed if is_entity(item.table)]
    for files, read in ((entities, _read_entity), (listing.streams, _read_stream)):
        found = in_threads(partial(_read, place, read), files)
        for item, rows in zip(files, found, strict=True):
            if isinstance(rows, Fault):
                faults.append(rows)
            else:
                parts[item.table, (None, item.node) if is_entity(item.table) else item.partition].append(rows)
    leftovers = leftovers_of(place) if leftovers is None else leftovers
    for leftover in leftovers:
        for (table, incarnation, node), rows in leftover.tables().items():
            parts[table, (None if is_entity(table) else incarnation, node)].append(rows)
        if leftover.problems and not os.path.exists(leftover.source):
            raise FileNotFoundError(leftover.source)
        faults += [Fault(leftover.source, problem) for problem in leftover.problems]
    num_alive = sum(leftover.is_alive for leftover in leftovers)
    return Unsealed(_facts(parts), _entities(parts), tuple(faults), len(leftovers), num_alive)


def leftovers_of(place: Place) -> "list[Leftover]":
    """What lies on this machine of the run at `place`."""
    if not (place.is_local and local_folders()):
        return []
    from rankscope.schema.leftovers import find_leftovers

    return find_leftovers(place.address)


@cache
def view_columns(table: str) -> tuple[str, ...]:
    """The columns of the view of `table`: the declared ones, and for rows of a partition its incarnation and node."""
    declared = TABLES[table]
    extra = () if is_entity(table) else _PARTITION_COLUMNS
    return (*declared.names, *(name for name in extra if name not in declared.names))


def _read(place: Place, read: _Reader, item: RunFile) -> pa.Table | Fault:
    try:
        return read(place, item)
    except (OSError, pa.ArrowException, UnreadableFile) as error:
        return Fault(relative_path(place, item.path), (str(error).splitlines() or ["unreadable"])[0])


def _read_entity(place: Place, item: RunFile) -> pa.Table:
    with place.filesystem.open_input_file(item.path) as source:
        return conform(pq.ParquetFile(source).read(use_threads=False), item.table)


def _read_stream(place: Place, item: RunFile) -> pa.Table:
    if place.is_local:
        return read_stream(item.path, item.table, relative_path(place, item.path))
    with place.filesystem.open_input_file(item.path) as source:
        return read_stream(source, item.table, relative_path(place, item.path))


def _facts(parts: _Parts) -> dict[str, dict[Partition, pa.Table]]:
    found: dict[str, dict[Partition, pa.Table]] = defaultdict(dict)
    for (table, partition), pieces in sorted(parts.items(), key=lambda pair: str(pair[0])):
        if not is_entity(table) and (rows := _merge(pieces, table)).num_rows:
            found[table][partition] = _with_partition(rows, partition)
    return dict(found)


def _entities(parts: _Parts) -> dict[str, pa.Table]:
    pieces: dict[str, list[pa.Table]] = defaultdict(list)
    for (table, _), found in sorted(parts.items(), key=lambda pair: str(pair[0])):
        if is_entity(table):
            pieces[table] += found
    return {table: _merge(found, table) for table, found in pieces.items()}


def _merge(pieces: list[pa.Table], table: str) -> pa.Table:
    whole = pa.concat_tables([conform(piece, table) for piece in pieces])
    return merge_rows(whole.unify_dictionaries(), table)


def _with_partition(rows: pa.Table, partition: Partition) -> pa.Table:
    incarnation, node = partition
    rows = rows.append_column("incarnation", pa.array([incarnation] * rows.num_rows, pa.int64()))
    if "node" in rows.column_names:
        return rows
    return rows.append_column("node", pa.array([node] * rows.num_rows, pa.string()))
