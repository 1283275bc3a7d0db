"""Samples and tokens per second, and the step times that they come from, over the counted steps of a run.

A step's duration is the mean over the ranks (in a synchronous job they hardly differ). Samples are those that the job
tells with `rankscope.step(samples=...)`, else those that its loaders handed over, else the declared global batch;
tokens likewise, else samples times the declared sequence length. Both are added up over data coordinates, never over
ranks of one coordinate. Throughput = samples of all counted steps / time of all counted steps; its interval is that of
a block bootstrap over steps and speaks of *this run*, not of the next one.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from rankscope.schema.measurement import Interval, Measurement

from .bootstrap import LEVEL, METHOD, Floats, Resampled, interval_of_mean
from .data_coordinates import DataCoordinates, data_coordinates
from .evidence import Evidence
from .run import Row, Run
from .statements import statement

ANALYZER: Final = "throughput"
LEFT_OUT: Final = (
    "the first step of each incarnation; steps marked warm-up, checkpoint, eval or shadow, or not ended by all"
)
NO_STEP: Final = "no counted step: the run has fewer than two steps, or all are left out"
_NO_SAMPLES: Final = (
    "nobody tells the samples of a step: rankscope.step(samples=...), a DataLoader or attach(global_batch=...) would"
)
_SOME_SAMPLES: Final = "not every data coordinate tells the samples of every counted step, so their sum is not known"
_THINNED: Final = (
    "observing every batch was too dear, so the batches of a step are not all known: rankscope.step(samples=...) or "
    "attach(global_batch=...) would tell"
)
_SECOND: Final = 1e9


@dataclass(frozen=True)
class Amount:
    """Samples or tokens of each counted step; values None with a reason where nobody told. source: who told."""

    values: Floats | None
    source: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Steps:
    """The counted steps in the order of time. keys: (incarnation, step); duration_ns: mean over the ranks."""

    keys: tuple[tuple[int, int], ...]
    duration_ns: Floats
    samples: Amount
    tokens: Amount
    coordinates: DataCoordinates

    def rate(self, amount: Amount) -> Resampled | None:
        """The amount per second."""
        if amount.values is None or not len(self.duration_ns):
            return None
        return Resampled.of_ratio(amount.values, self.duration_ns / _SECOND)

    @property
    def steps_per_second(self) -> Resampled | None:
        """The inverse of step time."""
        return self.rate(Amount(np.ones(len(self.duration_ns))))


@dataclass(frozen=True)
class Throughput:
    """The answer."""

    steps: Steps
    samples: Measurement
    tokens: Measurement

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them."""
        return self.samples, self.tokens


def throughput(run: Run, coverage: float | None = None) -> Throughput:
    """The throughput of `run`."""
    steps = read_steps(run)
    measured = []
    for name, amount in (("throughput.samples", steps.samples), ("throughput.tokens", steps.tokens)):
        told = Evidence(
            run, ANALYZER, statement(ANALYZER, "durations"), ("step", "sample_batch"), coverage, left_out=LEFT_OUT,
            window="counted steps",
            caveats=tuple(filter(None, (amount.source, steps.coordinates.caveat, "the interval is that of this run"))),
        )  # fmt: skip
        measured.append(
            rate_measurement(told, name, steps.rate(amount), amount.reason or NO_STEP, len(steps.duration_ns))
        )
    return Throughput(steps, *measured)


def rate_measurement(told: Evidence, name: str, rate: Resampled | None, reason: str, num_steps: int) -> Measurement:
    """A rate with its interval; none with a reason without one."""
    if rate is None:
        return told.measurement(name, None, {}, 0, reason=reason)
    bounds = interval_of_mean(rate)
    interval = None if bounds is None else Interval(*bounds, LEVEL, METHOD)
    return told.measurement(name, rate.mean, {}, num_steps, interval=interval,
                            caveats=(f"{rate.num_effective:.0f} effective steps",))  # fmt: skip


def read_steps(run: Run) -> Steps:
    """The counted steps of `run`."""
    rows = _whole(run.rows(statement(ANALYZER, "durations")))
    durations = np.array([total / num for _, _, total, num in rows], np.float64)
    places = {(incarnation, step): place for place, (incarnation, step, _, _) in enumerate(rows)}
    coordinates = data_coordinates(run)
    samples, tokens = _amounts(run, coordinates, places)
    return Steps(tuple(places), durations, samples, tokens, coordinates)


def _whole(rows: list[Row]) -> list[Row]:
    """The steps that all ranks of their incarnation ended: where a run breaks off, some ranks are a step ahead."""
    most: dict[int, int] = {}
    for incarnation, _, _, num_ranks in rows:
        most[incarnation] = max(num_ranks, most.get(incarnation, 0))
    return [row for row in rows if row[3] == most[row[0]]]


def _amounts(run: Run, coordinates: DataCoordinates, places: dict[tuple[int, int], int]) -> tuple[Amount, Amount]:
    declared = run.rows(statement(ANALYZER, "declared"))
    batch, length = declared[0] if declared else (None, None)
    by_batch = Amount(np.full(len(places), float(batch)), "samples: the declared global batch") if batch else None
    if coordinates.of is None or not places:
        known = by_batch or Amount(None, reason=coordinates.reason or NO_STEP)
        return known, _tokens(known, length)
    parameters: dict[str, object] = {"ranks": list(coordinates.of), "coordinates": list(coordinates.of.values())}
    told, num = run.rows(statement(ANALYZER, "told"), parameters), coordinates.num or 0
    samples = _complete([(*row[:2], row[2], row[4]) for row in told], places, num, "samples as the job tells them")
    if samples is None:
        drawn = run.rows(statement(ANALYZER, "drawn"), parameters)
        is_thinned = bool(drawn and run.rows(statement(ANALYZER, "thinned")))
        if not is_thinned:
            samples = _complete(drawn, places, num, "samples that the loaders handed over")
        is_some = any(row[2] is not None for row in (*told, *drawn))
        reason = _THINNED if is_thinned else _SOME_SAMPLES if is_some else _NO_SAMPLES
        samples = samples or by_batch or Amount(None, reason=reason)
    tokens = _complete([(*row[:2], row[3], row[5]) for row in told], places, num, "tokens as the job tells them")
    return samples, tokens or _tokens(samples, length)


def _complete(
    rows: list[tuple[int, int, int | None, int]], places: dict[tuple[int, int], int], num_coordinates: int, source: str
) -> Amount | None:
    """The amounts if every data coordinate tells every counted step; a part of them would be too low a sum."""
    values = np.zeros(len(places))
    seen = 0
    for incarnation, step, value, num in rows:
        if (incarnation, step) not in places:
            continue
        if value is None or num < num_coordinates:
            return None
        values[places[incarnation, step]] = value
        seen += 1
    return Amount(values, source) if seen == len(places) and values.any() else None


def _tokens(samples: Amount, sequence_length: int | None) -> Amount:
    if samples.values is None:
        return Amount(None, reason=samples.reason)
    if not sequence_length:
        return Amount(None, reason="nobody tells the tokens of a step: rankscope.step(tokens=...) or "
                                   "attach(sequence_length=...) would")  # fmt: skip
    return Amount(samples.values * sequence_length, f"{samples.source}, times the declared sequence length")
