"""The values behind the metrics: counters, gauges and histograms by attributes. No clock, no threads, no OpenTelemetry.

Times are kept in whole nanoseconds and become seconds when they are read, so that sums are exact.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .instruments import INSTRUMENTS, Instrument

Attributes = tuple[tuple[str, str | int], ...]
Number = int | float


@dataclass(frozen=True, slots=True)
class HistogramValue:
    """counts: one more than the instrument has bounds. total, least, most: in the instrument's unit."""

    counts: tuple[int, ...]
    num: int
    total: float
    least: float
    most: float


class Point(NamedTuple):
    """One value of one series. start_ns: since when counters and histograms count, ns since 1970."""

    instrument: Instrument
    attributes: Attributes
    start_ns: int
    value: Number | HistogramValue


@dataclass(slots=True)
class _Histogram:
    counts: npt.NDArray[np.int64]
    num: int = 0
    total: int = 0
    least: int = 0
    most: int = 0


@dataclass(slots=True)
class Series:
    """The series of one rank, or of one node."""

    start_ns: int
    numbers: dict[tuple[str, Attributes], Number] = field(default_factory=dict)
    histograms: dict[tuple[str, Attributes], _Histogram] = field(default_factory=dict)

    def add(self, name: str, attributes: Attributes, amount: Number) -> None:
        """Count further."""
        key = (name, attributes)
        self.numbers[key] = self.numbers.get(key, 0) + amount

    def put(self, name: str, attributes: Attributes, value: Number | None) -> None:
        """A gauge's value, or a counter's that somebody else counts. None: not known, the last one stays."""
        if value is not None:
            self.numbers[name, attributes] = value

    def observe(self, name: str, attributes: Attributes, values: npt.NDArray[Any]) -> None:
        """Further values of a histogram, as integers (ns)."""
        if not len(values):
            return
        instrument = INSTRUMENTS[name]
        edges = np.asarray(instrument.bounds)
        places = np.searchsorted(edges, values * instrument.scale, side="left")  # a bound belongs to its own bucket
        held = self.histograms.get((name, attributes))
        if held is None:
            held = self.histograms[name, attributes] = _Histogram(np.zeros(len(edges) + 1, np.int64))
        held.counts += np.bincount(places, minlength=len(edges) + 1)
        least, most = int(values.min()), int(values.max())
        held.least, held.most = (min(held.least, least), max(held.most, most)) if held.num else (least, most)
        held.num += len(values)
        held.total += int(values.sum())

    def points(self, common: Attributes) -> Iterable[Point]:
        """Everything, with `common` attributes before each point's own."""
        for (name, attributes), number in self.numbers.items():
            instrument = INSTRUMENTS[name]
            value = number if instrument.scale == 1.0 else number * instrument.scale
            yield Point(instrument, common + attributes, self.start_ns, value)
        for (name, attributes), held in self.histograms.items():
            instrument = INSTRUMENTS[name]
            scale = instrument.scale
            found = HistogramValue(tuple(held.counts.tolist()), held.num, held.total * scale, held.least * scale,
                                   held.most * scale)  # fmt: skip
            yield Point(instrument, common + attributes, self.start_ns, found)
