"""Where the time of each rank went: computing, communicating with nothing else going on, copying, other, idle.

Device timeline (an imported trace): of one rank and device, from its first activity to its last. compute = U(K),
exposed communication = U(C \\ K), exposed copies = U(M \\ (K u C)), exposed other = U(O \\ (K u C u M)), idle = the
rest, where U is the length of a union and K, C, M, O are the activities by class. The five sum to the span: asserted.
Example: compute [0, 10), communication [5, 20), copy [18, 25) and the next activity at 30: compute 10, exposed
communication 10, exposed copies 5, idle 5; overlap 5 of 15.

Live runs have no device timeline, and none is made up. Where collectives run on the host (gloo), compute is the time in
forward, backward and optimizer without the waits inside them that the host can see (those of DDP's reducer, in C++, it
cannot: they are in compute, and said to be); on CUDA compute and idle are none, and exposed
communication is the stall of the current stream, where device times were taken. Intervals are swept once, in SQL, in
integers: about a second for ten million activities.
"""

from dataclasses import replace
from typing import Any, Final

from .coverage import RECORDS
from .evidence import Evidence
from .partials import Pair, Partial
from .profile import COLLECTIVES, SPANS
from .run import Row, Run
from .statements import statement
from .timeline import (
    ANALYZER,
    CUDA_HOST,
    DEVICE_WINDOW,
    HOST,
    NameTime,
    Timeline,
    Times,
    device_timelines,
    ratios,
    scope_of,
    suspects_of,
)

DEVICES: Final = Pair(ANALYZER, "device", (Partial(ANALYZER, "device", ("kernel",)),))
NAMES: Final = Pair.of_rows(ANALYZER, "names", ("kernel",))
LIVE: Final = Pair(
    ANALYZER, "live",
    (Partial(ANALYZER, "live_partial", ("collective", "span", "step"), ("part_live",)), COLLECTIVES, SPANS),
)  # fmt: skip
PAIRS: Final = (DEVICES, NAMES, LIVE)
"""Everything that this analyzer asks of the large tables."""
_NO_KERNELS: Final = "only host times: what the device did was not recorded"
_INSIDE: Final = "waited for inside backward, where the host cannot see it"
_AS_COMPUTE: Final = "what the host cannot see of waits inside backward (DDP's reducer) is counted as compute"
_ROWS_LOST: Final = "rows of this rank are missing, among them all of its operations"
_NO_STALLS: Final = "no device times were taken (RANKSCOPE_DEVICE_TIMES)"


def times(run: Run, coverage: float | None = None) -> Times:
    """Where the time of every rank of `run` went. A run has device timelines or live ones, never both."""
    names = tuple(NameTime(*row) for row in NAMES.rows(run))
    live = LIVE.rows(run) if run.rows(statement(ANALYZER, "is_live"))[0][0] else []
    lost = _lost(run) if live and coverage is not None and coverage < 1 else frozenset()
    timelines = tuple(_live(run, row, coverage, row[:2] in lost) for row in live) if live else _devices(run, coverage)
    return Times(timelines, names, suspects_of(names), "" if timelines else _why_none(run))


def _devices(run: Run, coverage: float | None) -> tuple[Timeline, ...]:
    sql = statement(ANALYZER, "device")
    told = Evidence(run, ANALYZER, sql, ("kernel",), coverage, predicate="category <> 'cpu_op'",
                    window=DEVICE_WINDOW, timing_source="trace")  # fmt: skip
    return device_timelines(told, DEVICES.rows(run))


def _lost(run: Run) -> frozenset[Row]:
    """(incarnation, rank) of the processes that claim more rows than are there."""
    present = {row[0]: row[1] for row in RECORDS.rows(run)}
    return frozenset((incarnation or 0, rank) for proc, incarnation, rank, num_records
                     in run.rows("SELECT proc, incarnation, rank, num_records FROM process")
                     if (num_records or 0) > present.get(proc, 0))  # fmt: skip


def _live(run: Run, row: Row, coverage: float | None, is_lossy: bool) -> Timeline:
    """is_lossy: rows of it are missing. If none of an operation is there, nothing is known of communication."""
    incarnation, rank, span, compute, communication, wait, overlap, other, _, on_device = row[:10]
    is_device, num_work, num_operations, num_steps, num_inside = row[10:]
    told = Evidence(
        run, ANALYZER, statement(ANALYZER, "live"), ("step", "span", "collective"), coverage, window="counted steps",
        timing_source="device_event" if is_device and on_device is not None else "host",
    )  # fmt: skip
    no_talk = _ROWS_LOST if is_lossy and not num_operations else ""
    no_work = no_talk or ("" if num_work else "no forward, backward or optimizer was recorded")
    scope = scope_of(rank, incarnation)
    if is_device:
        return _cuda(told, scope, row)
    values: dict[str, tuple[Any, str]] = {
        "time.span": (span, ""), "time.compute": (None if no_work else compute, no_work),
        "time.communication": (None if no_talk else communication, no_talk),
        "time.host_wait": (None, no_talk) if no_talk else _visible(wait, num_inside),
        "time.overlap": (None if no_work else overlap, no_work), "time.exposed_other": (other, ""),
    }  # fmt: skip
    unseen = (_AS_COMPUTE,) if num_inside else ()
    assert compute + wait + other == span, "the parts of the steps do not sum to them"
    num = num_operations + num_work
    told = replace(told, caveats=unseen)
    found = {name: told.measurement(name, value, scope, num, reason=why) for name, (value, why) in values.items()}
    known = None if no_work else compute
    found |= ratios(told, scope, num, known, communication, None if no_work else overlap, no_work)
    return Timeline(rank, incarnation, "", HOST, num_steps, found)


def _cuda(told: Evidence, scope: dict[str, Any], row: Row) -> Timeline:
    incarnation, rank, span, wait, stall, on_device = row[0], row[1], row[2], row[5], row[8], row[9]
    num_operations, num_steps = row[12], row[13]
    values: dict[str, tuple[Any, str]] = {
        "time.span": (span, ""), "time.compute": (None, _NO_KERNELS),
        "time.communication": (on_device, "" if on_device is not None else _NO_STALLS),
        "time.exposed_communication": (stall, "" if stall is not None else _NO_STALLS),
        "time.host_wait": _visible(wait, row[14]), "time.idle": (None, _NO_KERNELS),
    }  # fmt: skip
    sampled = ("device times are those of the sampled steps only",) if on_device is not None else ()
    found = {name: told.measurement(name, value, scope, num_operations, reason=why, caveats=sampled)
             for name, (value, why) in values.items()}  # fmt: skip
    return Timeline(rank, incarnation, "", CUDA_HOST, num_steps, found)


def _visible(wait_ns: int, num_inside: int) -> tuple[int | None, str]:
    """The host-visible wait, and why there is none: where C++ waited, nothing seen is not nothing waited."""
    return (None, _INSIDE) if num_inside and not wait_ns else (wait_ns, "")


def _why_none(run: Run) -> str:
    if run.rows(statement(ANALYZER, "operators"))[0][0]:
        return "the traces hold operators of the host only, and no device activity"
    return "no device activity was imported, and no step of a live run counts"
