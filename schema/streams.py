"""Reading the Arrow IPC streams in a run's `live` folder: written by agents every 2 s, possibly cut off by a crash.

A stream has no end marker while it grows; what follows the last whole batch is not a row. Loads pyarrow.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from .arrow import arrow_schema, conform
from .errors import NewerOntology, UnreadableFile
from .version import readable


def read_stream(source: Any, table: str, name: str = "") -> pa.Table:
    """All whole batches of a stream as one table with today's columns, in the order of writing.

    source: a path or a binary file object. Raises UnreadableFile (not a stream, or of another table), NewerOntology.
    """
    batches = list(stream_batches(source, table, name))
    if not batches:
        return arrow_schema(table).empty_table()
    return conform(pa.concat_tables(batches).unify_dictionaries(), table)


def stream_batches(source: Any, table: str, name: str = "") -> Iterator[pa.Table]:
    """The whole batches of a stream one by one (bounded memory). Raises as `read_stream`, at the first batch."""
    label = name or str(source)
    file = pa.OSFile(source, "rb") if isinstance(source, str) else pa.PythonFile(source, "r")
    with file:
        try:
            reader = pa.ipc.open_stream(file)
        except (pa.ArrowInvalid, OSError, EOFError) as error:
            if file.tell() == 0 or _is_torn_start(file):
                return
            raise UnreadableFile(f"{label}: {error}") from error
        _check(label, reader.schema.metadata or {}, table)
        while (batch := _next(reader)) is not None:
            yield pa.Table.from_batches([batch])


def _next(reader: Any) -> pa.RecordBatch | None:
    try:
        return reader.read_next_batch()
    except (StopIteration, pa.ArrowInvalid, OSError, EOFError):
        return None


def _is_torn_start(file: Any) -> bool:
    """The writer was killed while it wrote the schema: a continuation marker and less than a message."""
    file.seek(0)
    start = file.read(4)
    return len(start) < 4 or start == b"\xff\xff\xff\xff"


def _check(label: str, metadata: dict[bytes, bytes], table: str) -> None:
    ontology = metadata.get(b"rankscope.ontology", b"").decode()
    if metadata.get(b"rankscope.table", b"").decode() != table:
        raise UnreadableFile(f"{label}: not a stream of table {table}")
    if not readable(ontology):
        raise NewerOntology(f"{label}: written under ontology {ontology}")
