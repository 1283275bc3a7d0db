"""What exactly was read: a digest of the dataset, from the digests of its files; and which files are damaged inside.

The agents' index tells the digest of every sealed file, so that a finished run costs nothing; other files are hashed
(about 1 GB/s), and rows that are in no file yet are hashed as they lie in memory.
"""

import hashlib
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from rankscope.schema.errors import UnreadableFile
from rankscope.schema.index import decode_index
from rankscope.schema.tables import TABLES

from .listing import Listing, RunFile, relative_path
from .place import Place
from .unsealed import Unsealed

_BLOCK_BYTES: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class Input:
    """One thing that was read. file: its path in the run directory, or in words for rows that are in no file yet."""

    file: str
    table: str
    num_rows: int
    num_bytes: int
    digest: str


def dataset_digest(place: Place, listing: Listing, unsealed: Unsealed) -> str:
    """32 hex digits that depend only on the content of the run, not on its place or on the order of its files.

    What was concluded from the run and written beside it (`rankscope report --save`) is not part of it.
    """
    parts = sorted(item.digest for item in inputs(place, listing, unsealed))
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def inputs(
    place: Place, listing: Listing, unsealed: Unsealed, tables: tuple[str, ...] | None = None
) -> tuple[Input, ...]:
    """The files and unsealed rows of `tables` (all that are no conclusions), by table and path."""
    known = _indexed(place, listing)
    wanted = {name for name in (TABLES if tables is None else tables) if TABLES[name].table_class != "conclusion"}
    found = [_sealed(place, item, known) for item in listing.sealed if item.table in wanted]
    for table, partitions in unsealed.facts.items():
        found += [_loose(table, str(partition), rows) for partition, rows in partitions.items() if table in wanted]
    sealed = {item.table for item in listing.sealed}
    found += [_loose(table, "", rows) for table, rows in unsealed.entities.items() if table in wanted - sealed]
    return tuple(sorted(found, key=lambda item: (item.table, item.file)))


def unreadable_files(place: Place, listing: Listing) -> dict[str, str]:
    """Sealed files that cannot be read to their end, with the reason. Those that are gone are not.

    Reads everything: only after something failed.
    """
    found = {}
    for item in listing.sealed:
        try:
            with place.filesystem.open_input_file(item.path) as source:
                for _ in pq.ParquetFile(source).iter_batches():
                    pass
        except FileNotFoundError:
            continue
        except (OSError, pa.ArrowException) as error:
            found[item.path] = "damaged: " + (str(error).splitlines() or [type(error).__name__])[0]
    return found


def _indexed(place: Place, listing: Listing) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for path in listing.index:
        try:
            with place.filesystem.open_input_file(path) as source:
                entries = decode_index(source, path)
        except (OSError, UnreadableFile):
            continue
        found |= {entry.file: (entry.digest, entry.num_bytes) for entry in entries}
    return found


def _sealed(place: Place, item: RunFile, known: dict[str, tuple[str, int]]) -> Input:
    path = relative_path(place, item.path)
    digest, num_bytes = known.get(path, ("", -1))
    if num_bytes != item.num_bytes:
        digest = _file_digest(place, item)
    return Input(path, item.table, item.num_rows, item.num_bytes, digest)


def _loose(table: str, partition: str, rows: pa.Table) -> Input:
    return Input("rows in no sealed file yet", table, rows.num_rows, rows.nbytes, _rows_digest(table, partition, rows))


def _file_digest(place: Place, item: RunFile) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with place.filesystem.open_input_stream(item.path) as source:
        while block := source.read(_BLOCK_BYTES):
            digest.update(block)
    return "blake2b:" + digest.hexdigest()


def _rows_digest(table: str, partition: str, rows: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    return hashlib.blake2b(sink.getvalue(), digest_size=16, person=(table + partition).encode()[:16]).hexdigest()
