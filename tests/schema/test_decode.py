"""Ring bytes to Arrow rows: what was packed is what is read, torn and overwritten records are no rows."""

import mmap
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.schema import decode, ring
from rankscope.schema.decode import Names
from rankscope.schema.enums import ENUMS
from rankscope.schema.ring import Field, RingLayout
from rankscope.schema.ring_header import RingHeader, encode_header
from rankscope.schema.tables import RING_TABLES

CAPACITY = 8
PROC = 42
NAMES = Names({1: "first", 2: "second"}, {1: "group-a", 2: "group-b"}, {0: 4711})
_RANGES = {
    "q": (-(2**63), 2**63 - 1), "Q": (0, 2**64 - 1), "i": (-(2**31), 2**31 - 1), "h": (-(2**15), 2**15 - 1),
    "I": (0, 2**32 - 1), "H": (0, 2**16 - 1), "B": (0, 255),
}  # fmt: skip
_NULL = {"minus_one_null": -1, "zero_null": 0}


def stored_values(field: Field) -> st.SearchStrategy[Any]:
    """What a writer may store in the field."""
    if field.encoding == "enum":
        return st.integers(0, len(ENUMS[field.enum]))
    if field.encoding in ("intern", "group"):
        return st.integers(0, 2)
    if field.encoding == "bool":
        return st.integers(0, 1)
    if field.format == "d":
        return st.floats(allow_nan=False)
    if field.name.endswith("_ns"):
        return st.integers(0, 2**62)
    return st.integers(*_RANGES[field.format])


def meaning(field: Field, value: Any) -> Any:
    """What a reader must make of it."""
    if field.encoding == "enum":
        return ENUMS[field.enum][value - 1] if value else None
    if field.encoding in ("intern", "group"):
        return (NAMES.groups if field.encoding == "group" else NAMES.names).get(value)
    if field.encoding == "bool":
        return value != 0
    return None if field.encoding in _NULL and value == _NULL[field.encoding] else value


def pack(view: mmap.mmap, layout: RingLayout, number: int, values: dict[str, Any], state: int = ring.COMPLETED) -> None:
    """Write record `number` as the recorder does."""
    at = ring.DATA_OFFSET + number % CAPACITY * ring.RECORD_BYTES
    generation = number // CAPACITY + 1
    opened = [values[name] for name in layout.open_columns]
    layout.open_struct.pack_into(view, at, generation, layout.kind, state, 1, 0, *opened, generation)
    if layout.close_columns:
        layout.close_struct.pack_into(view, at + layout.close_offset, *(values[name] for name in layout.close_columns))


def new_ring() -> mmap.mmap:
    view = mmap.mmap(-1, ring.ring_bytes(CAPACITY))
    view[: ring.HEADER_BYTES] = encode_header(RingHeader(PROC, CAPACITY, "1.0.0", 5))
    return view


@pytest.mark.parametrize("kind", sorted(RING_TABLES))
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_what_is_packed_is_read(kind: int, data: st.DataObject) -> None:
    layout = ring.layout(kind)
    fields = {name: field for name, field in layout.fields.items() if field.moment != "late"}
    rows = data.draw(
        st.lists(
            st.fixed_dictionaries({name: stored_values(field) for name, field in fields.items()}), max_size=CAPACITY
        )
    )
    if "src" in fields:
        rows = [row | {"op": 13} for row in rows]  # send: src is a sender, not a root
    view = new_ring()
    for number, row in enumerate(rows):
        pack(view, layout, number, row)
    records, numbers = decode.snapshot(view, RingHeader(PROC, CAPACITY, "1.0.0", 5))
    read = decode.to_arrow(records, numbers, kind, PROC, 3, NAMES).to_pylist()
    assert [row["record"] for row in read] == list(range(len(rows)))
    for row, expected in zip(read, rows, strict=True):
        assert (row["proc"], row["rank"]) == (PROC, 3)
        for name, field in fields.items():
            assert row[name] == meaning(field, expected[name]), name


@given(st.integers(0, 60))
def test_only_the_last_lap_is_there_and_its_numbers_are_right(num_written: int) -> None:
    layout, view = ring.layout_of("step"), new_ring()
    for number in range(num_written):
        pack(view, layout, number, dict.fromkeys((*layout.open_columns, *layout.close_columns), 0) | {"step": number})
    records, numbers = decode.snapshot(view, RingHeader(PROC, CAPACITY, "1.0.0", 5))
    assert numbers.tolist() == list(range(max(0, num_written - CAPACITY), num_written))
    assert decode.to_arrow(records, numbers, layout.kind, PROC, 0, NAMES)["step"].to_pylist() == numbers.tolist()


def test_a_torn_record_is_not_a_row() -> None:
    layout, view = ring.layout_of("step"), new_ring()
    for number in range(3):
        pack(view, layout, number, dict.fromkeys(layout.open_columns, 1))
    view[ring.DATA_OFFSET + ring.RECORD_BYTES + ring.END_OFFSET] = 9
    _, numbers = decode.snapshot(view, RingHeader(PROC, CAPACITY, "1.0.0", 5))
    assert numbers.tolist() == [0, 2]


def test_a_reader_can_go_on_from_where_it_was() -> None:
    layout, view = ring.layout_of("step"), new_ring()
    for number in range(6):
        pack(view, layout, number, dict.fromkeys(layout.open_columns, 1))
    _, numbers = decode.snapshot(view, RingHeader(PROC, CAPACITY, "1.0.0", 5), first=4)
    assert numbers.tolist() == [4, 5]


def test_a_rooted_collective_has_a_root_and_a_p2p_operation_a_source() -> None:
    layout, view = ring.layout_of("collective"), new_ring()
    blank = dict.fromkeys((*layout.open_columns, *layout.close_columns), 0)
    ops = ENUMS["op"]
    pack(view, layout, 0, blank | {"op": ops.index("broadcast") + 1, "src": 5, "dst": -1, "tag": -1})
    pack(view, layout, 1, blank | {"op": ops.index("send") + 1, "src": 5, "dst": 6, "tag": 7})
    records, numbers = decode.snapshot(view, RingHeader(PROC, CAPACITY, "1.0.0", 5))
    broadcast, send = decode.to_arrow(records, numbers, layout.kind, PROC, 0, NAMES).to_pylist()
    assert (broadcast["root"], broadcast["src"], broadcast["dst"]) == (5, None, None)
    assert (send["root"], send["src"], send["dst"], send["tag"]) == (None, 5, 6, 7)


def test_device_times_are_offsets_from_the_issue() -> None:
    layout, view = ring.layout_of("collective"), new_ring()
    blank = dict.fromkeys((*layout.open_columns, *layout.close_columns), 0)
    pack(view, layout, 0, blank | {"issued_ns": 1_000_000})
    field = layout.fields["device_end_ns"]
    view[ring.DATA_OFFSET + field.offset : ring.DATA_OFFSET + field.offset + 4] = np.uint32(25).tobytes()
    records, numbers = decode.snapshot(view, RingHeader(PROC, CAPACITY, "1.0.0", 5))
    (row,) = decode.to_arrow(records, numbers, layout.kind, PROC, 0, NAMES).to_pylist()
    assert row["device_end_ns"] == 1_000_000 + 25 * ring.OFFSET_UNIT_NS and row["device_start_ns"] is None
