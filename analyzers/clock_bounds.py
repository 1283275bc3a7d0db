"""What causality allows a clock's offset to be, whatever the ranks did in between: the hard bound.

No member of an operation sees its end before another one, on whom it depends, has begun: which depends on whom is told
by the kind of operation (`1-architecture`, Clocks; the flags are set in clocks.sql). With times of host a on the
reference's clock and the host h ahead by x: end_a >= start_h - x and end_h - x >= start_a, so that
start_h - end_a <= x <= end_h - start_a. Each holds at the time of its operation; two clocks cannot drift apart by
more than MAX_RATE, so each holds a little wider at other times. Round trips and the kernel's own error bound the same
number.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

RATE_DIVISOR: Final = 1_000
"""Two hosts' clocks drift apart by less than 1/1000: each is disciplined by at most 500 ppm (adjtimex(2))."""
UNBOUNDED_NS: Final = 1 << 61
_SLACK_NS: Final = 2
"""For whole-number divisions."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """low <= offset <= high at `times` of the host's own clock (ns), by everything that bounds it; sorted by time."""

    times: Ints
    low: Ints
    high: Ints

    @property
    def is_two_sided(self) -> bool:
        """There is a finite bound on both sides."""
        return bool(len(self.times)) and int(self.low[0]) > -UNBOUNDED_NS // 2 and int(self.high[0]) < UNBOUNDED_NS // 2

    @property
    def num_impossible(self) -> int:
        """Times at which the bounds exclude each other: what was matched does not belong together."""
        return int(np.count_nonzero(self.low > self.high))


def bounds(times: Ints, low: Ints, high: Ints) -> Bounds:
    """The tightest bound at each of `times` from single ones (-UNBOUNDED_NS, UNBOUNDED_NS: none on that side)."""
    order = np.argsort(times, kind="stable")
    times, low, high = times[order], low[order], high[order]
    elapsed = (times - times[:1]) // RATE_DIVISOR
    return Bounds(times, _highest(low, elapsed) - _SLACK_NS, -_highest(-high, elapsed) + _SLACK_NS)


def joined(parts: list[tuple[Ints, Ints, Ints]]) -> tuple[Ints, Ints, Ints]:
    """Single bounds (times, low, high) from several sources as one."""
    empty: Ints = np.zeros(0, np.int64)
    columns = zip(*parts, strict=True) if parts else ([empty], [empty], [empty])
    times, low, high = (np.concatenate(column) for column in columns)
    return times, low, high


def _highest(values: Ints, elapsed: Ints) -> Ints:
    """At each time the highest of all values, each lowered by the time to it / RATE_DIVISOR."""
    before = np.maximum.accumulate(values + elapsed) - elapsed
    after = (np.maximum.accumulate((values - elapsed)[::-1]))[::-1] + elapsed
    found: Ints = np.maximum(before, after)
    return found
