"""Everything that one agent exports, as it stands: the series of each living rank and of the node, by run.

Fed with what the agent's passes give, in one thread; read as a `Snapshot`. The series of a rank outlive a restart of
it, and disappear once its last values have been read after its death: a histogram of a dead rank is no news.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rankscope.schema.process_rows import PlacedRow
from rankscope.schema.process_state import ProcessState, Row, RunRef
from rankscope.schema.ring_rows import Part

from ..watchdog import DEAD_RANK, HANG, Incident
from . import readings
from .arrivals import Arrivals
from .incidents import incident_span
from .records import COLLECTIVE, MEMORY, RankRecords, operation
from .resources import resource_of
from .series import Attributes, Point, Series
from .span import Span
from .step_spans import StepSpans
from .wall import WallClock
from .wanted import Wanted

KEPT_NS: Final = 20_000_000_000
"""So long a dead rank's last values can be pulled."""
PENDING: Final = "training.collective.pending"
SEEN: Final = "training.collective.io"
"""Operations of a kind that this counts are known to be none open, unless some are."""


class Piece(NamedTuple):
    """One part of a pass over a process, as `drain.PlacedPart` has it."""

    kind: int
    incarnation: int
    part: Part
    is_final: bool


class RunPoints(NamedTuple):
    """What one run gives to one export."""

    resource: dict[str, Any]
    points: tuple[Point, ...]


class Snapshot(NamedTuple):
    """All values at one moment, ns since 1970."""

    time_ns: int
    runs: tuple[RunPoints, ...]


@dataclass(slots=True)
class _Process:
    state: ProcessState
    records: RankRecords
    spans: StepSpans
    clock: WallClock
    rank: int | None = None


@dataclass(slots=True)
class _Rank:
    series: Series
    living: set[int] = field(default_factory=set)
    died_ns: int = 0
    is_told: bool = False


@dataclass(slots=True)
class _Run:
    ref: RunRef
    node: Series
    ranks: dict[int, _Rank] = field(default_factory=dict)
    processes: dict[int, _Process] = field(default_factory=dict)
    devices: dict[str, Row] = field(default_factory=dict)
    device_ranks: dict[str, int] = field(default_factory=dict)
    arrivals: Arrivals = field(default_factory=Arrivals)
    resource: dict[str, Any] = field(default_factory=dict)
    described: set[int] = field(default_factory=set)
    is_told: bool = False


class Meter:
    """The series of one agent. token: names the agent among all. now_ns: the time since 1970, for tests."""

    def __init__(self, wanted: Wanted, token: str, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._wanted, self._token, self._now_ns = wanted, token, now_ns
        self._runs: dict[RunRef, _Run] = {}
        self._spans: list[tuple[dict[str, Any], Span]] = []

    def saw(
        self, ref: RunRef, state: ProcessState, parts: Iterable[Piece], rows: Iterable[PlacedRow], is_last: bool
    ) -> None:
        """One pass over one process. is_last: it is dead."""
        run = self._run(ref, state)
        process = run.processes.get(state.proc)
        if process is None:
            clock = WallClock()
            spans = StepSpans(ref.run_id, state.proc, self._wanted.sampler, self._wanted.parent, clock)
            process = run.processes[state.proc] = _Process(state, RankRecords(state), spans, clock)
        self._take_rows(run, process, rows)
        for item in parts:
            self._take_part(run, process, item)
        self._take_spans(run, process, is_last)
        self._take_life(run, process, is_last)

    def sampled(self, ref: RunRef, rows: Iterable[PlacedRow]) -> None:
        """Readings of the node's samplers for one run."""
        run = self._runs.get(ref)
        if run is None:
            return
        for placed in rows:
            if placed.table == "device":
                run.devices.setdefault(str(placed.row.get("device_uuid")), {}).update(placed.row)
            elif placed.table == "device_sample":
                uuid = str(placed.row.get("device_uuid"))
                rank = run.device_ranks.get(uuid)
                own: Attributes = (("training.rank", rank),) if rank is not None else ()
                readings.device(placed.row, run.devices.get(uuid, {}), own, run.node)
            elif placed.table in readings.NODE_TABLES:
                readings.NODE_TABLES[placed.table](placed.row, run.node)
            elif placed.table in readings.RANK_TABLES:
                self._rank_row(run, placed)

    def incident(self, incident: Incident) -> None:
        """Something went wrong: counted for each rank concerned, and a span."""
        run = self._runs.get(incident.run)
        if run is None:
            return
        for rank in incident.ranks:
            run.node.add("training.incidents", (("training.rank", rank), ("training.incident.kind", incident.kind)), 1)
        clock = WallClock([(time.monotonic_ns(), self._now_ns())])
        self._spans.append((run.resource, incident_span(incident, clock)))

    def snapshot(self, is_push: bool) -> Snapshot:
        """All values now. is_push: dead ranks are told for the last time."""
        now_ns = self._now_ns()
        found = []
        for run in self._runs.values():
            for number, lag_ns in run.arrivals.lags().items():
                if number in run.ranks:
                    run.ranks[number].series.put("training.rank.lag", (), lag_ns)
            own: Attributes = (("training.run.id", run.ref.run_id),)
            points = list(run.node.points(own))
            for number, rank in list(run.ranks.items()):
                self._put_pending(run, number, rank)
                points += rank.series.points((("training.rank", number), *own))
                rank.is_told |= is_push
                if self._is_forgotten(rank, now_ns):
                    del run.ranks[number]
            if points:
                found.append(RunPoints(run.resource, tuple(points)))
        self._runs = {ref: run for ref, run in self._runs.items() if run.ranks or run.processes}
        return Snapshot(now_ns, tuple(found))

    def spans(self) -> list[tuple[dict[str, Any], Span]]:
        """The spans made since the last call, each with its resource."""
        made, self._spans = self._spans, []
        return made

    def _run(self, ref: RunRef, state: ProcessState) -> _Run:
        run = self._runs.get(ref)
        if run is None:
            run = self._runs[ref] = _Run(ref, Series(self._now_ns()))
        if state.proc not in run.described or (state.run_row and not run.is_told):
            run.described.add(state.proc)
            run.is_told |= bool(state.run_row)
            run.resource = resource_of(run.resource, ref, state, self._wanted, self._token)
        return run

    def _take_rows(self, run: _Run, process: _Process, rows: Iterable[PlacedRow]) -> None:
        for placed in rows:
            if placed.table == "clock":
                process.clock.add(int(placed.row["monotonic_ns"]), int(placed.row["wall_ns"]))
            elif placed.table in readings.RANK_TABLES:
                self._rank_row(run, placed)

    def _rank_row(self, run: _Run, placed: PlacedRow) -> None:
        rank = run.ranks.get(placed.row.get("rank", -1))
        if rank is not None:
            readings.RANK_TABLES[placed.table](placed.row, rank.series)

    def _take_part(self, run: _Run, process: _Process, item: Piece) -> None:
        number = item.part.rank
        if number is None:
            return
        process.rank = number
        rank = self._rank(run, number)
        process.records.digest(item.kind, item.part, item.is_final, rank.series)
        process.spans.digest(item.kind, item.incarnation, item.part)
        if item.kind == MEMORY:
            for device in {value[0][1] for name, value in rank.series.numbers
                           if name == "training.device.memory.usage"}:  # fmt: skip
                run.device_ranks[str(device)] = number
        elif item.kind == COLLECTIVE:
            for kind, skews in run.arrivals.saw(process.state, number, item.incarnation, item.part):
                run.node.observe("training.collective.skew", (("training.group", kind),), skews)

    def _rank(self, run: _Run, number: int) -> _Rank:
        rank = run.ranks.get(number)
        if rank is None:
            rank = run.ranks[number] = _Rank(Series(self._now_ns()))
            for kind in (DEAD_RANK, HANG):  # a counter that begins at 1 shows no increase
                run.node.add("training.incidents", (("training.rank", number), ("training.incident.kind", kind)), 0)
        return rank

    def _take_spans(self, run: _Run, process: _Process, is_last: bool) -> None:
        if "otlp" in self._wanted.traces or "console" in self._wanted.traces:
            self._spans += [(run.resource, span) for span in process.spans.take(is_last)]

    def _take_life(self, run: _Run, process: _Process, is_last: bool) -> None:
        joins, proc = process.state.joins, process.state.proc
        number = process.rank if process.rank is not None else (joins[-1].rank if joins else None)
        if number is None:
            return
        rank = self._rank(run, number)
        if joins:
            rank.series.put("training.restarts", (), joins[-1].body.get("restart_count"))
        if is_last:
            rank.living.discard(proc)
            rank.died_ns, rank.is_told = self._now_ns(), False
            run.processes.pop(proc, None)
        else:
            rank.living.add(proc)

    def _put_pending(self, run: _Run, number: int, rank: _Rank) -> None:
        counts: dict[Attributes, int] = {key: 0 for name, key in rank.series.numbers if name in (PENDING, SEEN)}
        for process in run.processes.values():
            if process.rank == number:
                for item in process.records.open.by_record.values():
                    attributes: Attributes = (
                        ("training.collective.operation", operation(item.op)),
                        ("training.group", process.records.group_kind(item.group)),
                    )
                    counts[attributes] = counts.get(attributes, 0) + 1
        for attributes, count in counts.items():
            rank.series.put(PENDING, attributes, count)

    def _is_forgotten(self, rank: _Rank, now_ns: int) -> bool:
        is_pushed = rank.is_told or not (self._wanted.metrics - {"prometheus"})
        is_old = now_ns - rank.died_ns > KEPT_NS or "prometheus" not in self._wanted.metrics
        return not rank.living and is_pushed and is_old and rank.died_ns > 0
