"""Few files: what one node sealed for one table and incarnation becomes one file, more only past 1 GB.

Small sets are read, sorted and written anew; large ones are joined without decoding (`parquet_concat`). The new file
names those it replaces, so that a crash between its appearance and their deletion shows no row twice.
"""

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from rankscope.schema import paths
from rankscope.schema.arrow import conform
from rankscope.schema.index import IndexEntry
from rankscope.schema.merge import merge_journalled, sort_rows
from rankscope.schema.tables import TABLES

from .index import node_lock, read_index, update_index
from .parquet_concat import CannotJoin, concatenate
from .rundir import RunDir
from .sealed_file import describe, read_footer, record_range, stream_digest
from .segments import write_sealed

MAX_BYTES: Final = 1_000_000_000
"""Files are merged up to this size."""
SORTED_ROWS: Final = 100_000
"""Up to this many rows are sorted as one; beyond it each row group is sorted by itself."""


def compact(place: RunDir, node: str, k: str, spool: str, has_time: Callable[[], bool] = lambda: True) -> None:
    """Merge the node's sealed files, while `has_time`. k: the name of the merged files. Raises OSError."""
    with node_lock(place):
        known = {entry.file for entry in read_index(place, node)}
        for table, folder in _folders(place, node):
            names = _standing(place, node, folder)
            _enter_missing(place, node, [name for name in names if name not in known])
            for batch in _batches(place, names):
                if len(batch) > 1 and has_time():
                    _merge(place, node, table, folder, batch, k, spool)


def replaced(place: RunDir, names: list[str]) -> set[str]:
    """Of the sealed files `names` of one folder, those that another one says it stands for."""
    standing_for: dict[str, list[str]] = {}
    for name in names:
        try:
            with place.open(name) as file:
                entries = read_footer(file).metadata or {}
        except (OSError, pa.ArrowInvalid):
            continue
        standing_for[name] = entries.get(paths.REPLACES.encode(), b"").decode().split(",")
    by_k = {name.rpartition("/")[2].removesuffix(".parquet"): name for name in names}
    return {by_k[k] for name, ks in standing_for.items() for k in ks if k in by_k and by_k[k] != name}


def _folders(place: RunDir, node: str) -> list[tuple[str, str]]:
    """(table, folder) of each table and incarnation for which the node may have sealed files."""
    found = []
    for table in place.list(""):
        if table in TABLES and TABLES[table].table_class != "entity":
            incarnations = [name for name in place.list(table) if name.startswith("incarnation=")]
            found += [(table, f"{table}/{name}/node={node}") for name in incarnations]
    return found


def _standing(place: RunDir, node: str, folder: str) -> list[str]:
    """The folder's sealed files, after those were deleted that a merged file stands for."""
    names = [f"{folder}/{name}" for name in place.list(folder) if name.endswith(".parquet")]
    if len(names) < 2:
        return names
    gone = replaced(place, names)
    for name in gone:
        place.remove(name)
    if gone:
        update_index(place, node, [], sorted(gone))
    return [name for name in names if name not in gone]


def _enter_missing(place: RunDir, node: str, names: list[str]) -> None:
    """Files that appeared just before a crash, and never reached the index."""
    entries = []
    for name in names:
        try:
            with place.open(name) as file:
                footer = read_footer(file)
                file.seek(0)
                entries.append(
                    IndexEntry(name, footer.num_rows, place.size(name), stream_digest(file), *record_range(footer))
                )
        except pa.ArrowInvalid:
            continue
    if entries:
        update_index(place, node, entries, [])


def _batches(place: RunDir, names: list[str]) -> list[list[str]]:
    batches: list[list[str]] = [[]]
    total = 0
    for name in names:
        size = place.size(name)
        if total + size > MAX_BYTES and batches[-1]:
            batches.append([])
            total = 0
        batches[-1].append(name)
        total += size
    return batches


def _merge(place: RunDir, node: str, table: str, folder: str, names: list[str], k: str, spool: str) -> None:
    files = [place.open(name) for name in names]
    try:
        footers = [read_footer(file) for file in files]
        replaces = [name.rpartition("/")[2].removesuffix(".parquet") for name in names]
        target = f"{folder}/{k}.parquet"
        if sum(footer.num_rows for footer in footers) <= SORTED_ROWS:
            rows = pa.concat_tables([_rows(file, table) for file in files]).unify_dictionaries()
            rows = merge_journalled(rows, table)
            entry = write_sealed(place, table, target, [sort_rows(rows, table)], replaces, spool)
        else:
            entry = _join(place, target, files, replaces, spool)
    except (CannotJoin, pa.ArrowInvalid):
        return
    finally:
        for file in files:
            file.close()
    update_index(place, node, [entry], names)
    for name in names:
        if name != target:
            place.remove(name)


def _join(place: RunDir, target: str, files: list[pa.NativeFile], replaces: list[str], spool: str) -> IndexEntry:
    staged = place.staging_path(target, spool)
    concatenate(files, staged, {paths.REPLACES: ",".join(replaces)})
    entry = describe(staged, target)
    place.publish(staged, target)
    return entry


def _rows(file: pa.NativeFile, table: str) -> pa.Table:
    file.seek(0)
    return conform(pq.read_table(file), table)
