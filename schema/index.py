"""The index of a run directory: one Parquet file per node, which lists the sealed files its agents wrote.

Loads pyarrow.
"""

from dataclasses import astuple, dataclass, fields
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from .errors import UnreadableFile
from .version import ONTOLOGY_VERSION


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One sealed file. file: its name in the run directory; digest: "blake2b:" and the hash of its bytes.

    first_record, last_record: lowest and highest ring sequence number of its rows; None where it has none.
    """

    file: str
    num_rows: int
    num_bytes: int
    digest: str
    first_record: int | None
    last_record: int | None


INDEX_SCHEMA: Final = pa.schema(
    [
        ("file", pa.string()),
        ("num_rows", pa.int64()),
        ("num_bytes", pa.int64()),
        ("digest", pa.string()),
        ("first_record", pa.int64()),
        ("last_record", pa.int64()),
    ],
    {"rankscope.table": "index", "rankscope.ontology": ONTOLOGY_VERSION},
)


def encode_index(entries: list[IndexEntry]) -> bytes:
    """The bytes of an index file, entries in order of their names."""
    rows = [astuple(entry) for entry in sorted(entries, key=lambda entry: entry.file)]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(INDEX_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, INDEX_SCHEMA, strict=True)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(arrays, schema=INDEX_SCHEMA), sink, compression="zstd")
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def decode_index(source: Any, name: str) -> list[IndexEntry]:
    """The entries of an index file. source: what pyarrow reads; name: for the message. Raises UnreadableFile."""
    try:
        table = pq.ParquetFile(source).read(columns=[field.name for field in fields(IndexEntry)])
        return [IndexEntry(**row) for row in table.to_pylist()]
    except (pa.ArrowException, OSError, TypeError) as error:
        raise UnreadableFile(f"{name}: {error}") from error
