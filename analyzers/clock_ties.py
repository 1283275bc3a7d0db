"""What ties each host's clock to that of rank 0's host, and how well: ends that coincide, causality, wall clocks.

A host that shares no operation with the reference is tied to one that is tied to it; errors then add up.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from .clock_bounds import RATE_DIVISOR, UNBOUNDED_NS, Bounds, Ints, bounds, joined
from .clock_fit import EXACT, UNKNOWN, Window, correction, fit, with_errors
from .clock_rows import Ends, Host, Reading, read_ends, read_readings
from .run import Run

REFERENCE, NOT_TIED = "reference", "none"
BY_OPERATIONS, BY_CAUSALITY, BY_WALL_CLOCK = "operations", "causality", "wall clock"
ALONE: Final = "no operation and no clock reading ties this host to the others"
CONTRADICTION: Final = "its operations contradict each other: what was matched does not belong together"
VETOED: Final = "causality excludes the estimate at times: the error was raised to what it excludes"
ENOUGH: Final = 32
"""Ends seen at once that suffice to leave those seen late aside."""
MAX_PARENTS: Final = 8
"""Hosts by way of which one is tried that no operation ends together with."""
Readings = dict[str, list[Reading]]


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

    @property
    def offset_ns(self) -> int | None:
        """How far it is ahead of the reference in the middle of what was observed."""
        return None if self.how == NOT_TIED else self.ahead_ns(sum(self.observed or (0, 0)) // 2)

    @property
    def drift(self) -> float | None:
        """Mean drift against the reference, seconds a second; None where it was observed only once, or hardly."""
        if self.how == REFERENCE:
            return 0.0
        if self.observed is None or len(self.windows) < 2 or self.observed[0] == self.observed[1]:
            return None
        begin, end = self.observed
        return (self.ahead_ns(end) - self.ahead_ns(begin)) / (end - begin)

    def ahead_ns(self, time_ns: int) -> int:
        """How far it is ahead when it shows `time_ns`. Raises ValueError where that is not known."""
        return int(correction(np.array([time_ns], np.int64), self.windows)[0])


def clocks_of(run: Run, hosts: tuple[Host, ...]) -> tuple[HostClock, ...]:
    """The clocks of `hosts`, of which the first is the reference."""
    return _clocks(run, hosts) if len(hosts) > 1 else tuple(map(_exact, hosts))


def _exact(host: Host) -> HostClock:
    return HostClock(host, (EXACT,), REFERENCE, bound=(0, 0))


def _clocks(run: Run, hosts: tuple[Host, ...]) -> tuple[HostClock, ...]:
    """Outwards from the reference: those that end operations together with a host tied already, then what else ties."""
    ends, readings = read_ends(run), read_readings(run)
    tied, pending = {0: _exact(hosts[0])}, set(range(1, len(hosts)))
    frontier = deque([0])
    while frontier:
        parent = frontier.popleft()
        for number in sorted(ends.neighbours(parent) & pending):
            clock = _tie(hosts[number], tied[parent], ends, readings, True)
            if clock is not None:
                tied[number] = clock
                pending.discard(number)
                frontier.append(number)
        if not frontier and (other := _otherwise(pending, tied, hosts, ends, readings)) is not None:
            tied[other.host.number] = other
            pending.discard(other.host.number)
            frontier.append(other.host.number)
    return tuple(tied.get(host.number) or HostClock(host, (UNKNOWN,), NOT_TIED, reason=ALONE) for host in hosts)


def _otherwise(
    pending: set[int], tied: dict[int, HostClock], hosts: tuple[Host, ...], ends: Ends, readings: Readings
) -> HostClock | None:
    """The first host that anything else ties, by way of the parent that ties it best."""
    for number in sorted(pending):
        parents = dict.fromkeys((0, *sorted(ends.neighbours(number) & tied.keys())))
        found = [_tie(hosts[number], tied[parent], ends, readings, False) for parent in list(parents)[:MAX_PARENTS]]
        known = [clock for clock in found if clock is not None]
        if known:
            return min(known, key=lambda clock: clock.error_ns or 0)
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
        ahead = time - (reading.peer_ns - parent.ahead_ns(reading.peer_ns))
        yield time, ahead - reading.round_trip_ns, ahead
    if reading.error_ns is None:
        return
    nearest = min((item for item in theirs if item.error_ns is not None),
                  key=lambda item: abs(item.wall_ns - reading.wall_ns), default=None)  # fmt: skip
    if nearest is not None:
        apart = reading.wall_ns - nearest.wall_ns
        ahead = time - (nearest.monotonic_ns - parent.ahead_ns(nearest.monotonic_ns)) - apart
        error = reading.error_ns + (nearest.error_ns or 0) + abs(apart) // RATE_DIVISOR
        yield time, ahead - error, ahead + error


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
