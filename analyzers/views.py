"""One DuckDB view per table of the ontology over everything that a run has of it.

A view has the declared columns (null where files of an older minor version lack them) and, for facts and readings,
`incarnation` and `node` from the path. Nearly always a partition (incarnation and node) has one sealed file and nothing
else, and is read as it is. Where it has more (a run still going, an agent killed before it merged), rows may have been
written twice, first as issued and later complete: then the keys that occur twice are looked for, partition by partition
so that memory stays bounded, and all but the last row of each are left out. Tables without rows are typed, empty views.
"""

import re
from collections import defaultdict
from collections.abc import Collection
from functools import cache
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from rankscope.schema.arrow import arrow_schema
from rankscope.schema.declare import Table
from rankscope.schema.tables import TABLES

from .listing import Listing, RunFile, is_entity
from .place import Place
from .unsealed import Partition, Unsealed, view_columns

_SQL_TYPES: Final = {
    "int64": "BIGINT",
    "int32": "INTEGER",
    "int16": "SMALLINT",
    "uint64": "UBIGINT",
    "float64": "DOUBLE",
    "bool": "BOOLEAN",
    "string": "VARCHAR",
    "enum": "VARCHAR",
    "list<int64>": "BIGINT[]",
    "list<float64>": "DOUBLE[]",
    "json": "VARCHAR",
}
_SEALED_ORDER, _MEMORY_ORDER = "0", "1"
"""First character of the order of rows: unsealed ones were written after every sealed one."""


_HIVE: Final = "hive_partitioning = true, hive_types = {'incarnation': BIGINT, 'node': VARCHAR}"
_MISLEADING: Final = re.compile(r"/(incarnation|node)=")
"""Above the run directory such names would count as partitions."""
_PARTITION_OF_PATH: Final = (
    r"CAST(regexp_extract(filename, '/incarnation=(-?[0-9]+)/node=[^/]+/[^/]+$', 1) AS BIGINT) AS incarnation, "
    r"regexp_extract(filename, '/node=([^/]+)/[^/]+$', 1) AS node"
)


def make_views(
    connection: duckdb.DuckDBPyConnection, place: Place, listing: Listing, unsealed: Unsealed,
    only: Collection[str] = TABLES,
) -> None:  # fmt: skip
    """Create the views in `connection`, of all tables or `only` some. Raises duckdb.Error if a file changed since it
    was listed.
    """
    by_table: dict[str, list[RunFile]] = defaultdict(list)
    for item in listing.sealed:
        by_table[item.table].append(item)
    for name, table in ((name, TABLES[name]) for name in only):
        if is_entity(name):
            _entity_view(connection, name, unsealed)
        else:
            _fact_view(connection, place, table, by_table[name], unsealed.facts.get(name, {}))


def crowded(sealed: list[RunFile], memory: dict[Partition, pa.Table]) -> set[Partition]:
    """Partitions of which there is more than one file or stream, so that rows may have been written twice."""
    counts: dict[Partition, int] = defaultdict(int)
    for item in sealed:
        counts[item.partition] += 1
    for partition in memory:
        counts[partition] += 1
    return {partition for partition, count in counts.items() if count > 1}


def glob_escaped(path: str) -> str:
    """`path` so that DuckDB, which expands wildcards in file names, finds exactly it."""
    return "".join(f"[{character}]" if character in "[*?" else character for character in path)


def quoted(text: str) -> str:
    """`text` as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


def _entity_view(connection: duckdb.DuckDBPyConnection, name: str, unsealed: Unsealed) -> None:
    rows = unsealed.entities.get(name)
    if rows is None:
        connection.execute(f"CREATE VIEW {name} AS {empty_view(name)}")
        return
    connection.register(f"_rows_{name}", rows)
    connection.execute(f"CREATE VIEW {name} AS SELECT {_columns(name, frozenset(rows.column_names))} FROM _rows_{name}")


def _fact_view(
    connection: duckdb.DuckDBPyConnection,
    place: Place,
    table: Table,
    sealed: list[RunFile],
    memory: dict[Partition, pa.Table],
) -> None:
    several = crowded(sealed, memory)
    clean = [item for item in sealed if item.partition not in several]
    dirty = [item for item in sealed if item.partition in several]
    parts = [_sealed_select(connection, place, table.name, clean, "clean")] if clean else []
    loose = _memory_select(connection, table.name, memory)
    if dirty:
        parts.append(_deduplicated(connection, place, table, dirty, loose))
    elif loose:
        parts.append(f"SELECT {_names(table.name)} FROM ({loose})")
    connection.execute(f"CREATE VIEW {table.name} AS {' UNION ALL '.join(parts) or empty_view(table.name)}")


def _sealed_select(
    connection: duckdb.DuckDBPyConnection, place: Place, table: str, files: list[RunFile], tag: str
) -> str:
    columns = frozenset().union(*(item.columns for item in files)) | {"incarnation", "node"}
    select = f"SELECT {_columns(table, columns)}, {{order}} AS _order FROM {{source}}"
    if place.is_local:
        paths = ", ".join(quoted(glob_escaped(item.path)) for item in files)
        # whoever asks for the union by name opens every file for each statement: only where their columns differ
        reads = "filename = true" + ("" if len({item.columns for item in files}) == 1 else ", union_by_name = true")
        source = f"read_parquet([{paths}], {reads}, {_HIVE})"
        if _MISLEADING.search(place.root):
            own = ", ".join(sorted(columns - {"incarnation", "node"}))
            source = (
                f"(SELECT {own}, filename, {_PARTITION_OF_PATH} "
                f"FROM read_parquet([{paths}], {reads}, hive_partitioning = false))"
            )
        order = rf"'{_SEALED_ORDER}' || regexp_extract(filename, '([^/]+)\.parquet$', 1)"
        names = _names(table, "_order") if tag == "dirty" else _names(table)
        return f"SELECT {names} FROM ({select.format(order=order, source=source)})"
    return _remote_select(connection, place, table, files, tag)


def _remote_select(
    connection: duckdb.DuckDBPyConnection, place: Place, table: str, files: list[RunFile], tag: str
) -> str:
    """Object stores are read through pyarrow's file systems: DuckDB's own need an extension from the network."""
    selects = []
    by_k: dict[str, list[RunFile]] = defaultdict(list)
    for item in files:
        by_k[item.k if tag == "dirty" else ""].append(item)
    partitioning = ds.partitioning(pa.schema([("incarnation", pa.int64()), ("node", pa.string())]), flavor="hive")
    schema = pa.schema(
        [*arrow_schema(table), *(field for field in partitioning.schema if field.name not in arrow_schema(table).names)]
    )
    for number, (k, group) in enumerate(sorted(by_k.items())):
        name = f"_{tag}_{table}_{number}"
        connection.register(name, ds.dataset(
            [item.path for item in group], schema=schema, format="parquet", filesystem=place.filesystem,
            partitioning=partitioning, partition_base_dir=place.root + "/" + table,
        ))  # fmt: skip
        order = f", {quoted(_SEALED_ORDER + k)} AS _order" if tag == "dirty" else ""
        selects.append(f"SELECT {_columns(table, frozenset(schema.names))}{order} FROM {name}")
    return " UNION ALL ".join(selects)


def _memory_select(connection: duckdb.DuckDBPyConnection, table: str, memory: dict[Partition, pa.Table]) -> str:
    if not memory:
        return ""
    rows = pa.concat_tables([memory[key] for key in sorted(memory, key=str)]).unify_dictionaries()
    order = pa.array([f"{_MEMORY_ORDER}{row:012d}" for row in range(rows.num_rows)], pa.string())
    name = f"_rows_{table}"
    connection.register(name, rows.append_column("_order", order))
    return f"SELECT {_columns(table, frozenset(rows.column_names))}, _order FROM {name}"


def _deduplicated(
    connection: duckdb.DuckDBPyConnection, place: Place, table: Table, files: list[RunFile], loose: str
) -> str:  # fmt: skip
    name = table.name
    every = _sealed_select(connection, place, name, files, "dirty") + (f" UNION ALL {loose}" if loose else "")
    connection.execute(f"CREATE VIEW _every_{name} AS {every}")
    if not table.key:
        return f"SELECT {_names(name)} FROM _every_{name}"
    keys = ", ".join(table.key)
    connection.execute(
        f"CREATE TEMP TABLE _superseded_{name} AS "
        f"SELECT {keys}, max(_order) AS _last FROM _every_{name} WHERE false GROUP BY {keys}"
    )
    known = " AND ".join(f"{key} IS NOT NULL" for key in table.key)
    for incarnation, node in sorted({item.partition for item in files}, key=str):
        connection.execute(
            f"INSERT INTO _superseded_{name} SELECT {keys}, max(_order) FROM _every_{name} "
            f"WHERE incarnation = {incarnation} AND node = {quoted(node)} AND {known} "
            f"GROUP BY {keys} HAVING count(*) > 1"
        )
    same = " AND ".join(f"s.{key} = e.{key}" for key in table.key)
    return (
        f"SELECT {_names(name)} FROM _every_{name} e WHERE NOT EXISTS "
        f"(FROM _superseded_{name} s WHERE {same} AND s._last > e._order)"
    )


def _columns(table: str, there: frozenset[str]) -> str:
    return ", ".join(
        f"CAST({name if name in there else 'NULL'} AS {_type(table, name)}) AS {name}" for name in view_columns(table)
    )


def _names(table: str, *more: str) -> str:
    return ", ".join((*view_columns(table), *more))


def empty_view(table: str) -> str:
    """The statement of a view like that of `table`, without a row."""
    return f"SELECT {_columns(table, frozenset())} WHERE false"


@cache
def _type(table: str, column: str) -> str:
    if column in TABLES[table].names:
        return _SQL_TYPES[TABLES[table].column(column).type]
    return "BIGINT" if column == "incarnation" else "VARCHAR"
