"""Clock readings belong together, and never fail."""

import ctypes
import time

from rankscope.schema.tables import TABLES
from rankscope.tracer import clock


def test_both_clocks_are_read_at_one_moment():
    before = time.monotonic_ns(), time.time_ns()
    reading = clock.read_clock()
    after = time.monotonic_ns(), time.time_ns()
    assert before[0] <= reading.monotonic_ns <= after[0]
    assert before[1] <= reading.wall_ns <= after[1]
    assert reading.maximum_error_ns is not None and reading.maximum_error_ns >= 0


def test_the_row_fits_its_table():
    assert set(clock.read_clock().row("boot")) <= set(TABLES["clock"].names)


def test_a_kernel_that_does_not_say_gives_none(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda *_: object())
    reading = clock.read_clock()
    assert (reading.estimated_error_ns, reading.maximum_error_ns, reading.is_synchronised) == (None, None, None)
