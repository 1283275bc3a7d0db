"""The quick way over a chunk of a Kineto trace: numbers straight from the decoder, a column at a time.

It is only taken where it gives what the careful way gives, to the nanosecond: every field has the type that Kineto
writes, every time is there, and is a whole number or a double that still holds nanoseconds (below 2^43 us: times since
`baseTimeNanoseconds`). Any other chunk is refused as a whole and goes the careful way, event by event.
Cost: 216,000 events (54 MB) in 0.1 s of decoding and 0.05 s here, against 0.14 s and 0.2 s. Plain lists: the decoder
gives Python's numbers, and to make arrays of them takes as long as what is done with them (and loading numpy longer).
"""

from array import array
from collections.abc import Sequence
from math import floor
from typing import Final

import msgspec

from .kineto_events import MOST_NS, Arguments, Refused
from .trace_rank import NONE

EXACT_BELOW_US: Final = 2.0**43
"""Doubles below are closer than half a nanosecond to the three decimals that they were read from."""
_MOST_US: Final = MOST_NS // 1000
_ABSENT: Final = float("nan")
_NO_ARGUMENTS: Final = msgspec.Raw(b"{}")


class QuickArguments(Arguments, gc=False):
    """As `Arguments`; these are numbers where they are there."""

    stream: int = NONE
    device: int = NONE
    correlation: int = NONE


class QuickEvent(msgspec.Struct, gc=False):
    """One event as Kineto writes it. ts, dur: microseconds, not a number where absent. args: see `arguments`."""

    cat: str = ""
    name: str = ""
    ts: int | float = _ABSENT
    dur: int | float = _ABSENT
    args: msgspec.Raw = _NO_ARGUMENTS


class _Launch(msgspec.Struct, gc=False):
    correlation: int = NONE


_decode: Final = msgspec.json.Decoder(list[QuickEvent]).decode
_arguments: Final = msgspec.json.Decoder(list[QuickArguments]).decode
_launches: Final = msgspec.json.Decoder(list[_Launch]).decode


def decode(text: bytes | memoryview) -> list[QuickEvent]:
    """The events of a JSON array. Raises Refused."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused from error


def arguments(events: Sequence[QuickEvent]) -> list[QuickArguments]:
    """What they say of themselves; most events are nobody's, so theirs are not looked at. Raises Refused."""
    try:
        return _arguments(_joined(events))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused from error


def correlations(events: Sequence[QuickEvent]) -> list[int]:
    """Which activity each of the launches started; `NONE` where that is not told. Raises Refused."""
    try:
        return [event.correlation for event in _launches(_joined(events))]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused from error


def starts(events: Sequence[QuickEvent]) -> list[int]:
    """When they began, in nanoseconds. Raises Refused."""
    return _nanoseconds([event.ts for event in events])


def durations(events: Sequence[QuickEvent]) -> list[int]:
    """How long they took, in nanoseconds. Raises Refused."""
    found = _nanoseconds([event.dur for event in events])
    if min(found, default=0) < 0:
        raise Refused
    return found


def whole_numbers(values: list[int]) -> "array[int]":
    """A column. Raises Refused."""
    try:
        return array("q", values)
    except OverflowError as error:
        raise Refused from error


def _joined(events: Sequence[QuickEvent]) -> bytes:
    return b"[" + b",".join([event.args for event in events]) + b"]"


def _nanoseconds(microseconds: list[int | float]) -> list[int]:
    if set(map(type, microseconds)) <= {int}:
        if microseconds and not -_MOST_US < min(microseconds) <= max(microseconds) < _MOST_US:
            raise Refused
        return [number * 1000 for number in microseconds]  # type: ignore[misc]
    if not all(-EXACT_BELOW_US < number < EXACT_BELOW_US for number in microseconds):  # not true of "not a number"
        raise Refused
    return [(whole := floor(number)) * 1000 + round((number - whole) * 1000) for number in microseconds]
