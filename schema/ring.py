"""The ring file: where each table's columns lie in a 128-byte record, derived from the table declarations.

File: a 4,096-byte header (JSON, zero-padded), 4,096 bytes of counters, then `capacity` records of 128 bytes.

Record n lies in slot n % capacity and carries the generation n // capacity + 1 in its first and its last four bytes:

    0  begin   uint32  generation (0: never written)
    4  kind    uint8   which table (Table.ring_kind)
    5  state   uint8   0 none, 1 issued, 2 completed, 3 failed
    6  timing  uint8   timing source of the completion (enums.TIMING_SOURCES, 1-based; 0 unknown)
    7  thread  uint8   thread index from the journal; 255: some other thread
    8  body            the table's columns: 8-byte ones first, then 4, 2 and 1, each in declared order
  124  end     uint32  generation again

Both generation words are written by the one `pack_into` that opens the record, so a record torn by SIGKILL shows two
different words and is not a record. Closing writes the times first and `state` last. Readers leave records younger
than a millisecond to their next pass, so nothing relies on the order of stores between cores.

Costs: one `pack_into` to open (about 0.9 us), two to close.
"""

import struct
from functools import cache
from typing import Final, NamedTuple

from .declare import Column, Encoding, Moment, Table
from .tables import RING_TABLES

MAGIC: Final = "rankscope-ring"
RECORD_BYTES: Final = 128
HEADER_BYTES: Final = 4096
COUNTER_BYTES: Final = 4096
DATA_OFFSET: Final = HEADER_BYTES + COUNTER_BYTES
DEFAULT_CAPACITY: Final = 32_768
YOUNG_NS: Final = 1_000_000
"""Records opened less than this long ago are left to the reader's next pass."""

STATE_OFFSET: Final = 5
TIMING_OFFSET: Final = 6
END_OFFSET: Final = 124
ISSUED, COMPLETED, FAILED = 1, 2, 3
OTHER_THREAD: Final = 255
OFFSET_UNIT_NS: Final = 100
"""Unit of the device times, stored as offsets from the record's first time column."""

COUNTERS: Final = ("calls", "timed_calls", "timed_ns", "timed_ns_squared_us2", "rows", "dropped", "errors", "is_off")
"""The uint64 counters of one hook, in file order. timed_ns_squared_us2 holds the sum of squares in us^2 (rounded)."""
MAX_HOOKS: Final = COUNTER_BYTES // (8 * len(COUNTERS))

LATE_CLOSE: Final = 255
"""Kind of a record that completes another one, which was overwritten before it completed. Its body: CLOCK_MONOTONIC ns
of the completion (8), number of the completed record (8), its kind, state and timing source (1 each), and at
LATE_VALUES_OFFSET the close values of that kind. The reader applies it to the record in its pending table."""
LATE_CLOSE_OFFSET: Final = 8
LATE_CLOSE_STRUCT: Final = struct.Struct("<qqBBB")
LATE_VALUES_OFFSET: Final = 32

_HEADER_FORMAT: Final = "<IBBBB"
_SIZES: Final = {"q": 8, "Q": 8, "d": 8, "I": 4, "i": 4, "H": 2, "h": 2, "B": 1}


class Field(NamedTuple):
    """One column inside a record: byte offset, struct character, encoding, moment of writing."""

    name: str
    offset: int
    format: str
    encoding: Encoding
    moment: Moment
    enum: str


class RingLayout(NamedTuple):
    """The record layout of one table.

    open_struct packs `generation, kind, state, timing, thread, *open values, generation` and zeroes every other byte;
    `open_columns` names its values in that order. close_struct packs the close values (`close_columns`) at
    close_offset.
    """

    table: Table
    kind: int
    fields: dict[str, Field]
    open_columns: tuple[str, ...]
    open_struct: struct.Struct
    close_columns: tuple[str, ...]
    close_struct: struct.Struct
    close_offset: int
    base: str
    """The first time column: start of the offsets, and the age of the record."""


@cache
def layout(kind: int) -> RingLayout:
    """The layout of the records of ring kind `kind`. Raises KeyError for an unknown kind."""
    table = RING_TABLES[kind]
    fields = _place(table)
    ordered = sorted(fields.values(), key=lambda field: field.offset)
    open_fields = [field for field in ordered if field.moment == "open"]
    close_fields = [field for field in ordered if field.moment == "close"]
    close_offset = close_fields[0].offset if close_fields else 0
    close_format = "<" + "".join(field.format for field in close_fields)
    base = next(field.name for field in ordered if field.encoding == "zero_null" and field.name.endswith("_ns"))
    return RingLayout(
        table, kind, fields,
        tuple(field.name for field in open_fields), struct.Struct(_open_format(open_fields)),
        tuple(field.name for field in close_fields), struct.Struct(close_format), close_offset, base,
    )  # fmt: skip


def layout_of(table: str) -> RingLayout:
    """The layout of the records of `table`. Raises KeyError if its rows are not written to the ring."""
    for kind, candidate in RING_TABLES.items():
        if candidate.name == table:
            return layout(kind)
    raise KeyError(f"table {table} has no ring records")


def ring_bytes(capacity: int) -> int:
    """Size of a ring file with `capacity` records."""
    return DATA_OFFSET + capacity * RECORD_BYTES


def _place(table: Table) -> dict[str, Field]:
    offset = 8
    fields: dict[str, Field] = {}
    for size in (8, 4, 2, 1):
        for column in table.columns:
            if column.ring is not None and _SIZES[column.ring.format] == size:
                fields[column.name] = _field(column, offset)
                offset += size
    if offset > END_OFFSET:
        raise ValueError(f"a record of table {table.name} needs {offset} bytes, {END_OFFSET} are there")
    return fields


def _field(column: Column, offset: int) -> Field:
    assert column.ring is not None
    return Field(column.name, offset, *column.ring, column.enum)


def _open_format(open_fields: list[Field]) -> str:
    """A format over the whole record, in which everything that is not an open column is a zero byte."""
    parts, offset = [_HEADER_FORMAT], 8
    for field in open_fields:
        parts.append("x" * (field.offset - offset) + field.format)
        offset = field.offset + _SIZES[field.format]
    return "".join([*parts, "x" * (END_OFFSET - offset), "I"])
