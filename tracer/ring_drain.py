"""Following one ring from outside: which records are new, which rows can still change, how many were overwritten.

Each pass copies the records that are new since the last one and looks again at the rows that are still open. A row is
*final* when nothing can change it any more: written complete, or closed and waited for, or closed and its slot since
overwritten, or its process is dead. Rows that are not final wait in the pending table (so a wrap never loses one), and
are handed out as *provisional* once: open for more than 2 s, or closed but not waited for.

Costs about 1 ms a pass for 1,600 new records, and 1 ms per 10,000 pending ones. Cannot see what was overwritten
between two passes, but counts it exactly, from the gaps in the numbers.
"""

import mmap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rankscope.schema import decode, ring
from rankscope.schema.enums import code
from rankscope.schema.ring_header import RingHeader
from rankscope.schema.tables import RING_TABLES

Mask = npt.NDArray[np.bool_]
Times = npt.NDArray[np.int64]
OPEN_NS: Final = 2_000_000_000
"""An open row older than this is handed out as issued, and superseded later."""
RIPE_NS: Final = 20_000_000
"""A row closed less than this long ago is looked at again: its last stores may be under way."""
RETURN_NS: Final = 1_000_000_000
"""A row whose issuing call has not come back is waited for this long after it was closed."""
DEVICE_NS: Final = 30_000_000_000
"""Where a process takes device times, a closed row is waited for this long to get its own."""
MAX_STRANDED: Final = 65_536
"""Open rows kept after their slots were overwritten; beyond it the oldest are given up as issued."""

WINDOW: Final = 256
"""Slots looked at in one go: at least these, and half as many again as were new the last time. All, if all are new."""

_WAITED: Final = code("timing_source", "wait")
_OPAQUE: Final = np.dtype((np.void, ring.RECORD_BYTES))
_IS_ROW: Final = np.isin(np.arange(256), list(RING_TABLES))


@dataclass(frozen=True, slots=True)
class Records:
    """Raw records and their numbers, ascending."""

    raw: decode.Records
    numbers: decode.Numbers


@dataclass(frozen=True, slots=True)
class Drained:
    """What one pass found: rows that are final, and rows that may change and be handed out again."""

    final: Records
    provisional: Records


class RingDrain:
    """One ring's reader. is_named: which of these records refer only to names and groups that are known by now."""

    def __init__(self, header: RingHeader, view: mmap.mmap, is_named: Callable[[decode.Records], Mask]) -> None:
        self.num_dropped, self.num_seen, self.last_ns = 0, 0, 0
        self._header, self._view, self._is_named = header, view, is_named
        self._holes = np.empty(0, np.int64)
        self._raw, self._numbers = np.empty(0, _OPAQUE), np.empty(0, np.int64)
        self._written = np.empty(0, np.bool_)
        self._has_device_times, self._num_new = False, 0

    @property
    def num_pending(self) -> int:
        """Rows that are not final yet."""
        return len(self._numbers)

    @property
    def pending_numbers(self) -> decode.Numbers:
        """Their record numbers."""
        return self._numbers

    def read(self, now_ns: int, is_last: bool) -> Drained:
        """One pass. is_last: the process is dead, so everything there is final."""
        new = self._take_new(now_ns, is_last)
        stranded = self._look_again()
        self._apply_late_closes(new.raw)
        is_row = _IS_ROW[_bytes(new.raw)[:, 4]]
        rows, numbers = (new.raw, new.numbers) if is_row.all() else (new.raw[is_row], new.numbers[is_row])
        self._raw = np.concatenate([self._raw, rows])
        self._numbers = np.concatenate([self._numbers, numbers])
        self._written = np.concatenate([self._written, np.zeros(len(rows), np.bool_)])
        stranded = np.concatenate([stranded, np.zeros(len(rows), np.bool_)])
        drained = self._give_all() if is_last else self._classify(now_ns, stranded)
        self._view.madvise(mmap.MADV_DONTNEED)
        return drained

    def is_half_full(self) -> bool:
        """More than half of the ring was written since the last pass."""
        half = self.num_seen + self._header.capacity // 2
        return bool(self._generations(np.array([half]))[0] >= half // self._header.capacity + 1)

    def forget_written(self) -> None:
        """Hand out the provisional rows once more: the stream they were written to is gone."""
        self._written[:] = False

    def counters(self) -> npt.NDArray[np.uint64]:
        """The hooks' counters (see `decode.counters`)."""
        return decode.counters(self._view)

    def close(self) -> None:
        """Unmap the ring."""
        self._view.close()

    def _take_new(self, now_ns: int, is_last: bool) -> Records:
        raw, numbers = self._snapshot(int(self._holes[0]) if len(self._holes) else self.num_seen)
        end = int(numbers[-1]) + 1 if len(numbers) else self.num_seen
        times = decode.base_times(raw)
        if not is_last:
            young = numbers[(times > now_ns - ring.YOUNG_NS) & (numbers >= self.num_seen)]
            end = int(young[0]) if len(young) else end
        wanted = (numbers >= self.num_seen) & (numbers < end)
        if len(self._holes):
            wanted |= np.isin(numbers, self._holes)
        if not wanted.all():
            raw, numbers, times = raw[wanted], numbers[wanted], times[wanted]
        if len(raw):
            self.last_ns = max(self.last_ns, int(times.max()))
        self._count_missing(numbers, max(end, self.num_seen))
        return Records(raw, numbers)

    def _snapshot(self, first: int) -> tuple[decode.Records, decode.Numbers]:
        """What is new, from a look at as few slots as will do: the ring's pages are memory that counts as ours."""
        window = WINDOW + self._num_new + self._num_new // 2 + self.num_seen - first
        raw, numbers = decode.snapshot(self._view, self._header, first, window)
        if len(numbers) and numbers[-1] >= first + window - 1:
            raw, numbers = decode.snapshot(self._view, self._header, first)
        self._num_new = len(numbers)
        return raw, numbers

    def _count_missing(self, taken: decode.Numbers, end: int) -> None:
        """Numbers below `end` that are not there: overwritten (dropped), or claimed and not written yet (holes)."""
        capacity = self._header.capacity
        floor = max(self.num_seen, end - 2 * capacity)
        self.num_dropped += floor - self.num_seen
        if not len(self._holes) and len(taken) == end - floor == end - self.num_seen:
            self.num_seen = end
            return
        missing = np.setdiff1d(np.concatenate([self._holes, np.arange(floor, end)]), taken)
        overwritten = self._generations(missing) > missing // capacity + 1
        self.num_dropped += int(overwritten.sum())
        self._holes, self.num_seen = missing[~overwritten], end

    def _generations(self, numbers: decode.Numbers) -> decode.Numbers:
        words = np.frombuffer(self._view, np.uint32, self._header.capacity * 32, ring.DATA_OFFSET).reshape(-1, 32)
        generations: decode.Numbers = words[numbers % self._header.capacity, 0].astype(np.int64)
        return generations

    def _slots(self, numbers: decode.Numbers) -> decode.Records:
        slots = np.frombuffer(self._view, _OPAQUE, self._header.capacity, ring.DATA_OFFSET)
        chosen: decode.Records = slots[numbers % self._header.capacity]
        return chosen

    def _look_again(self) -> Mask:
        """Refresh the pending rows from their slots; returns which have lost theirs."""
        if not len(self._numbers):
            return np.empty(0, np.bool_)
        current = self._slots(self._numbers)
        held = _is_generation(current, self._numbers // self._header.capacity + 1)
        changed = held & _differ(current, self._raw)
        self._raw[changed] = current[changed]
        self._written[changed] = False
        return ~held

    def _apply_late_closes(self, raw: decode.Records) -> None:
        for late in decode.late_closes(raw):
            found = np.flatnonzero(self._numbers == late.record)
            if not len(found):
                continue
            layout = ring.layout(late.kind)
            data = bytearray(self._raw[found[0]].tobytes())
            layout.close_struct.pack_into(data, layout.close_offset, *late.values.values())
            data[ring.STATE_OFFSET], data[ring.TIMING_OFFSET] = late.state, late.timing
            self._raw[found[0]] = np.frombuffer(bytes(data), _OPAQUE)[0]
            self._written[found[0]] = False

    def _give_all(self) -> Drained:
        final = _ordered(self._raw, self._numbers)
        self._keep(np.zeros(len(self._numbers), np.bool_))
        return Drained(final, _ordered(self._raw, self._numbers))

    def _classify(self, now_ns: int, stranded: Mask) -> Drained:
        ripe, settled = self._closed(now_ns, stranded)
        named = self._is_named(self._raw)
        final = settled & named
        final |= self._given_up(stranded & ~final)
        final &= ~self._moving(final)
        provisional = ~final & ~self._written & named
        still = np.flatnonzero(provisional)
        provisional[still] = ripe[still] | (decode.base_times(self._raw[still]) < now_ns - OPEN_NS)
        drained = Drained(_ordered(self._raw[final], self._numbers[final]),
                          _ordered(self._raw[provisional], self._numbers[provisional]))  # fmt: skip
        self._written |= provisional
        self._keep(~final)
        return drained

    def _closed(self, now_ns: int, stranded: Mask) -> tuple[Mask, Mask]:
        """Which rows were closed long enough ago to be read whole, and which of these cannot change any more."""
        data = _bytes(self._raw)
        ripe = data[:, ring.STATE_OFFSET] > ring.ISSUED
        settled = np.zeros(len(data), np.bool_)
        for kind in np.flatnonzero(np.bincount(data[:, 4], minlength=1)):
            layout = ring.layout(int(kind))
            chosen = data[:, 4] == kind
            if not layout.close_columns:
                ripe[chosen] = settled[chosen] = True
                continue
            part = data if chosen.all() else data[chosen]
            last = np.max([_int64(part, layout, name) for name in layout.close_columns], axis=0)
            ripe[chosen] &= last < now_ns - RIPE_NS
            settled[chosen] = self._settled(part, layout, last, now_ns)
        return ripe, ripe & (settled | stranded)

    def _settled(self, data: npt.NDArray[np.uint8], layout: ring.RingLayout, last: Times, now_ns: int) -> Mask:
        settled = np.ones(len(data), np.bool_)
        if "wait_end_ns" in layout.fields:
            settled &= _int64(data, layout, "wait_end_ns") != 0
        if "returned_ns" in layout.fields:
            returned = _int64(data, layout, "returned_ns") >= _int64(data, layout, layout.base)  # not half stored
            settled &= returned | (last < now_ns - RETURN_NS)
        device = [field for field in layout.fields.values() if field.encoding == "offset_100ns"]
        if device:
            timed = data[:, min(f.offset for f in device) : max(f.offset for f in device) + 4].any(axis=1)
            self._has_device_times |= bool(timed.any())
            if self._has_device_times:
                settled &= timed | (last < now_ns - DEVICE_NS)
        return settled

    def _given_up(self, stranded: Mask) -> Mask:
        """The oldest of the rows that wait without a slot, where there are too many of them."""
        given_up = np.zeros(len(stranded), np.bool_)
        waiting = np.flatnonzero(stranded)
        given_up[waiting[: max(0, len(waiting) - MAX_STRANDED)]] = True
        return given_up

    def _moving(self, final: Mask) -> Mask:
        """Which of the `final` rows may be half written: they read differently a second time.

        Only a row that was closed before its wait is closed twice. The timing source is stored last and read first, so
        what says "wait" was whole; the others are few.
        """
        moving = np.zeros(len(final), np.bool_)
        doubtful = np.flatnonzero(final & (_bytes(self._raw)[:, ring.TIMING_OFFSET] != _WAITED))
        current = self._slots(self._numbers[doubtful])
        same = _is_generation(current, self._numbers[doubtful] // self._header.capacity + 1)
        moving[doubtful] = same & _differ(current, self._raw[doubtful])
        return moving

    def _keep(self, kept: Mask) -> None:
        self._raw, self._numbers, self._written = self._raw[kept], self._numbers[kept], self._written[kept]


def _ordered(raw: decode.Records, numbers: decode.Numbers) -> Records:
    return Records(*decode.in_order(raw, numbers))


def _bytes(raw: decode.Records) -> npt.NDArray[np.uint8]:
    return raw.view(np.uint8).reshape(len(raw), ring.RECORD_BYTES)


def _differ(one: decode.Records, other: decode.Records) -> Mask:
    """Which records are not the same, byte for byte."""
    words = ring.RECORD_BYTES // 8
    differ: Mask = (one.view("<u8").reshape(-1, words) != other.view("<u8").reshape(-1, words)).any(axis=1)
    return differ


def _is_generation(raw: decode.Records, generations: decode.Numbers) -> Mask:
    data = _bytes(raw)
    begin = data[:, 0:4].copy().view("<u4").reshape(-1)
    end = data[:, ring.END_OFFSET : ring.END_OFFSET + 4].copy().view("<u4").reshape(-1)
    matches: Mask = (begin == generations) & (end == generations)
    return matches


def _int64(data: npt.NDArray[np.uint8], layout: ring.RingLayout, column: str) -> npt.NDArray[np.int64]:
    offset = layout.fields[column].offset
    values: npt.NDArray[np.int64] = data[:, offset : offset + 8].copy().view("<i8").reshape(-1)
    return values
