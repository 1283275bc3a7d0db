"""From CLOCK_MONOTONIC to nanoseconds since 1970, by a process's own clock readings (table clock)."""

from bisect import bisect_right
from collections.abc import Iterable


class WallClock:
    """The readings of one process. Without any, times are taken to be since 1970 already (imported traces)."""

    def __init__(self, readings: Iterable[tuple[int, int]] = ()) -> None:
        """readings: (monotonic_ns, wall_ns)."""
        self._monotonic: list[int] = []
        self._ahead: list[int] = []
        for monotonic_ns, wall_ns in sorted(readings):
            self.add(monotonic_ns, wall_ns)

    def add(self, monotonic_ns: int, wall_ns: int) -> None:
        """A further reading, later than the others."""
        self._monotonic.append(monotonic_ns)
        self._ahead.append(wall_ns - monotonic_ns)

    @property
    def is_known(self) -> bool:
        """Whether there is a reading."""
        return bool(self._ahead)

    def wall_ns(self, monotonic_ns: int) -> int:
        """By the last reading before, else the first one. The clock is slewed: some us between two readings."""
        if not self._ahead:
            return monotonic_ns
        return monotonic_ns + self._ahead[max(0, bisect_right(self._monotonic, monotonic_ns) - 1)]
