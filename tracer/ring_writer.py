"""The hot calls: closures that write records into the ring. One file of their own because they are all that costs.

Their state is in cell variables, which are read faster than attributes; hooks may keep the functions, and what they
write to can be exchanged behind them (asleep, a ring, scratch memory). Nothing here is locked: `next` of an
`itertools.count` and one `pack_into` are atomic under the GIL.
"""

import struct
import threading
from collections.abc import Callable
from itertools import count
from typing import Any, Final, NamedTuple

from rankscope.hooks.base import now_ns
from rankscope.schema import ring
from rankscope.schema.ring import RingLayout
from rankscope.schema.tables import RING_TABLES

_WORDS_A_RECORD: Final = ring.RECORD_BYTES // 4
_NOTHING: Final = memoryview(bytes(ring.ring_bytes(1))).cast("I")
_LATE_HEADER: Final = struct.Struct("<IBB")
_LATE_END: Final = struct.Struct("<I")


class RingWriter(NamedTuple):
    """The calls of `rankscope.hooks.base.Recorder`, and `point(memory, capacity)`, which says where they write.

    memory None: asleep, the first record calls `wake`, which points the writer somewhere else.
    """

    open: Callable[..., int]
    write: Callable[..., int]
    close: Callable[..., None]
    poke: Callable[..., None]
    point: Callable[[Any, int], None]
    num_claimed: Callable[[], int]


def make_writer(wake: Callable[[], object], index_thread: Callable[[], int]) -> RingWriter:  # noqa: C901, PLR0915
    """A writer that is asleep. wake: called by the first record; index_thread: once by each thread that writes."""
    view: Any = None
    words = _NOTHING
    capacity, claim, threads = 1, count(), threading.local()
    packs = {kind: ring.layout(kind).open_struct.pack_into for kind in RING_TABLES}
    column_packs = {kind: _column_packs(ring.layout(kind)) for kind in RING_TABLES}
    data, size, state_at, timing_at = ring.DATA_OFFSET, ring.RECORD_BYTES, ring.STATE_OFFSET, ring.TIMING_OFFSET
    first_word, issued = ring.DATA_OFFSET // 4, ring.ISSUED

    def record_in(layout: RingLayout, state: int, values: tuple[object, ...]) -> int:
        if view is None:
            wake()
        record = next(claim)
        try:
            thread = threads.index
        except AttributeError:
            thread = threads.index = index_thread()
        turn, slot = divmod(record, capacity)
        turn += 1
        packs[layout.kind](view, data + slot * size, turn, layout.kind, state, 0, thread, *values, turn)
        return record

    def open_(layout: RingLayout, *values: object) -> int:
        # `record_in` again, for a call less: this is the hottest of all
        if view is None:
            wake()
        record = next(claim)
        try:
            thread = threads.index
        except AttributeError:
            thread = threads.index = index_thread()
        kind = layout.kind
        turn, slot = divmod(record, capacity)
        turn += 1
        packs[kind](view, data + slot * size, turn, kind, issued, 0, thread, *values, turn)
        return record

    def write(layout: RingLayout, *values: object) -> int:
        return record_in(layout, ring.COMPLETED, values)

    def close(layout: RingLayout, record: int, state: int, timing: int, *values: int) -> None:
        turn, slot = divmod(record, capacity)
        if words[first_word + slot * _WORDS_A_RECORD] != turn + 1:
            late(layout, record, state, timing, values)
            return
        offset = data + slot * size
        layout.close_struct.pack_into(view, offset + layout.close_offset, *values)
        view[offset + timing_at] = timing
        view[offset + state_at] = state

    def late(layout: RingLayout, record: int, state: int, timing: int, values: tuple[int, ...]) -> None:
        if view is None:  # what began before a fork, and ends in a child that has recorded nothing yet
            return
        number = next(claim)
        turn, slot = divmod(number, capacity)
        body = bytearray(size)
        _LATE_HEADER.pack_into(body, 0, turn + 1, ring.LATE_CLOSE, ring.COMPLETED)
        ring.LATE_CLOSE_STRUCT.pack_into(body, ring.LATE_CLOSE_OFFSET, now_ns(), record, layout.kind, state, timing)
        layout.close_struct.pack_into(body, ring.LATE_VALUES_OFFSET, *values)
        _LATE_END.pack_into(body, ring.END_OFFSET, turn + 1)
        view[data + slot * size : data + (slot + 1) * size] = body

    def poke(layout: RingLayout, record: int, column: str, value: int) -> None:
        turn, slot = divmod(record, capacity)
        if words[first_word + slot * _WORDS_A_RECORD] == turn + 1:
            offset, pack, least, most = column_packs[layout.kind][column]
            if least <= value <= most:  # what does not fit is unknown, not a failure
                pack(view, data + slot * size + offset, value)

    def point(memory: Any, new_capacity: int) -> None:
        nonlocal view, words, capacity, claim, threads
        capacity, claim, threads = new_capacity, count(), threading.local()
        words = _NOTHING if memory is None else memoryview(memory).cast("I")
        view = None if memory is None else memoryview(memory).cast("B")

    def num_claimed() -> int:
        return int(repr(claim)[6:-1])

    return RingWriter(open_, write, close, poke, point, num_claimed)


def _column_packs(layout: RingLayout) -> dict[str, tuple[int, Callable[..., None], float, float]]:
    """Per column: its offset in the record, how to pack it, and the smallest and largest value that fits."""
    return {
        field.name: (field.offset, struct.Struct("<" + field.format).pack_into, *_range(field.format))
        for field in layout.fields.values()
    }


def _range(character: str) -> tuple[float, float]:
    if character == "d":
        return float("-inf"), float("inf")
    bits = 8 * struct.calcsize("<" + character)
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if character.islower() else (0, (1 << bits) - 1)
