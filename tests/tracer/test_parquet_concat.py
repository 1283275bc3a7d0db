"""Joined files hold the rows of their parts, in order, for every reader; what cannot be joined is refused."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.schema.arrow import rows_to_table
from rankscope.tracer.parquet_concat import CannotJoin, concatenate
from rankscope.tracer.sealed_file import ParquetFile, read_footer, record_range
from rankscope.tracer.thrift_compact import BINARY, BYTE, DOUBLE, I64, LIST, STRUCT, TRUE, Reader, Value, encode


def rows(proc: int, first: int, num: int) -> pa.Table:
    return rows_to_table("collective", [
        {"proc": proc, "record": record, "issued_ns": 10**15 + record * 1000, "seq": record,
         "group_id": f"g{record % 3}", "op": "all_reduce" if record % 2 else "barrier",
         "rank": None if record % 5 else 1}
        for record in range(first, first + num)
    ])  # fmt: skip


def write(path: Path, groups: list[pa.Table], replaces: list[str]) -> Path:
    file = ParquetFile(str(path), "collective", replaces)
    for group in groups:
        file.add(group)
    file.close()
    return path


def test_rows_metadata_and_statistics_survive(tmp_path: Path) -> None:
    groups = [rows(1, 0, 500), rows(2, 0, 7), rows(1, 500, 300)]
    parts = [write(tmp_path / "a", groups[:2], []), write(tmp_path / "b", groups[2:], ["x"])]
    target = tmp_path / "all.parquet"
    concatenate([pa.OSFile(str(part), "rb") for part in parts], str(target), {"rankscope.replaces": "a,b,x"})
    expected = [row for group in groups for row in group.to_pylist()]
    assert pq.read_table(target).to_pylist() == expected
    assert pq.read_schema(target) == pq.read_schema(parts[0])
    with pa.OSFile(str(target), "rb") as file:
        footer = read_footer(file)
    assert footer.num_row_groups == 3 and record_range(footer) == (0, 799)
    assert footer.metadata[b"rankscope.replaces"] == b"a,b,x"
    assert footer.metadata[b"rankscope.table"] == b"collective"
    query = f"SELECT count(*), sum(record), count(rank) FROM '{target}' WHERE proc = 1 AND op = 'barrier'"
    chosen = [row for row in expected if row["proc"] == 1 and row["op"] == "barrier"]
    assert duckdb.execute(query).fetchall()[0] == (
        len(chosen), sum(row["record"] for row in chosen), sum(row["rank"] is not None for row in chosen))  # fmt: skip


def test_a_joined_file_can_be_joined_again(tmp_path: Path) -> None:
    parts = [write(tmp_path / name, [rows(1, at, 10)], []) for name, at in (("a", 0), ("b", 10), ("c", 20))]
    concatenate([pa.OSFile(str(part), "rb") for part in parts[:2]], str(tmp_path / "ab"), {})
    concatenate([pa.OSFile(str(part), "rb") for part in (tmp_path / "ab", parts[2])], str(tmp_path / "abc"), {})
    assert pq.read_table(tmp_path / "abc")["record"].to_pylist() == list(range(30))


def test_other_schemas_and_foreign_files_are_refused(tmp_path: Path) -> None:
    part = write(tmp_path / "a", [rows(1, 0, 10)], [])
    pq.write_table(pa.table({"x": [1]}), tmp_path / "b")
    (tmp_path / "c").write_bytes(b"no Parquet at all")
    for other in ("b", "c"):
        with pytest.raises(CannotJoin):
            concatenate([pa.OSFile(str(name), "rb") for name in (part, tmp_path / other)], str(tmp_path / "t"), {})


VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(lambda number: Value(I64, number)),
    st.integers(0, 255).map(lambda number: Value(BYTE, number)),
    st.booleans().map(lambda truth: Value(TRUE if truth else 2, truth)),
    st.binary(max_size=300).map(lambda data: Value(BINARY, data)),
    st.floats(allow_nan=False).map(lambda number: Value(DOUBLE, number)),
    st.lists(st.integers(-1000, 1000), max_size=40).map(lambda numbers: Value(LIST, (I64, numbers))),
)
STRUCTS = st.recursive(
    st.dictionaries(st.integers(1, 400), VALUES, max_size=6),
    lambda inner: st.dictionaries(
        st.integers(1, 400), st.one_of(VALUES, inner.map(lambda s: Value(STRUCT, s))), max_size=4
    ),
    max_leaves=8,
)


@given(fields=STRUCTS)
def test_compact_thrift_reads_what_it_writes(fields: dict[int, Value]) -> None:
    assert Reader(encode(fields)).struct() == fields
