"""Reading a Kineto trace as a stream: JSON or gzip, a piece at a time, only the fields that anybody asks for.

A chunk is cut at a place that looks like the end of an event and decoded as an array; whether the cut was right, the
decoder says. Where a chunk cannot be decoded, its events are taken one by one: what is not UTF-8 is replaced, control
characters are allowed, what still cannot be read is skipped and counted. A file that ends early gives what came
before. Cost: 216,000 events (54 MB) in about 0.3 s; memory: one chunk and its events. Times stay text until somebody
needs them: nanosecond traces have 17 digits, and a double holds 15.9.

Source: the Chrome trace event format; pytorch/kineto output_json.cpp.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Generic, TypeVar

import msgspec

from rankscope.schema.errors import UnreadableFile

from .inflating import InflateError, new_inflater

CHUNK_BYTES: Final = 1 << 18
"""What is decoded at once: small enough that a chunk and its events lie in the processor's cache and in memory that is
used again; of 1 MiB each the pages alone cost a third of the time.
"""
MAX_EVENT_BYTES: Final = 1 << 20
"""A longer event is not waited for to end."""
MAX_HEADER_BYTES: Final = 64 << 20
"""What may stand before the events (the members of all process groups, on a large job)."""
_READ_BYTES: Final = 1 << 18
_INFLATE_BYTES: Final = 1 << 13
"""Compressed bytes taken at once: what a damaged place costs at most."""
_GZIP_MAGIC: Final = b"\x1f\x8b"
_EVENTS: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_OPEN, _CLOSE, _COMMA = b"[],"
_BETWEEN: Final = re.compile(rb"\}\s*,\s*\{")
_END: Final = re.compile(rb"\}\s*\]")
_NO_EVENT: Final = re.compile(
    rb'\s*[\[,]\s*(?:null|true|false|-?[\d.]+(?:[eE][+-]?\d+)?|"(?:[^"\\]|\\.)*"|\[[^\[\]{}]*\])\s*(?=[,\]])'
)
"""A member of the list that is no object."""
MOST_NS: Final = (1 << 63) // 3
"""Times and durations are below, so that a time, a duration and a base add up in 64 bits; it is the year 2067."""
_MAX_CUTS: Final = 4
_MAX_REFUSED: Final = 8
"""The quick way is given up after so many chunks: the file is none of its kind."""
_MAX_EVENT_PARTS: Final = 64
"""An event taken alone may hold so many objects in lists before it is given up."""
_RANK: Final = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d+)')
_BASE: Final = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d+)')


class Arguments(msgspec.Struct, gc=False):
    """What an event says of itself. The fields with other names than their own: newer traces, of communication.

    num_in, num_out: elements of the tensors. Anything may stand in a damaged or foreign trace.
    """

    stream: Any = None
    device: Any = None
    correlation: Any = None
    op: Any = msgspec.field(default=None, name="Collective name")
    num_in: Any = msgspec.field(default=None, name="In msg nelems")
    num_out: Any = msgspec.field(default=None, name="Out msg nelems")
    dtype: Any = None
    group: Any = msgspec.field(default=None, name="Process Group Name")
    description: Any = msgspec.field(default=None, name="Process Group Description")
    ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    rank: Any = msgspec.field(default=None, name="Rank")


NOTHING_TOLD: Final = Arguments()
_NO_TEXT: Final = msgspec.Raw(b"")


class Event(msgspec.Struct, gc=False):
    """One event. ts and dur (microseconds) are undecoded text, empty where absent."""

    cat: Any = ""
    name: Any = ""
    ts: msgspec.Raw = _NO_TEXT
    dur: msgspec.Raw = _NO_TEXT
    args: Arguments | None = None


class DistributedInfo(msgspec.Struct, gc=False):
    """What the trace says of the job."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None


class Metadata(msgspec.Struct):
    """What stands around the events. base_ns: to be added to all times."""

    distributed: DistributedInfo | None = msgspec.field(default=None, name="distributedInfo")
    base_ns: int = msgspec.field(default=0, name="baseTimeNanoseconds")
    host_name: str | None = None


class Refused(Exception):
    """The quick way cannot vouch for a chunk."""


E = TypeVar("E", bound=msgspec.Struct)


@dataclass(slots=True)
class Damage:
    """What was wrong. num_skipped: events that could not be read; num_repaired: events with bytes replaced."""

    num_skipped: int = 0
    num_repaired: int = 0
    notes: list[str] = field(default_factory=list)


class TraceFile(Generic[E]):
    """One trace. Iterate `batches` to the end, then `metadata` and `damage` are known; num_read: bytes of the file.

    event: which fields are decoded, `Event` or a like one. quick: takes the events of a whole chunk (a JSON array) and
    returns how many there were, or raises `Refused`; then, and without one, they come from `batches`.
    """

    quick: Callable[[bytes | memoryview], int] | None = None

    def __init__(self, path: str, event: type[E]) -> None:
        self.path, self.metadata, self.damage = path, Metadata(), Damage()
        self._array = msgspec.json.Decoder(list[event]).decode  # type: ignore[valid-type]
        self._one = msgspec.json.Decoder(event).decode
        self.num_read = self.num_events = self._num_refused = 0
        self._head = self._tail = b""
        self._is_over = False

    def batches(self) -> Iterator[list[E]]:
        """The events, some thousand at a time. Raises UnreadableFile if the file holds none and is no trace."""
        pieces, size, is_inside = list[bytes | bytearray](), 0, False
        for data in self._chunks():
            pieces.append(data)
            size += len(data)
            if size < CHUNK_BYTES and is_inside:
                continue
            buffer = bytearray().join(pieces)
            if not is_inside and (start := self._start(buffer)) is not None:
                buffer, is_inside = buffer[start:], True
            if self._is_over:
                self._tail, buffer = self._tail + buffer, bytearray()
            elif is_inside and len(buffer) >= CHUNK_BYTES:
                events, buffer = self._take(buffer)
                self.num_events += len(events)
                yield events
            pieces, size = [buffer], len(buffer)
        buffer = bytearray().join(pieces)
        if not is_inside:
            why = "; ".join(["not a Kineto trace: it has no traceEvents", *self.damage.notes])
            raise UnreadableFile(f"{self.path}: {why}")
        if self._is_over:
            self._tail += buffer
        else:
            events = self._rest(buffer)
            self.num_events += len(events)
            yield events
        self._understand()

    def _start(self, buffer: bytearray) -> int | None:
        """Where the bracket stands that opens the events. Every buffer from there on begins with such a bracket."""
        found = _EVENTS.search(buffer)
        if found is None and buffer.lstrip()[:1] == b"[":
            return buffer.index(b"[")
        if found is None:
            if len(buffer) > MAX_HEADER_BYTES:
                raise UnreadableFile(f"{self.path}: not a Kineto trace: no traceEvents in the first 64 MiB")
            return None
        self._head = bytes(buffer[: found.end()])
        return found.end() - 1

    def _take(self, buffer: bytearray) -> tuple[list[E], bytearray]:
        """The whole events of `buffer`, and what is left of it. Nothing is copied: the comma becomes the bracket."""
        for position in _last_cuts(buffer):
            comma = buffer.index(b",", position)
            buffer[comma] = _CLOSE
            try:
                events = self._events(memoryview(buffer)[: comma + 1])
            except (msgspec.DecodeError, UnicodeDecodeError):
                buffer[comma] = _COMMA
                continue
            rest = buffer[comma:]
            rest[0] = _OPEN
            return events, rest
        return self._one_by_one(buffer, is_last=False)

    def _rest(self, buffer: bytearray) -> list[E]:
        """The events in the last piece, which also holds the end of the array and what follows it."""
        ends = [match.start() for match in _END.finditer(buffer)][-_MAX_CUTS * 4 :]
        for position in reversed(ends):
            try:
                events = self._events(bytes(buffer[: position + 1]) + b"]")
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            self._is_over, self._tail = True, bytes(buffer[position + 1 :])
            return events
        if buffer[1:].lstrip()[:1] == b"]":
            self._is_over, self._tail = True, bytes(buffer[1:])
            return []
        return self._one_by_one(buffer, is_last=True)[0]

    def _events(self, text: bytes | memoryview) -> list[E]:
        """The events of an array, or none of them where the quick way took them. Raises DecodeError and the like."""
        if self.quick is not None:
            try:
                self.num_events += self.quick(text)
                return []
            except Refused:
                self._num_refused += 1
                if self._num_refused >= _MAX_REFUSED:
                    self.quick = None
        events: list[E] = self._array(text)
        return events

    def _one_by_one(self, buffer: bytearray, is_last: bool) -> tuple[list[E], bytearray]:
        """The slow way: each event alone, those that cannot be read left out and counted."""
        events: list[E] = []
        at = self._next(buffer, 0)
        while (at := buffer.find(b"{", at)) >= 0:
            found = self._event_at(buffer, at)
            if found is None:
                following = _BETWEEN.search(buffer, at)
                if following is None:
                    break
                self.damage.num_skipped += 1
                at = following.end() - 1
                continue
            event, end = found
            events.append(event)
            at = end = self._next(buffer, end)
            if buffer[end : end + 64].lstrip()[:1] == b"]":
                self._is_over, self._tail = True, bytes(buffer[end:])
                return events, bytearray()
        rest = buffer[at:] if at >= 0 else bytearray()
        if is_last:
            self.damage.num_skipped += bool(rest.strip())
            self.damage.notes.append("the file ends before its events do")
        elif len(rest) >= MAX_EVENT_BYTES:
            self.damage.num_skipped += 1
            rest = bytearray()
        return events, bytearray(b"[") + rest

    def _next(self, buffer: bytearray, at: int) -> int:
        """Where to look for the next event: behind members of the list that are none, which are counted."""
        while found := _NO_EVENT.match(buffer, at):
            self.damage.num_skipped += 1
            at = found.end()
        return at

    def _event_at(self, buffer: bytearray, at: int) -> tuple[E, int] | None:
        position = at
        for _ in range(_MAX_EVENT_PARTS):
            end = buffer.find(b"}", position)
            if end < 0:
                return None
            position = end + 1
            if bytes(buffer[position : position + 64]).lstrip()[:1] not in (b",", b"]", b""):
                continue
            event = self._decoded(bytes(buffer[at:position]))
            if event is not None:
                return event, position
        return None

    def _decoded(self, text: bytes) -> E | None:
        try:
            return self._one(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            if text.count(b"{") != text.count(b"}"):
                return None
        try:
            repaired = json.loads(text.decode("utf-8", "replace"), strict=False)
            event = self._one(json.dumps(repaired).encode())
        except (ValueError, RecursionError, msgspec.DecodeError):
            return None
        self.damage.num_repaired += 1
        return event

    def _chunks(self) -> Iterator[bytes]:
        with open(self.path, "rb") as file:
            start = file.read(_READ_BYTES)
            if start[:2] == _GZIP_MAGIC:
                yield from self._inflated(file, start)
                return
            while start:
                self.num_read += len(start)
                yield start
                start = file.read(_READ_BYTES)

    def _inflated(self, file: Any, data: bytes) -> Iterator[bytes]:
        stream = new_inflater()
        try:
            while data:
                self.num_read += len(data)
                for at in range(0, len(data), _INFLATE_BYTES):
                    piece = data[at : at + _INFLATE_BYTES]
                    while piece:
                        if stream.eof:  # several gzip members in a row
                            stream = new_inflater()
                        yield stream.decompress(piece, CHUNK_BYTES)
                        piece = stream.unused_data if stream.eof else stream.unconsumed_tail
                data = file.read(_READ_BYTES)
        except InflateError as error:
            self.damage.notes.append(f"the gzip data are damaged ({error})")
            return
        if not stream.eof:
            self.damage.notes.append("the gzip data end early")

    def _understand(self) -> None:
        text = self._head + self._tail if self._head else b"{}"
        try:
            self.metadata = msgspec.json.decode(text, type=Metadata)
        except (msgspec.DecodeError, UnicodeDecodeError):  # damaged, or something has another type than ours
            rank, base = _RANK.search(text), _BASE.search(text)
            known = DistributedInfo(int(rank[1])) if rank else None
            self.metadata = Metadata(known, int(base[1]) if base else 0)
        self.metadata.base_ns *= abs(self.metadata.base_ns) < MOST_NS
        if not self._is_over and not self.damage.notes:
            self.damage.notes.append("the file ends before its events do")


def nanoseconds(microseconds: bytes) -> int | None:
    """Exact nanoseconds of a number in microseconds as it stands in the file: b"1365627865398.728". None: no number.

    Digits below a nanosecond (a double printed in full) are rounded. Beyond `MOST_NS` nothing is a time.
    """
    found = _decimal(microseconds.strip(b'" '))
    return found if found is not None and -MOST_NS < found < MOST_NS else None


def _decimal(text: bytes) -> int | None:
    whole, dot, fraction = text.partition(b".")
    try:
        if not dot:
            return int(whole) * 1000
        if len(fraction) <= 3 and whole[:1] != b"-":
            return int(whole) * 1000 + int(fraction.ljust(3, b"0"))
    except ValueError:
        pass
    try:
        return round(Decimal(text.decode()) * 1000)
    except (ValueError, InvalidOperation, UnicodeDecodeError, OverflowError):
        return None


def _last_cuts(buffer: bytearray) -> list[int]:
    """Where the last events may end (positions of their closing brace), best first."""
    found: list[int] = []
    for window in (1 << 12, 1 << 16):
        found = [match.start() for match in _BETWEEN.finditer(buffer, max(0, len(buffer) - window))]
        if len(found) >= _MAX_CUTS:
            break
    return found[: -_MAX_CUTS - 1 : -1]
