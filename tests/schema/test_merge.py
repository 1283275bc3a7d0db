"""Of rows with one key the last counts; entities are put together value by value."""

import random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rankscope.schema.arrow import rows_to_table
from rankscope.schema.merge import merge_rows, sort_rows

KEYS = st.tuples(st.integers(-5, 5), st.integers(0, 6))


@given(keys=st.lists(KEYS, max_size=60))
def test_the_last_row_of_a_key_counts(keys: list[tuple[int, int]]) -> None:
    rows: list[dict[str, object]] = [
        {"proc": proc, "record": record, "seq": number} for number, (proc, record) in enumerate(keys)
    ]
    expected = {(row["proc"], row["record"]): row["seq"] for row in rows}
    found = merge_rows(rows_to_table("collective", rows), "collective").to_pylist()
    assert {(row["proc"], row["record"]): row["seq"] for row in found} == expected
    assert len(found) == len(expected)
    assert [row["seq"] for row in found] == sorted(row["seq"] for row in found), "the order of writing is kept"


def test_keys_with_text_from_different_dictionaries() -> None:
    parts = [rows_to_table("capture", [{"proc": 1, "hook": hook, "time_ns": 5, "num_rows": number}])
             for number, hook in enumerate(["b", "a", "b"])]  # fmt: skip
    found = merge_rows(pa.concat_tables(parts), "capture").to_pylist()
    assert [(row["hook"], row["num_rows"]) for row in found] == [("a", 1), ("b", 2)]


def test_an_entity_becomes_known_bit_by_bit() -> None:
    rows: list[dict[str, object]] = [
        {"proc": 1, "incarnation": 0, "rank": 3, "exit_kind": "running"},
        {"proc": 1, "incarnation": 1, "rank": 4},
        {"proc": 1, "incarnation": 0, "exit_kind": "killed", "num_records": 9},
    ]
    found = merge_rows(rows_to_table("process", rows), "process").to_pylist()
    assert [(row["incarnation"], row["rank"], row["exit_kind"], row["num_records"]) for row in found] == [
        (0, 3, "killed", 9), (1, 4, None, None)]  # fmt: skip


def test_tables_without_a_key_keep_every_row() -> None:
    rows = rows_to_table("host_sample", [{"node": "a", "time_ns": 1}] * 3)
    assert merge_rows(rows, "host_sample").num_rows == 3


def test_a_sealed_file_is_sorted_by_process_and_time() -> None:
    rows: list[dict[str, object]] = [
        {"proc": proc, "record": record, "issued_ns": record} for proc in (2, 1) for record in range(20)
    ]
    random.Random(0).shuffle(rows)
    found = sort_rows(rows_to_table("collective", rows), "collective")
    assert [(row["proc"], row["issued_ns"]) for row in found.to_pylist()] == [(p, t) for p in (1, 2) for t in range(20)]
