"""Every event of a Kineto trace that HolisticTraceAnalysis would keep, as columns: it needs the host's events too."""

from array import array
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from .kineto_events import TraceFile
from .trace_rank import NONE, PARAMETERS, STEP_PREFIX, global_rank, whole

NO_NUMBER: Final = NONE


class HtaArguments(msgspec.Struct, gc=False):
    """What HTA reads of an event, and what tells the rank."""

    stream: Any = None
    correlation: Any = None
    ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    rank: Any = msgspec.field(default=None, name="Rank")


class HtaEvent(msgspec.Struct, gc=False):
    """One event, its times as the doubles that HTA computes with."""

    cat: Any = None
    name: Any = ""
    ts: float = 0.0
    dur: float | None = None
    args: HtaArguments | None = None


@dataclass(slots=True)
class RawEvents:
    """Events with a category and a duration, without those of category Trace; times in microseconds, as doubles.

    Those without a stream and a correlation that are no step are left out: nothing asks for them but has_fractions,
    which says whether any time, of them too, is not a whole microsecond.
    names: each once; name: its position there. rank_told, rank_in_metadata: None where the trace does not tell.
    """

    start: "array[float]" = field(default_factory=lambda: array("d"))
    duration: "array[float]" = field(default_factory=lambda: array("d"))
    stream: "array[int]" = field(default_factory=lambda: array("q"))
    correlation: "array[int]" = field(default_factory=lambda: array("q"))
    name: "array[int]" = field(default_factory=lambda: array("i"))
    names: dict[str, int] = field(default_factory=dict)
    rank_told: int | None = None
    rank_in_metadata: int | None = None
    num_skipped: int = 0
    has_fractions: bool = False

    def step_of(self, name: str) -> int:
        """The number of a profiled step by its name; -1 for any other name."""
        number = name.removeprefix(STEP_PREFIX) if name.startswith(STEP_PREFIX) else ""
        return whole(number) if number else NO_NUMBER


def read_events(path: str) -> RawEvents:
    """The events of one file. Raises UnreadableFile, OSError."""
    found, file = RawEvents(), TraceFile(path, HtaEvent)
    for events in file.batches():
        _add(found, [event for event in events if event.dur is not None and event.cat and event.cat != "Trace"])
    told = file.metadata.distributed
    found.rank_in_metadata, found.num_skipped = (told.rank if told else None), file.damage.num_skipped
    return found


def _add(found: RawEvents, events: list[HtaEvent]) -> None:
    if not found.has_fractions:
        found.has_fractions = any(event.ts % 1 or (event.dur or 0.0) % 1 for event in events)
    if found.rank_told is None:
        told = (global_rank(event.args) for event in events if event.name == PARAMETERS and event.args)
        found.rank_told = next((rank for rank in told if rank is not None), None)
    events = [event for event in events if _is_asked_for(event)]
    names, arguments = found.names, [event.args or _NOTHING_TOLD for event in events]
    found.start.extend([event.ts for event in events])
    found.duration.extend([event.dur or 0.0 for event in events])
    found.stream.extend([whole(item.stream) for item in arguments])
    found.correlation.extend([whole(item.correlation) for item in arguments])
    found.name.extend([names.setdefault(str(event.name), len(names)) for event in events])


def _is_asked_for(event: HtaEvent) -> bool:
    told = event.args
    if told is not None and (told.stream is not None or told.correlation is not None):
        return True
    return str(event.name).startswith(STEP_PREFIX)


_NOTHING_TOLD: Final = HtaArguments()
