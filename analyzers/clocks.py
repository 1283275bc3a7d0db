"""The hosts' clocks against the clock of rank 0's host: offset, error, and what causality allows at most.

Ranks of one host share CLOCK_MONOTONIC; across hosts its zero is each one's boot, and it drifts and is slewed. The
*estimate* is the difference of the ends of operations that end together on all members, whoever came last
(`clock_fit`). The *hard bound* is causality, cut by round trips and by what the kernels say of their clocks
(`clock_bounds`): it vetoes an estimate that cannot be, and stands in where no operation ends together. A host that
shares no operation with the reference is tied to one that is tied to it. Of more than 64 processes one a host is looked
at for each group that ties hosts, and of the operations a sample: the cost grows with the hosts, beside a pass over the
operations in few columns.

It cannot see a delay that lies on one side always (a host that learns of every end 50 us late looks 50 us ahead);
such a delay stays inside the hard bound.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rankscope.schema.measurement import Interval, Measurement, Verdict

from .clock_fit import LEVEL
from .clock_rows import read_hosts
from .clock_ties import HostClock, clocks_of
from .evidence import Evidence
from .headline import INFO, WARNING, Headline
from .run import Run

ANALYZER: Final = "clocks"
STATEMENT: Final = "rankscope.analyzers.clocks.clocks"
CAVEATS: Final = ("a delay that one host always has in seeing an end is not told from its clock; the bound holds it",)
NO_ERROR: Final = "nothing tells how wrong its offset is"
NO_BOUND: Final = "no operation of which causality is known on both sides"
NO_DRIFT: Final = "too few operations to tell a drift"
_KEPT: Final = "alignment"
_TABLE: Final = (
    "CREATE OR REPLACE TEMP TABLE clock_correction (boot_id VARCHAR, from_ns BIGINT, until_ns BIGINT, "
    "offset_ns BIGINT, drift_ppb BIGINT, error_ns BIGINT)"
)
_ALIGNED: Final = (
    "CREATE OR REPLACE TEMP MACRO aligned_ns(boot, t) AS (SELECT t - c.offset_ns - (t - c.from_ns) * c.drift_ppb "
    "// 1000000000 FROM clock_correction c WHERE c.boot_id = boot AND t >= c.from_ns AND t < c.until_ns)"
)
_SAME: Final = "CREATE OR REPLACE TEMP MACRO aligned_ns(boot, t) AS t"


@dataclass(frozen=True, slots=True)
class Alignment:
    """The hosts, that of rank 0 first."""

    hosts: tuple[HostClock, ...]

    @property
    def is_one_host(self) -> bool:
        """All ranks share one clock: nothing has to be aligned."""
        return len(self.hosts) <= 1

    def host(self, boot_id: str | None) -> HostClock | None:
        """The host with this boot id."""
        return next((item for item in self.hosts if item.host.boot_id == boot_id), None)

    @property
    def worst_error_ns(self) -> int | None:
        """Of the difference of two aligned times, whichever hosts they are of; None if that is not known of all."""
        errors = [item.error_ns for item in self.hosts]
        known = sorted(error for error in errors if error is not None)
        return sum(known[-2:]) if len(known) == len(errors) else None

    def error_ns(self, boot_a: str | None, boot_b: str | None) -> int | None:
        """How wrong the difference of two aligned times of these hosts may be; 0 on one host, None if not known."""
        if boot_a is not None and boot_a == boot_b:
            return 0
        a, b = self.host(boot_a), self.host(boot_b)
        if a is None or b is None or a.error_ns is None or b.error_ns is None:
            return None
        return a.error_ns + b.error_ns


def align(run: Run) -> Alignment:
    """The hosts' clocks of `run`; leaves them in its connection for statements.

    Temporary table `clock_correction`: (boot_id, from_ns, until_ns, offset_ns, drift_ppb, error_ns), for each host
    windows of its own clock that cover every time. aligned time = t - offset_ns - (t - from_ns) * drift_ppb //
    1000000000, on the clock of rank 0's host; offset_ns is null for a host that nothing ties to the others, error_ns
    where nothing is known of it. Macro `aligned_ns(boot_id, t)`: that; with one host it is t itself. It is a
    correlated subquery: over large tables join instead, `JOIN clock_correction k ON k.boot_id = ... AND t >= k.from_ns
    AND t < k.until_ns`. Computed once for each reading of the run.
    """
    return run.anew(lambda: _align(run))


def _align(run: Run) -> Alignment:
    known = run.kept.get(_KEPT)
    if isinstance(known, Alignment):
        return known
    found = Alignment(clocks_of(run, read_hosts(run)))
    _leave(run, found)
    run.kept[_KEPT] = found
    return found


def _leave(run: Run, found: Alignment) -> None:
    run.rows(_TABLE)
    rows = [(item.host.boot_id, window.from_ns, window.until_ns, window.offset_ns, window.drift_ppb, window.error_ns)
            for item in found.hosts for window in item.windows]  # fmt: skip
    if rows:
        columns = [list(column) for column in zip(*rows, strict=True)]
        run.rows("INSERT INTO clock_correction SELECT unnest(?::VARCHAR[]), unnest(?::BIGINT[]), unnest(?::BIGINT[]), "
                 "unnest(?::BIGINT[]), unnest(?::BIGINT[]), unnest(?::BIGINT[])", columns)  # fmt: skip
    run.rows(_SAME if found.is_one_host else _ALIGNED)


@dataclass(frozen=True, slots=True)
class ClockAnswer:
    """One host: its clock, and what is measured of it. drift: mean over what was observed, host against reference."""

    clock: HostClock
    offset: Measurement
    error: Measurement
    drift: Measurement
    bound: Measurement

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them."""
        return self.offset, self.error, self.drift, self.bound


@dataclass(frozen=True, slots=True)
class Clocks:
    """The answer: the hosts, that of rank 0 first."""

    hosts: tuple[ClockAnswer, ...]

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, host by host."""
        return tuple(item for host in self.hosts for item in host.measurements)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """None: a clock that is off is nobody's fault."""
        return ()

    @property
    def headlines(self) -> tuple[Headline, ...]:
        """Hosts whose times cannot be compared; else, with several, how well they can."""
        return tuple(_headlines(self.hosts))


def clocks(run: Run, coverage: float | None = None) -> Clocks | None:
    """The clocks of the run's hosts; None where no process told its host."""
    found = align(run)
    if not found.hosts:
        return None
    told = Evidence(
        run, ANALYZER, STATEMENT, ("collective", "process", "process_group", "clock"), coverage,
        window="from the first to the last operation that ties the host",
        caveats=() if found.is_one_host else CAVEATS,
    )  # fmt: skip
    return Clocks(tuple(_answer(told, clock) for clock in found.hosts))


def _answer(told: Evidence, clock: HostClock) -> ClockAnswer:
    """Offset and drift at the middle of what was observed, the largest error, the widest bound."""
    scope, num = {"node": clock.host.node}, clock.num_operations
    offset, error, reason = clock.offset_ns, clock.error_ns, clock.reason or NO_ERROR
    within = None if offset is None or error is None else Interval(offset - error, offset + error, LEVEL, clock.how)
    bound, limits = None, None
    if clock.bound is not None and offset is not None:
        bound = clock.bound[1] - clock.bound[0]
        limits = Interval(offset + clock.bound[0], offset + clock.bound[1], 1.0, "causality")
    return ClockAnswer(
        clock,
        told.measurement(
            "clock.offset", offset, scope, num, interval=within, reason="" if offset is not None else reason
        ),
        told.measurement("clock.error", error, scope, num, reason="" if error is not None else reason),
        told.measurement("clock.drift", clock.drift, scope, num, reason="" if clock.drift is not None else NO_DRIFT),
        told.measurement(
            "clock.bound", bound, scope, num, interval=limits, reason="" if bound is not None else NO_BOUND
        ),
    )


def _headlines(hosts: tuple[ClockAnswer, ...]) -> Iterator[Headline]:
    lost = [host.clock for host in hosts if host.clock.error_ns is None]
    for clock in lost[:1]:
        others = f" (and {len(lost) - 1} more hosts)" if len(lost) > 1 else ""
        what = f"Times of {clock.host.name}{others} cannot be compared with those of rank 0's host"
        yield Headline(WARNING, f"{what}: {clock.reason or NO_ERROR}.", ANALYZER)
    known = [host.clock.error_ns for host in hosts if host.clock.error_ns is not None]
    if len(hosts) > 1 and len(known) > 1:
        worst = sum(sorted(known)[-2:])
        text = f"Times of {len(known)} hosts are compared with an error of at most {_us(worst)}."
        yield Headline(INFO, text, ANALYZER)


def _us(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:.2f} ms" if nanoseconds >= 1_000_000 else f"{nanoseconds / 1e3:.0f} us"
