"""Clock readings: CLOCK_MONOTONIC beside CLOCK_REALTIME, with what the kernel says about its clock (adjtimex, Linux).

One reading costs about 10 us; the session takes one at the start and one a minute.
"""

import ctypes
import time
from dataclasses import asdict, dataclass
from typing import Final

PERIOD_SECONDS: Final = 60.0
_TIME_ERROR: Final = 5
"""adjtimex returns it while the clock is not synchronised (adjtimex(2))."""
_UNSYNCHRONISED: Final = 0x40
_NUM_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Both clocks at one moment, in ns. Errors are the kernel's own estimates; None where it does not say."""

    monotonic_ns: int
    wall_ns: int
    estimated_error_ns: int | None
    maximum_error_ns: int | None
    is_synchronised: bool | None

    def row(self, boot_id: str) -> dict[str, object]:
        """The reading as a row of table `clock`."""
        return {"boot_id": boot_id, **asdict(self)}


def read_clock() -> ClockReading:
    """Both clocks, read as close together as a few tries allow, and the kernel's state."""
    monotonic_ns, wall_ns = min((_pair() for _ in range(_NUM_TRIES)), key=lambda pair: pair[0])[1:]
    return ClockReading(monotonic_ns, wall_ns, *_kernel_state())


class _Timex(ctypes.Structure):
    """struct timex of <sys/timex.h>, up to what is read here; the kernel writes more behind it."""

    _fields_ = (
        ("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long), ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long), ("status", ctypes.c_int), ("rest", ctypes.c_char * 512),
    )  # fmt: skip


def _pair() -> tuple[int, int, int]:
    before = time.monotonic_ns()
    wall_ns = time.time_ns()
    after = time.monotonic_ns()
    return after - before, (before + after) // 2, wall_ns


def _kernel_state() -> tuple[int | None, int | None, bool | None]:
    """Estimated and maximum error in ns, and whether the clock is synchronised. modes 0 only reads: no privilege."""
    reading = _Timex(modes=0)
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.byref(reading))
    except (OSError, AttributeError):
        return None, None, None
    if state < 0:
        return None, None, None
    is_synchronised = state != _TIME_ERROR and not reading.status & _UNSYNCHRONISED
    return reading.esterror * 1000, reading.maxerror * 1000, is_synchronised
