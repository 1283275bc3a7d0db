"""Sealing what other agents left: streams of dead agents, spools, and rows decoded from rings and journals.

The rows of one table, incarnation and node come from several sources, in order of writing. Of each key the last counts,
and a key that a sealed file holds is left out, so adopting twice, or adopting what was half sealed, changes nothing.
Two passes over the sources, key columns first: memory is 16 bytes a row and one row group.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rankscope.schema import paths
from rankscope.schema.arrow import arrow_schema, conform
from rankscope.schema.errors import InputError
from rankscope.schema.index import IndexEntry
from rankscope.schema.merge import last_positions, sort_rows
from rankscope.schema.streams import stream_batches
from rankscope.schema.tables import TABLES

from .index import node_lock, relative, update_index
from .rundir import RunDir
from .sealed_file import ROW_GROUP_ROWS, ParquetFile, describe
from .segments import seal_entities, sealed_name

Batches = Callable[[], Iterator[pa.Table]]
"""A source that can be read twice."""


@dataclass(slots=True)
class Orphans:
    """What is to be adopted for one table, incarnation (None: entity) and node. ks: of the streams that it replaces."""

    table: str
    incarnation: int | None
    node: str
    sources: list[Batches] = field(default_factory=list)
    ks: list[str] = field(default_factory=list)


def adopt(place: RunDir, orphans: Orphans, k: str, spool: str, leave_out: pa.Table | None = None) -> int:
    """Seal the rows of `orphans` as a file `k` (entities: into the node's file) and enter it in the index.

    leave_out: keys (proc, record) that somebody else will write. Returns the number of rows. Raises OSError.
    """
    with node_lock(place):
        if orphans.incarnation is None:
            rows = [table for source in orphans.sources for table in source()]
            if not rows:
                return 0
            entry = seal_entities(place, orphans.table, orphans.node, rows, orphans.ks, spool)
        else:
            found = _seal_facts(place, orphans, orphans.incarnation, k, spool, leave_out)
            if found is None:
                return 0
            entry = found
        update_index(place, orphans.node, [entry], [])
        return entry.num_rows


def stream_source(place: RunDir, name: str, table: str, problems: list[str]) -> Batches:
    """The batches of a stream in `place`; what cannot be read is named in `problems` and gives none."""

    def batches() -> Iterator[pa.Table]:
        try:
            with place.open(name) as file:
                for batch in stream_batches(file, table, name):
                    yield conform(batch, table)
        except (InputError, FileNotFoundError) as error:
            if str(error) not in problems:
                problems.append(str(error))

    return batches


def sealed_keys(place: RunDir, table: str, incarnation: int, node: str, lowest: int = 0) -> pa.Table:
    """The keys of the rows that the node's sealed files hold (tables with records: from record `lowest` on)."""
    key = list(TABLES[table].key)
    folder = relative(paths.fact_folder("", table, incarnation, node))
    found = [arrow_schema(table).empty_table().select(key)]
    for name in place.list(folder):
        if name.endswith(".parquet"):
            found += _keys_of(place, f"{folder}/{name}", table, key, lowest)
    return pa.concat_tables(found).unify_dictionaries()


def without(rows: pa.Table, keys: pa.Table, table: str) -> pa.Table:
    """`rows` without those whose key is among `keys`."""
    if not keys.num_rows or not rows.num_rows:
        return rows
    key = TABLES[table].key
    both = pa.concat_tables([rows.select(list(key)), keys.select(list(key))]).unify_dictionaries()
    last = last_positions(both, key)
    stands = np.zeros(rows.num_rows, np.bool_)
    stands[last[last < rows.num_rows]] = True
    return rows.filter(pa.array(stands))


def _seal_facts(
    place: RunDir, orphans: Orphans, incarnation: int, k: str, spool: str, leave_out: pa.Table | None
) -> IndexEntry | None:
    table, node = orphans.table, orphans.node
    kept = _kept(place, orphans, incarnation, leave_out)
    if not kept.any():
        return None
    name = sealed_name(table, incarnation, node, k)
    file = ParquetFile(place.staging_path(name, spool), table, orphans.ks)
    try:
        for group in _groups(orphans.sources, kept):
            file.add(sort_rows(group, table))
        file.close()
        entry = describe(file.path, name)
        place.publish(file.path, name)
    except BaseException:
        file.abandon()
        raise
    return entry


def _kept(place: RunDir, orphans: Orphans, incarnation: int, leave_out: pa.Table | None) -> npt.NDArray[np.bool_]:
    """Which rows of the sources are to be sealed, by position over all of them."""
    key = TABLES[orphans.table].key
    num_rows, parts = 0, []
    for source in orphans.sources:
        for batch in source():
            num_rows += batch.num_rows
            parts.append(batch.select(list(key)))
    kept = np.zeros(num_rows, np.bool_)
    if not num_rows or not key:
        kept[:] = True
        return kept
    lowest = _lowest(parts)
    parts.append(sealed_keys(place, orphans.table, incarnation, orphans.node, lowest))
    if leave_out is not None and key == ("proc", "record"):
        parts.append(leave_out)
    last = last_positions(pa.concat_tables(parts).unify_dictionaries(), key)
    kept[last[last < num_rows]] = True
    return kept


def _lowest(parts: Iterable[pa.Table]) -> int:
    found = [pc.min(part.column("record")).as_py() for part in parts if "record" in part.column_names]
    return min((record for record in found if record is not None), default=0)


def _groups(sources: list[Batches], kept: npt.NDArray[np.bool_]) -> Iterator[pa.Table]:
    at, waiting, num_waiting = 0, list[pa.Table](), 0
    for source in sources:
        for batch in source():
            chosen = batch.filter(pa.array(kept[at : at + batch.num_rows]))
            at += batch.num_rows
            waiting.append(chosen)
            num_waiting += chosen.num_rows
            if num_waiting >= ROW_GROUP_ROWS:
                yield pa.concat_tables(waiting).unify_dictionaries().combine_chunks()
                waiting, num_waiting = [], 0
    if num_waiting:
        yield pa.concat_tables(waiting).unify_dictionaries().combine_chunks()


def _keys_of(place: RunDir, name: str, table: str, key: list[str], lowest: int) -> list[pa.Table]:
    found = []
    types = arrow_schema(table)
    try:
        with place.open(name) as source:
            file = pq.ParquetFile(source)
            for group in range(file.num_row_groups):
                if _highest(file.metadata.row_group(group)) >= lowest:
                    rows = file.read_row_group(group, columns=key)
                    found.append(pa.table([rows.column(n).cast(types.field(n).type) for n in key], names=key))
    except pa.ArrowInvalid:
        return []
    return found


def _highest(group: pq.RowGroupMetaData) -> float:
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema == "record" and column.statistics is not None and column.statistics.has_min_max:
            return float(column.statistics.max)
    return float("inf")
