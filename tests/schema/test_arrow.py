"""Rows, Arrow, Parquet and back: the identity for every table; files of older minor versions read with nulls."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankscope.schema.arrow import arrow_schema, conform, rows_to_table
from rankscope.schema.declare import Column
from rankscope.schema.enums import ENUMS
from rankscope.schema.tables import TABLES

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = {
    "int64": st.integers(-(2**63), 2**63 - 1), "int32": st.integers(-(2**31), 2**31 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1), "uint64": st.integers(0, 2**64 - 1),
    "float64": st.floats(allow_nan=False), "bool": st.booleans(), "string": TEXT, "json": TEXT,
    "list<int64>": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
    "list<float64>": st.lists(st.floats(allow_nan=False), max_size=4),
}  # fmt: skip


def values_of(column: Column) -> st.SearchStrategy[object]:
    values = st.sampled_from(ENUMS[column.enum]) if column.enum else VALUES[column.type]
    return values | st.none() if column.nullable else values


def rows_of(table: str) -> st.SearchStrategy[list[dict[str, object]]]:
    return st.lists(
        st.fixed_dictionaries({column.name: values_of(column) for column in TABLES[table].columns}), max_size=5
    )


@pytest.mark.parametrize("table", TABLES)
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_write_parquet_read_is_the_identity(table: str, tmp_path: Path, data: st.DataObject) -> None:
    rows = data.draw(rows_of(table))
    path = tmp_path / "x.parquet"
    pq.write_table(rows_to_table(table, rows), path, compression="zstd")
    read = pq.read_table(path)
    assert read.schema.equals(arrow_schema(table), check_metadata=True)
    assert read.to_pylist() == rows


@pytest.mark.parametrize("table", TABLES)
def test_every_column_says_what_it_means(table: str) -> None:
    for field, column in zip(arrow_schema(table), TABLES[table].columns, strict=True):
        assert field.metadata[b"description"].decode() == column.doc
        assert field.metadata.get(b"unit", b"").decode() == column.unit
        if column.name.endswith("_ns"):
            assert column.unit == "ns"


def test_an_older_minor_version_reads_with_nulls_in_the_declared_order() -> None:
    old = rows_to_table("step", [{"proc": 1, "rank": 0, "record": 7, "step": 3, "start_ns": 1, "end_ns": 2}])
    old = old.drop_columns(["left_out", "is_skipped"]).select(["end_ns", "proc", "rank", "record", "step", "start_ns"])
    read = conform(old, "step")
    assert read.schema.equals(arrow_schema("step"))
    assert read.to_pylist()[0]["left_out"] is None and read.to_pylist()[0]["end_ns"] == 2


def test_names_are_no_keywords_and_units_are_in_them() -> None:
    units = {"ns": "_ns", "celsius": "_celsius", "watts": "_watts", "joules": "_joules", "hertz": "_hertz"}
    for table in TABLES.values():
        assert len(set(table.names)) == len(table.names)
        for column in table.columns:
            assert column.name not in {"group", "order", "table", "user", "select"}
            if column.unit in units:
                assert column.name.endswith(units[column.unit]), f"{table.name}.{column.name}"
            if column.unit == "bytes":
                assert "bytes" in column.name, f"{table.name}.{column.name}"


def test_unknown_keys_are_left_out_and_absent_ones_null() -> None:
    table = rows_to_table("clock", [{"proc": 1, "nonsense": 2}])
    assert table.num_columns == len(TABLES["clock"].columns) and table["wall_ns"].null_count == 1
    assert isinstance(table, pa.Table)
