"""Where the time of each rank went: computing, communicating with nothing else going on, copying, other, idle.

Device timeline (an imported trace): of one rank and device, from its first activity to its last. compute = U(K),
exposed communication = U(C \\ K), exposed copies = U(M \\ (K u C)), exposed other = U(O \\ (K u C u M)), idle = the
rest, where U is the length of a union and K, C, M, O are the activities by class. The five sum to the span: asserted.
Example: compute [0, 10), communication [5, 20), copy [18, 25) and the next activity at 30: compute 10, exposed
communication 10, exposed copies 5, idle 5; overlap 5 of 15.

Live runs have no device timeline, and none is made up. Where collectives run on the host (gloo), compute is the time in
forward, backward and optimizer without the waits inside them; on CUDA compute and idle are none, and exposed
communication is the stall of the current stream, where device times were taken. Intervals are swept once, in SQL, in
integers: about a second for ten million activities.
"""

from dataclasses import dataclass
from typing import Any, Final

from rankscope.schema.kernel_classes import looks_like_communication
from rankscope.schema.measurement import Measurement, Verdict

from .evidence import Evidence
from .headline import Headline
from .partials import Pair, Partial
from .profile import COLLECTIVES, SPANS
from .run import Row, Run
from .statements import statement
from .time_headlines import time_headlines

ANALYZER: Final = "time"
DEVICE, HOST, CUDA_HOST = "device", "host", "cuda_host"
PARTS: Final = ("time.compute", "time.exposed_communication", "time.exposed_copy", "time.exposed_other", "time.idle")
"""The partition of a device's span."""
DEVICES: Final = Pair(ANALYZER, "device", (Partial(ANALYZER, "device", "process", ("kernel",)),))
NAMES: Final = Pair.of_rows(ANALYZER, "names", ("kernel",))
LIVE: Final = Pair(
    ANALYZER, "live",
    (Partial(ANALYZER, "live_partial", "process", ("collective", "span", "step"), ("part_live",)), COLLECTIVES, SPANS),
)  # fmt: skip
PAIRS: Final = (DEVICES, NAMES, LIVE)
"""Everything that this analyzer asks of the large tables."""
_NO_KERNELS: Final = "only host times: what the device did was not recorded"
_NO_STALLS: Final = "no device times were taken (RANKSCOPE_DEVICE_TIMES)"


@dataclass(frozen=True, slots=True)
class Timeline:
    """One rank (and device) in one incarnation. kind: `DEVICE`, `HOST` (gloo) or `CUDA_HOST`.

    measurements: by name. num_intervals: activities or operations they are made of.
    """

    rank: int | None
    incarnation: int
    device: str
    kind: str
    num_intervals: int
    measurements: dict[str, Measurement]

    def value(self, name: str) -> int | float | None:
        """The value of a measurement; None where there is none."""
        found = self.measurements.get(name)
        return None if found is None or found.value is None else found.value  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class NameTime:
    """The activities of one name. total_ns is a sum over activities, not a union."""

    kernel_class: str
    name: str
    num: int
    total_ns: int


@dataclass(frozen=True, slots=True)
class Times:
    """The answer. names: every name of a device activity, longest first; suspects: those that count as compute though
    their names speak of communication. reason: why there is no timeline, if there is none."""

    timelines: tuple[Timeline, ...]
    names: tuple[NameTime, ...]
    suspects: tuple[NameTime, ...]
    reason: str = ""

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, by rank."""
        return tuple(item for timeline in self.timelines for item in timeline.measurements.values())

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """None: a division of time blames nobody."""
        return ()

    @property
    def headlines(self) -> tuple[Headline, ...]:
        """How much is exposed and idle, where devices tell it."""
        return tuple(time_headlines(self))


def times(run: Run, coverage: float | None = None) -> Times:
    """Where the time of every rank of `run` went. A run has device timelines or live ones, never both."""
    names = tuple(NameTime(*row) for row in NAMES.rows(run))
    suspects = tuple(item for item in names if item.kernel_class == "compute" and looks_like_communication(item.name))
    live = LIVE.rows(run) if run.rows(statement(ANALYZER, "is_live"))[0][0] else []
    timelines = tuple(_live(run, row, coverage) for row in live) if live else _devices(run, coverage)
    return Times(timelines, names, suspects, "" if timelines else _why_none(run))


def _devices(run: Run, coverage: float | None) -> tuple[Timeline, ...]:
    sql = statement(ANALYZER, "device")
    told = Evidence(run, ANALYZER, sql, ("kernel",), coverage, predicate="category <> 'cpu_op'",
                    window="first to last device activity", timing_source="trace")  # fmt: skip
    rows = DEVICES.rows(run)
    several = {(row[0], row[1]) for row in rows if sum(other[:2] == row[:2] for other in rows) > 1}
    return tuple(_device(told, row, is_one=(row[0], row[1]) not in several) for row in rows)


def _device(told: Evidence, row: Row, is_one: bool) -> Timeline:
    incarnation, rank, device = row[:3]
    span, compute, communication, copy, overlap, exposed, exposed_copy, other, idle, num = row[3:]
    assert compute + exposed + exposed_copy + other + idle == span, "the parts of the span do not sum to it"
    scope = _scope(rank, incarnation) | ({} if is_one else {"device": device})
    values: dict[str, Any] = {
        "time.span": span, "time.compute": compute, "time.communication": communication, "time.copy": copy,
        "time.overlap": overlap, "time.exposed_communication": exposed, "time.exposed_copy": exposed_copy,
        "time.exposed_other": other, "time.idle": idle,
    }  # fmt: skip
    found = {name: told.measurement(name, value, scope, num) for name, value in values.items()}
    found |= _ratios(told, scope, num, compute, communication, overlap)
    found["ratio.exposed"] = told.measurement(
        "ratio.exposed", exposed / span if span else None, scope, num, reason="" if span else "its span is empty"
    )
    return Timeline(rank, incarnation, device, DEVICE, num, found)


def _live(run: Run, row: Row, coverage: float | None) -> Timeline:
    incarnation, rank, span, compute, communication, wait, overlap, other, _, on_device = row[:10]
    is_device, num_work, num_operations, num_steps = row[10:]
    told = Evidence(
        run, ANALYZER, statement(ANALYZER, "live"), ("step", "span", "collective"), coverage, window="counted steps",
        timing_source="device_event" if is_device and on_device is not None else "host",
    )  # fmt: skip
    scope, no_work = _scope(rank, incarnation), "" if num_work else "no forward, backward or optimizer was recorded"
    if is_device:
        return _cuda(told, scope, row)
    values: dict[str, tuple[Any, str]] = {
        "time.span": (span, ""), "time.compute": (None if no_work else compute, no_work),
        "time.communication": (communication, ""), "time.host_wait": (wait, ""),
        "time.overlap": (None if no_work else overlap, no_work), "time.exposed_other": (other, ""),
    }  # fmt: skip
    assert compute + wait + other == span, "the parts of the steps do not sum to them"
    num = num_operations + num_work
    found = {name: told.measurement(name, value, scope, num, reason=why) for name, (value, why) in values.items()}
    known = None if no_work else compute
    found |= _ratios(told, scope, num, known, communication, None if no_work else overlap, no_work)
    return Timeline(rank, incarnation, "", HOST, num_steps, found)


def _cuda(told: Evidence, scope: dict[str, Any], row: Row) -> Timeline:
    incarnation, rank, span, wait, stall, on_device = row[0], row[1], row[2], row[5], row[8], row[9]
    num_operations, num_steps = row[12], row[13]
    values: dict[str, tuple[Any, str]] = {
        "time.span": (span, ""), "time.compute": (None, _NO_KERNELS),
        "time.communication": (on_device, "" if on_device is not None else _NO_STALLS),
        "time.exposed_communication": (stall, "" if stall is not None else _NO_STALLS),
        "time.host_wait": (wait, ""), "time.idle": (None, _NO_KERNELS),
    }  # fmt: skip
    sampled = ("device times are those of the sampled steps only",) if on_device is not None else ()
    found = {name: told.measurement(name, value, scope, num_operations, reason=why, caveats=sampled)
             for name, (value, why) in values.items()}  # fmt: skip
    return Timeline(rank, incarnation, "", CUDA_HOST, num_steps, found)


def _ratios(
    told: Evidence, scope: dict[str, Any], n: int, compute: int | None, communication: int, overlap: int | None,
    why: str = "",
) -> dict[str, Measurement]:  # fmt: skip
    none_computed, silent = why or "it computed nothing", why or "it did not communicate"
    return {
        "ratio.communication_computation": told.measurement(
            "ratio.communication_computation", communication / compute if compute else None, scope, n,
            reason="" if compute else none_computed,
        ),
        "ratio.overlap": told.measurement(
            "ratio.overlap", overlap / communication if communication and overlap is not None else None, scope, n,
            reason="" if communication and overlap is not None else silent,
        ),
    }  # fmt: skip


def _scope(rank: int | None, incarnation: int) -> dict[str, Any]:
    return {"rank": rank} | ({"incarnation": incarnation} if incarnation else {})


def _why_none(run: Run) -> str:
    if run.rows(statement(ANALYZER, "operators"))[0][0]:
        return "the traces hold operators of the host only, and no device activity"
    return "no device activity was imported, and no step of a live run counts"
