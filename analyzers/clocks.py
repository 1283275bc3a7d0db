"""The hosts' clocks against the clock of rank 0's host: offset, error, and what causality allows at most.

Ranks of one host share CLOCK_MONOTONIC; across hosts its zero is each one's boot, and it drifts and is slewed. The
*estimate* is the difference of the ends of operations that end together on all members, whoever came last
(`clock_fit`). The *hard bound* is causality, cut by round trips and by what the kernels say of their clocks
(`clock_bounds`): it vetoes an estimate that cannot be, and stands in where no operation ends together. A host that
shares no operation with the reference is tied to one that is tied to it. One to four ranks a host are looked at, and
a sample of their operations: the cost does not grow with the run.

It cannot see a delay that lies on one side always (a host that learns of every end 50 us late looks 50 us ahead);
such a delay stays inside the hard bound.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from .clock_bounds import RATE_DIVISOR, UNBOUNDED_NS, Bounds, Ints, bounds, joined
from .clock_fit import EXACT, UNKNOWN, Window, correction, fit, with_errors
from .clock_rows import Ends, Host, Reading, read_ends, read_hosts, read_readings
from .run import Run

ANALYZER: Final = "clocks"
BY_OPERATIONS, BY_CAUSALITY, BY_WALL_CLOCK, NOT_TIED = "operations", "causality", "wall clock", "none"
CONTRADICTION: Final = "its operations contradict each other: what was matched does not belong together"
VETOED: Final = "causality excludes the estimate at times: the error was raised to what it excludes"
ENOUGH: Final = 32
"""Ends seen at once that suffice to leave those seen late aside."""
_KEPT: Final = "alignment"
Readings = dict[str, list[Reading]]
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
class HostClock:
    """One host. how: what its offset stands on. bound: how far the truth may lie below and above the estimate, ns.

    num_operations: ends that the estimate is made of. reason: why something of it is not known.
    """

    host: Host
    windows: tuple[Window, ...]
    how: str
    num_operations: int = 0
    bound: tuple[int, int] | None = None
    observed: tuple[int, int] | None = None
    reason: str = ""

    @property
    def error_ns(self) -> int | None:
        """The largest error of the windows in which there are operations."""
        known = [window.error_ns for window in self.windows if window.error_ns is not None]
        return max(known, default=None)


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
    known = run.kept.get(_KEPT)
    if isinstance(known, Alignment):
        return known
    hosts = read_hosts(run)
    found = Alignment(_clocks(run, hosts) if len(hosts) > 1 else tuple(_exact(host) for host in hosts))
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


def _exact(host: Host) -> HostClock:
    return HostClock(host, (EXACT,), "it is the reference", bound=(0, 0))


def _clocks(run: Run, hosts: tuple[Host, ...]) -> tuple[HostClock, ...]:
    """All hosts: those that end operations together with a host already tied first, then what else ties one."""
    ends, readings = read_ends(run, hosts), read_readings(run)
    tied: dict[int, HostClock] = {0: _exact(hosts[0])}
    pending = list(range(1, len(hosts)))
    while pending:
        found = _next(pending, tied, hosts, ends, readings)
        if found is None:
            break
        pending.remove(found.host.number)
        tied[found.host.number] = found
    reason = "no operation and no clock reading ties this host to the others"
    return tuple(tied.get(host.number) or HostClock(host, (UNKNOWN,), NOT_TIED, reason=reason) for host in hosts)


def _next(
    pending: list[int], tied: dict[int, HostClock], hosts: tuple[Host, ...], ends: Ends, readings: Readings
) -> HostClock | None:
    for by_operations in (True, False):
        for number in pending:
            for parent in dict.fromkeys(
                (*(() if by_operations else (0,)), *sorted(ends.neighbours(number) & tied.keys()))
            ):
                clock = _tie(hosts[number], tied[parent], ends, readings, by_operations)
                if clock is not None:
                    return clock
    return None


def _tie(host: Host, parent: HostClock, ends: Ends, readings: Readings, by_operations: bool) -> HostClock | None:
    """`host` on the clock of the reference, by way of `parent`; None if that cannot be."""
    if parent.error_ns is None:
        return None
    pair = ends.pair(host.number, parent.host.number)
    moved = correction(pair.their_end, parent.windows)
    chosen = pair.has_end & (pair.quality > 0)
    if np.count_nonzero(chosen) < ENOUGH:
        chosen = pair.has_end
    if by_operations != bool(chosen.any()):
        return None
    limits = _bounds(host, parent, pair.sources_and_sinks(lambda times: correction(times, parent.windows)), readings)
    if by_operations:
        windows = fit(pair.own_end[chosen], (pair.own_end - (pair.their_end - moved))[chosen])
        observed = int(pair.own_end[chosen].min()), int(pair.own_end[chosen].max())
        return _judged(host, parent, windows, int(np.count_nonzero(chosen)), observed, limits)
    return _middle(host, parent, limits)


def _bounds(host: Host, parent: HostClock, causal: tuple[Ints, Ints, Ints], readings: Readings) -> tuple[Bounds, int]:
    """The bounds of `host` on the corrected clock of `parent`, and how many of their times are operations'."""
    theirs = readings.get(parent.host.boot_id, [])
    told = [item for reading in readings.get(host.boot_id, []) for item in _reading_bounds(reading, parent, theirs)]
    outer = np.array(told, np.int64).reshape(-1, 3)
    times, low, high = joined([causal, (outer[:, 0], outer[:, 1], outer[:, 2])])
    return bounds(times, low, high), len(causal[0])


def _reading_bounds(reading: Reading, parent: HostClock, theirs: list[Reading]) -> Iterator[tuple[int, int, int]]:
    """(time, low, high) by a round trip to the parent, and by both kernels' wall clocks."""
    time = reading.monotonic_ns
    if (
        reading.round_trip_ns is not None
        and reading.peer_ns is not None
        and reading.peer_boot_id == parent.host.boot_id
    ):
        ahead = time - (reading.peer_ns - _moved(reading.peer_ns, parent))
        yield time, ahead - reading.round_trip_ns, ahead
    if reading.error_ns is None:
        return
    nearest = min((item for item in theirs if item.error_ns is not None),
                  key=lambda item: abs(item.wall_ns - reading.wall_ns), default=None)  # fmt: skip
    if nearest is not None:
        apart = reading.wall_ns - nearest.wall_ns
        ahead = time - (nearest.monotonic_ns - _moved(nearest.monotonic_ns, parent)) - apart
        error = reading.error_ns + (nearest.error_ns or 0) + abs(apart) // RATE_DIVISOR
        yield time, ahead - error, ahead + error


def _moved(time_ns: int, clock: HostClock) -> int:
    return int(correction(np.array([time_ns], np.int64), clock.windows)[0])


def _judged(
    host: Host, parent: HostClock, windows: tuple[Window, ...], num: int, observed: tuple[int, int],
    limits: tuple[Bounds, int],
) -> HostClock:  # fmt: skip
    """The estimate beside its hard bound: an error smaller than what causality excludes is raised to that."""
    limit, num_causal = limits
    inherited = parent.error_ns or 0
    estimate = correction(limit.times, windows)
    low, high = limit.low - estimate, limit.high - estimate
    excluded = max(0, int(low.max(initial=0)), -int(high.min(initial=0)))
    if limit.num_impossible:
        return HostClock(host, with_errors(windows, lambda _: None), BY_OPERATIONS, num, None, observed, CONTRADICTION)
    known = with_errors(windows, lambda error: max(error, excluded) + inherited)
    inside = (limit.times >= observed[0]) & (limit.times <= observed[1]) if num_causal else np.ones(len(low), np.bool_)
    bound = _bound(low[inside], high[inside], parent)
    return HostClock(host, known, BY_OPERATIONS, num, bound, observed, VETOED if excluded else "")


def _middle(host: Host, parent: HostClock, limits: tuple[Bounds, int]) -> HostClock | None:
    """Where nothing ends together: the middle of what causality and the kernels allow, half its width as the error."""
    limit, num_causal = limits
    if not limit.is_two_sided or limit.num_impossible:
        return None
    windows = fit(limit.times, limit.low + (limit.high - limit.low) // 2)
    estimate = correction(limit.times, windows)
    low, high = limit.low - estimate, limit.high - estimate
    half = max(int(-low.min()), int(high.max()))
    known = with_errors(windows, lambda _: half + (parent.error_ns or 0))
    how = BY_CAUSALITY if num_causal else BY_WALL_CLOCK
    observed = int(limit.times[0]), int(limit.times[-1])
    return HostClock(host, known, how, num_causal, _bound(low, high, parent), observed)


def _bound(low: Ints, high: Ints, parent: HostClock) -> tuple[int, int] | None:
    if (
        parent.bound is None
        or not len(low)
        or int(low.min()) < -UNBOUNDED_NS // 2
        or int(high.max()) > UNBOUNDED_NS // 2
    ):
        return None
    return int(low.min()) + parent.bound[0], int(high.max()) + parent.bound[1]
