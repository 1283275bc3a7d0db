"""Every event of a Kineto trace that HolisticTraceAnalysis would keep, as columns: it needs the host's events too."""

from array import array
from dataclasses import dataclass, field
from typing import Final

from .kineto_events import NOTHING_TOLD, Event, TraceFile
from .kineto_trace import PARAMETERS, STEP_PREFIX, rank_told

NO_NUMBER: Final = -1


@dataclass(slots=True)
class RawEvents:
    """Events with a category and a duration, without those of category Trace; times in microseconds, as doubles.

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

    def step_of(self, name: str) -> int:
        """The number of a profiled step by its name; -1 for any other name."""
        number = name.removeprefix(STEP_PREFIX) if name.startswith(STEP_PREFIX) else ""
        return int(number) if number.isdigit() else NO_NUMBER


def read_events(path: str) -> RawEvents:
    """The events of one file. Raises UnreadableFile, OSError."""
    found, file = RawEvents(), TraceFile(path)
    for events in file.batches():
        for event in events:
            if event.cat and event.cat != "Trace" and bytes(event.dur):
                _add(found, event)
    told = file.metadata.distributed
    found.rank_in_metadata, found.num_skipped = (told.rank if told else None), file.damage.num_skipped
    return found


def _add(found: RawEvents, event: Event) -> None:
    try:
        start, duration = float(bytes(event.ts).strip(b'"')), float(bytes(event.dur).strip(b'"'))
    except ValueError:
        return
    arguments = event.args or NOTHING_TOLD
    name = str(event.name)
    found.start.append(start)
    found.duration.append(duration)
    found.stream.append(_number(arguments.stream))
    found.correlation.append(_number(arguments.correlation))
    found.name.append(found.names.setdefault(name, len(found.names)))
    if name == PARAMETERS and found.rank_told is None:
        found.rank_told = rank_told(event)


def _number(value: object) -> int:
    try:
        return int(value)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):
        return NO_NUMBER
