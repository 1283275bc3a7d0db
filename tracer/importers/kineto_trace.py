"""One Kineto trace in memory: the device's activities, what launched them, annotations and steps, and nothing else.

Held as columns of 64-bit numbers (about 60 bytes an activity), names once each; memory is bounded by one file. Times
are nanoseconds since 1970, exact. Operators of the host are only kept where the trace has no device (they are most of
a trace): the file is then read twice.

Quarantine: an activity whose time cannot be (0, negative, or far outside everything that the host did; such records
come from profilers that were armed again, pytorch #192021) is left out, counted, and given with its reason.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress, repeat
from operator import add
from typing import Any, Final

from rankscope.schema.kernel_classes import HOST_CATEGORY

from . import kineto_quick
from .kineto_events import NOTHING_TOLD, Arguments, Damage, Event, Metadata, TraceFile, nanoseconds
from .kineto_kinds import ANNOTATION, DEVICE, KINDS, LAUNCH, OPERATOR, TRACE, WORDS
from .kineto_quick import Chunk
from .trace_rank import PARAMETERS, STEP_PREFIX, global_rank, whole

MARGIN_NS: Final = 60_000_000_000
"""A device activity this far outside what the host recorded, and further than the trace is long, is not believed."""
NAME_COLUMNS: Final = 60
"""Characters of a kernel's name that a note repeats: templates have names of a thousand."""


@dataclass(slots=True)
class Table:
    """Intervals with a name. names: each once; name: its position there."""

    start: "array[int]" = field(default_factory=lambda: array("q"))
    end: "array[int]" = field(default_factory=lambda: array("q"))
    name: "array[int]" = field(default_factory=lambda: array("i"))
    names: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.start)

    def add(self, start: int, end: int, name: str) -> None:
        """One more interval."""
        self.start.append(start)
        self.end.append(end)
        self.name.append(self.names.setdefault(name, len(self.names)))


@dataclass(slots=True)
class Activities(Table):
    """Device activities; category: position in `categories`."""

    stream: "array[int]" = field(default_factory=lambda: array("q"))
    device: "array[int]" = field(default_factory=lambda: array("q"))
    correlation: "array[int]" = field(default_factory=lambda: array("q"))
    category: "array[int]" = field(default_factory=lambda: array("i"))
    categories: dict[str, int] = field(default_factory=dict)

    def add_device(self, start: int, end: int, name: str, category: str, arguments: Any) -> None:
        """One more activity of a device."""
        self.add(start, end, name)
        self.stream.append(whole(arguments.stream))
        self.device.append(whole(arguments.device))
        self.correlation.append(whole(arguments.correlation))
        self.category.append(self.categories.setdefault(category, len(self.categories)))


@dataclass(slots=True)
class Trace:
    """What one file holds. told: arguments of communication kernels by position in `device`.

    num_incomplete: events without a usable time. quarantined: activities left out, each with the reason.
    """

    path: str
    metadata: Metadata = field(default_factory=Metadata)
    damage: Damage = field(default_factory=Damage)
    num_events: int = 0
    num_incomplete: int = 0
    device: Activities = field(default_factory=Activities)
    operators: Activities = field(default_factory=Activities)
    annotations: Table = field(default_factory=Table)
    steps: Table = field(default_factory=Table)
    launch_start: "array[int]" = field(default_factory=lambda: array("q"))
    launch_correlation: "array[int]" = field(default_factory=lambda: array("q"))
    told: dict[int, Arguments] = field(default_factory=dict)
    comms_rank: int | None = None
    window: list[int] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)

    @property
    def bounds(self) -> tuple[int, int] | None:
        """Begin and end of everything in it; None where there is nothing."""
        tables = [table for table in (self.device, self.operators, self.annotations, self.steps) if len(table)]
        return (min(min(t.start) for t in tables), max(max(t.end) for t in tables)) if tables else None

    @property
    def num_lost(self) -> int:
        """Events that were there and are not in it."""
        return self.damage.num_skipped + self.num_incomplete + len(self.quarantined)

    @property
    def notes(self) -> str:
        """What was wrong with the file, in words; "" if nothing was."""
        notes = list(self.damage.notes)
        if self.damage.num_repaired:
            num = self.damage.num_repaired
            were = "event with damaged text was" if num == 1 else "events with damaged text were"
            notes.append(f"{num:,} {were} repaired")
        if self.num_incomplete:
            notes.append(f"{self.num_incomplete:,} events without a usable time")
        return "; ".join([*notes, *(f"not believed: {reason}" for reason in self.quarantined if reason)])


def read_trace(path: str, progress: Callable[[int], None] = lambda _: None, *, with_operators: bool = True) -> Trace:
    """Read one file. progress: called with the bytes read so far. Raises UnreadableFile, OSError.

    with_operators: read it again for the host's operators where it has nothing of a device.
    """
    trace = Trace(path)
    _read(trace, progress, _host_and_device)
    if with_operators and not len(trace.device):
        _read(Trace(path), lambda _: None, lambda _, event, kind: _operator(trace, event, kind))
    _rebase(trace)
    _quarantine(trace)
    return trace


def launches(trace: Trace, correlation: "array[int]") -> "array[int]":
    """When each of `correlation` was launched; 0 where that is not known. Of several the file's first counts."""
    known = dict(zip(reversed(trace.launch_correlation), reversed(trace.launch_start), strict=True))
    return array("q", map(known.get, correlation, repeat(0)))


def _read(trace: Trace, progress: Callable[[int], None], take: Callable[[Trace, Event, int], None]) -> None:
    file, kinds = TraceFile(trace.path, Event), KINDS.get
    if take is _host_and_device:
        file.quick = lambda text: _take_quickly(trace, text)
    for events in file.batches():
        for event in events:
            category = event.cat
            kind = kinds(category) if type(category) is str else None
            if kind is not None:
                take(trace, event, kind)
        progress(file.num_read)
    trace.metadata, trace.damage, trace.num_events = file.metadata, file.damage, file.num_events


def _take_quickly(trace: Trace, text: bytes | memoryview) -> int:
    """Take a whole chunk; how many events it had. Raises Refused, and has then taken nothing."""
    chunk = kineto_quick.decode(text)
    device = _Columns(chunk)
    launch_start, is_told = kineto_quick.starts(chunk.launches), [number > 0 for number in chunk.correlations]
    launched = kineto_quick.whole_numbers(list(compress(chunk.correlations, is_told)))
    steps = [event for event in chunk.operators if event.name.startswith(STEP_PREFIX)]
    noted = [*chunk.annotations, *steps, *chunk.windows]
    begin, duration = kineto_quick.starts(noted), kineto_quick.durations(noted)
    told = [] if trace.comms_rank is not None else [it for it in chunk.operators if it.name == PARAMETERS]
    ranks = (global_rank(it) for it in kineto_quick.arguments(told))

    device.add_to(trace)
    trace.launch_start.extend(compress(launch_start, is_told))
    trace.launch_correlation += launched
    for at, (event, start, ns) in enumerate(zip(noted, begin, duration, strict=True)):
        is_window = at >= len(noted) - len(chunk.windows)
        _note(trace, TRACE if is_window else ANNOTATION, event.name, start, start + ns)
    trace.comms_rank = next((rank for rank in ranks if rank is not None), trace.comms_rank)
    return chunk.num_events


class _Columns:
    """Activities of a device, a column at a time."""

    def __init__(self, chunk: Chunk) -> None:
        self._events, self._told, self._words = chunk.device, chunk.told, chunk.categories
        self._start = array("q", kineto_quick.starts(chunk.device))
        self._end = array("q", map(add, self._start, kineto_quick.durations(chunk.device)))
        self._stream = kineto_quick.whole_numbers([told.stream for told in self._told])
        self._device = kineto_quick.whole_numbers([told.device for told in self._told])
        self._correlation = kineto_quick.whole_numbers([told.correlation for told in self._told])

    def add_to(self, trace: Trace) -> None:
        device, first = trace.device, len(trace.device)
        names, categories = device.names, device.categories
        device.start += self._start
        device.end += self._end
        device.name.extend([names.setdefault(event.name, len(names)) for event in self._events])
        device.stream += self._stream
        device.device += self._device
        device.correlation += self._correlation
        words = [WORDS.get(word, word) for word in self._words]
        device.category.extend([categories.setdefault(word, len(categories)) for word in words])
        trace.told |= {first + at: told for at, told in enumerate(self._told) if told.op is not None}


def _host_and_device(trace: Trace, event: Event, kind: int) -> None:
    name = event.name
    if kind == LAUNCH:
        _launch(trace, event)
    elif kind == DEVICE:
        _device(trace, event)
    elif kind != OPERATOR:
        _annotation(trace, event, kind)
    elif name == PARAMETERS:
        trace.comms_rank = global_rank(event.args) if trace.comms_rank is None else trace.comms_rank
    elif type(name) is str and name.startswith(STEP_PREFIX):
        _annotation(trace, event, kind)


def _device(trace: Trace, event: Event) -> None:
    start, duration = nanoseconds(bytes(event.ts)), nanoseconds(bytes(event.dur))
    if start is None or duration is None or duration < 0:
        trace.num_incomplete += 1
        return
    name, category = str(event.name), str(event.cat)
    arguments = event.args or NOTHING_TOLD
    if arguments.op is not None:
        trace.told[len(trace.device)] = arguments
    trace.device.add_device(start, start + duration, name, WORDS.get(category, category), arguments)


def _launch(trace: Trace, event: Event) -> None:
    start = nanoseconds(bytes(event.ts))
    correlation = whole((event.args or NOTHING_TOLD).correlation)
    if start is not None and correlation > 0:
        trace.launch_start.append(start)
        trace.launch_correlation.append(correlation)


def _annotation(trace: Trace, event: Event, kind: int) -> None:
    start, duration = nanoseconds(bytes(event.ts)), nanoseconds(bytes(event.dur))
    if start is None or duration is None or duration < 0:
        trace.num_incomplete += 1
        return
    _note(trace, kind, str(event.name), start, start + duration)


def _note(trace: Trace, kind: int, name: str, start: int, end: int) -> None:
    if kind == TRACE:
        trace.window += [start, end]
    else:
        table = trace.steps if name.startswith(STEP_PREFIX) else trace.annotations
        table.add(start, end, name)


def _operator(trace: Trace, event: Event, kind: int) -> None:
    if kind != OPERATOR or str(event.name).startswith(STEP_PREFIX):
        return
    start, duration = nanoseconds(bytes(event.ts)), nanoseconds(bytes(event.dur))
    if start is not None and duration is not None and duration >= 0:
        trace.operators.add_device(start, start + duration, str(event.name), HOST_CATEGORY, NOTHING_TOLD)


def _rebase(trace: Trace) -> None:
    """Add the base time, which stands behind the events, to every time."""
    shift(trace, trace.metadata.base_ns)


def shift(trace: Trace, base: int) -> None:
    """Move every time of `trace` by `base` nanoseconds."""
    trace.window = [moment + base for moment in trace.window]
    if not base:
        return
    for table in (trace.device, trace.operators, trace.annotations, trace.steps):
        table.start = _shifted(table.start, base)
        table.end = _shifted(table.end, base)
    trace.launch_start = _shifted(trace.launch_start, base)


def _shifted(times: "array[int]", base: int) -> "array[int]":
    return array("q", [time + base for time in times])


def _quarantine(trace: Trace) -> None:
    device = trace.device
    if not len(device):
        return
    low, high = _believable(trace)
    latest_launch = max(trace.launch_start, default=0)
    if min(device.start) >= max(trace.metadata.base_ns + 1, low, latest_launch - MARGIN_NS) and max(device.end) <= high:
        return
    launched = launches(trace, device.correlation)
    is_bad = [
        start <= trace.metadata.base_ns or start < low or end > high or (launch > 0 and start < launch - MARGIN_NS)
        for start, end, launch in zip(device.start, device.end, launched, strict=True)
    ]
    if not any(is_bad):
        return
    names = list(device.names)
    for position in [at for at, is_so in enumerate(is_bad) if is_so][:3]:
        away = max(low - device.start[position], device.end[position] - high, 0) / 1e9
        trace.quarantined.append(f"{names[device.name[position]][:NAME_COLUMNS]}: {away:.0f} s outside the trace")
    trace.quarantined += [""] * (sum(is_bad) - len(trace.quarantined))
    _keep(trace, [not is_so for is_so in is_bad])


def _believable(trace: Trace) -> tuple[int, int]:
    """The times between which an activity is believed."""
    columns = [column for column in (trace.window, trace.launch_start, trace.steps.start, trace.steps.end) if column]
    if columns:
        low, high = min(map(min, columns)), max(map(max, columns))
    else:
        low = high = sorted(trace.device.start)[len(trace.device) // 2]
    margin = max(MARGIN_NS, high - low)
    return low - margin, high + margin


def _keep(trace: Trace, kept: Sequence[bool]) -> None:
    device = trace.device
    positions = {at: number for number, at in enumerate(compress(range(len(kept)), kept))}
    trace.told = {positions[at]: told for at, told in trace.told.items() if kept[at]}
    for column in ("start", "end", "stream", "device", "correlation", "name", "category"):
        values = getattr(device, column)
        setattr(device, column, array(values.typecode, compress(values, kept)))
