"""Numbers as people read them."""

import pytest

from rankscope.cli.words import NONE, bar, count, duration, histogram, share, size, sparkline


@pytest.mark.parametrize(
    ("ns", "text"),
    [(None, NONE), (0, "0 ns"), (999, "999 ns"), (1_234, "1.23 µs"), (12_345_678, "12.3 ms"), (100_000_000, "100 ms"),
     (1_500_000_000, "1.50 s"), (125 * 10**9, "2 min 5 s"), (7_384 * 10**9, "2 h 3 min")],
)  # fmt: skip
def test_durations(ns: int | None, text: str) -> None:
    assert duration(ns) == text


def test_sizes_counts_and_shares() -> None:
    assert [size(value) for value in (None, 0, 1500, 25_000_000, 3 * 10**9)] == [
        NONE,
        "0 B",
        "1.50 kB",
        "25.0 MB",
        "3.00 GB",
    ]
    assert count(1234567) == "1,234,567" and count(None) == NONE
    assert [share(value) for value in (None, 0.0, 0.0001, 0.1234, 1.0)] == [
        NONE,
        "0.0 %",
        "< 0.1 %",
        "12.3 %",
        "100.0 %",
    ]


def test_drawings() -> None:
    assert sparkline([0, 5, 10]) == "▁▅█" and sparkline([]) == "" and sparkline([0, 0]) == "▁▁"
    assert histogram([0, 1, 100]) == " ▁█"
    assert bar(0.5, 4) == "██" and bar(0.0, 4) == "" and bar(2.0, 4) == "████" and bar(0.03125, 4) == "▏"
