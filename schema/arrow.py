"""Arrow schemas of the tables, with unit, meaning and OpenTelemetry name as field metadata. Loads pyarrow."""

import json
from functools import cache
from typing import Final

import pyarrow as pa

from .declare import Column, ColumnType
from .tables import TABLES
from .version import ONTOLOGY_VERSION

_DICTIONARY: Final = pa.dictionary(pa.int32(), pa.string())
_TYPES: Final[dict[ColumnType, pa.DataType]] = {
    "int64": pa.int64(), "int32": pa.int32(), "int16": pa.int16(), "uint64": pa.uint64(), "float64": pa.float64(),
    "bool": pa.bool_(), "string": pa.string(), "json": pa.string(), "enum": _DICTIONARY,
    "list<int64>": pa.list_(pa.field("element", pa.int64())),
    "list<float64>": pa.list_(pa.field("element", pa.float64())),
}  # fmt: skip


@cache
def arrow_schema(table: str) -> pa.Schema:
    """The Arrow schema of `table`. Strings that repeat (enumerations, interned names, groups) are dictionaries.

    Raises KeyError for an unknown table.
    """
    declared = TABLES[table]
    metadata = {"rankscope.table": table, "rankscope.ontology": ONTOLOGY_VERSION}
    return pa.schema([_field(column) for column in declared.columns], metadata)


def rows_to_table(table: str, rows: list[dict[str, object]]) -> pa.Table:
    """An Arrow table of `rows`; absent keys are null, unknown keys are left out.

    A JSON column takes text as it is, and anything else as the JSON text of it.
    """
    schema = arrow_schema(table)
    documents = {column.name for column in TABLES[table].columns if column.type == "json"}
    there: set[str] = set().union(*rows)
    arrays = []
    for field in schema:
        if field.name not in there:
            arrays.append(pa.nulls(len(rows), field.type))
            continue
        values = [row.get(field.name) for row in rows]
        arrays.append(_array(list(map(_text, values)) if field.name in documents else values, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def conform(data: pa.Table, table: str) -> pa.Table:
    """`data`, written under an older minor version, with today's columns: missing ones null, order as declared."""
    schema = arrow_schema(table)
    if data.schema.equals(schema):
        return data.replace_schema_metadata(schema.metadata)
    arrays = [
        data.column(field.name).cast(field.type)
        if field.name in data.column_names
        else pa.nulls(data.num_rows, field.type)
        for field in schema
    ]  # fmt: skip
    return pa.Table.from_arrays(arrays, schema=schema)


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, default=str)


def _array(values: list[object], type_: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(type_):
        return pa.array(values, type_)
    words: dict[object, int] = {}  # by hand, since the methods of arrays load pyarrow.compute, 70 ms
    codes = [None if value is None else words.setdefault(value, len(words)) for value in values]
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(list(words), pa.string()))


def _field(column: Column) -> pa.Field:
    interned = column.ring is not None and column.ring.encoding in ("intern", "group")
    metadata = {"description": column.doc, "unit": column.unit, "otel": column.otel}
    type_ = _DICTIONARY if interned else _TYPES[column.type]
    return pa.field(column.name, type_, nullable=True, metadata={key: text for key, text in metadata.items() if text})
