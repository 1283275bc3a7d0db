"""Does every ring table fit its record, without two columns in one place?"""

import struct

import pytest

from rankscope.schema import ring
from rankscope.schema.tables import RING_TABLES

KINDS = sorted(RING_TABLES)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_do_not_overlap_and_leave_the_frame_alone(kind: int) -> None:
    taken = set(range(8)) | set(range(ring.END_OFFSET, ring.RECORD_BYTES))
    for field in ring.layout(kind).fields.values():
        place = set(range(field.offset, field.offset + struct.calcsize("<" + field.format)))
        assert not place & taken, field.name
        taken |= place


@pytest.mark.parametrize("kind", KINDS)
def test_every_ring_column_has_a_place(kind: int) -> None:
    layout = ring.layout(kind)
    assert set(layout.fields) == {column.name for column in layout.table.columns if column.ring}
    assert layout.fields[layout.base].moment == "open"


@pytest.mark.parametrize("kind", KINDS)
def test_open_packs_the_whole_record_and_close_one_piece_of_it(kind: int) -> None:
    layout = ring.layout(kind)
    assert layout.open_struct.size == ring.RECORD_BYTES
    close = [layout.fields[name] for name in layout.close_columns]
    if close:
        assert layout.close_offset == close[0].offset
        assert layout.close_struct.size == sum(struct.calcsize("<" + field.format) for field in close)
        ends = [field.offset + struct.calcsize("<" + field.format) for field in close]
        assert [field.offset for field in close[1:]] == ends[:-1]


def test_kinds_are_numbered_once_from_one() -> None:
    assert list(range(1, len(KINDS) + 1)) == KINDS
    assert {ring.layout_of(table.name).kind for table in RING_TABLES.values()} == set(KINDS)
    with pytest.raises(KeyError):
        ring.layout_of("kernel")
