"""Does the job scale: efficiency over sizes with intervals, what else differed, and what a larger size will do.

Strong scaling: the same global batch at every size, E(n) = T(n0) n0 / (T(n) n). Weak: the batch grows with the size,
E(n) = throughput(n) / (throughput(n0) n / n0). Both are throughput per rank against that of the smallest size. Which of
them it is is read from the samples of a step. One run at a size gives the interval of that run (block bootstrap); with
repeats the spread between them is in it. Worked example: 100/s on 2 ranks, 180/s on 4: E(4) = 90 / 100 * 2 / 2 = 0.9.

The grade says what the comparison is worth. controlled: nothing but the scale differs, and every size has at least two
runs. mostly controlled: repeats are missing, or something minor differs. confounded: something differs that changes
speed. not comparable: the runs have no common measure of throughput.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from rankscope.schema.errors import NoEvidence
from rankscope.schema.measurement import Interval, Measurement

from .bootstrap import LEVEL, METHOD, MIN_STEPS, Uncertainty, interval_around
from .differences import CONFOUNDER, MINOR, Difference, differences, in_words, job_of, they_differ
from .forecast import LEVEL as FORECAST_LEVEL
from .forecast import Forecast, Refusal, back_test, forecast, refusal
from .joint_evidence import JointEvidence
from .quality import Quality, quality
from .scaling_losses import Loss, losses
from .scaling_points import Series
from .scaling_run import PARTS, ScalingRun, check_comparable, incomplete, mean_parts_ns, mean_step_ns

ANALYZER: Final = "scaling"
SAME_BATCH: Final = 0.01
"""Relative difference of global batches that are the same."""
SAME_SHARE: Final = 0.12
"""Relative difference of batches per rank that are the same (the public series use it, too)."""
CONTROLLED, MOSTLY, CONFOUNDED, NOT_COMPARABLE = "controlled", "mostly controlled", "confounded", "not comparable"
_METRICS: Final = ("samples", "tokens")


@dataclass(frozen=True, slots=True)
class Size:
    """One size. throughput: per second, over the mean time of its runs, each counted the same. parts: shares of the
    mean step by name, where seen.
    """

    num_ranks: int
    num_runs: int
    throughput: float
    efficiency: Measurement
    step_ns: float | None
    parts: tuple[tuple[str, float | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Scaling:
    """The answer. metric: what throughput counts; forecast: None where none was asked for."""

    name: str
    mode: str
    metric: str
    sizes: tuple[Size, ...]
    grade: str
    grade_reasons: tuple[str, ...]
    confounders: tuple[Difference, ...]
    quality: Quality | None
    losses: tuple[Loss, ...] = ()
    held_out: Forecast | None = None
    forecast: Forecast | Refusal | None = None
    measurements: tuple[Measurement, ...] = ()

    @property
    def curve(self) -> tuple[tuple[int, float], ...]:
        """(size, throughput) by size."""
        return tuple((size.num_ranks, size.throughput) for size in self.sizes)


def scaling_of_runs(runs: Sequence[ScalingRun], at: int | None = None) -> Scaling:
    """The scaling of one job over its runs.

    Raises NoEvidence: fewer than two sizes, runs of different jobs, a run without counted steps.
    """
    _check(runs)
    by_size: dict[int, list[ScalingRun]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: (run.num_ranks, run.run_id)):
        by_size[run.num_ranks].append(run)
    metric = next((name for name in _METRICS if all(run.rate(name) for run in runs)), "steps")
    mode = _mode(runs, metric)
    found = _differences(runs, mode)
    told = JointEvidence(
        ANALYZER, tuple(run.digest for run in runs), sum(len(run.steps.duration_ns) for run in runs),
        min((run.coverage for run in runs if run.coverage is not None), default=None),
    )  # fmt: skip
    pools = {size: _pooled(members, metric) for size, members in by_size.items()}
    sizes = tuple(_size(told, size, members, pools, mode) for size, members in by_size.items())
    node_size = max((run.node_size for run in runs if run.num_nodes > 1), default=None)
    grade, reasons = _grade(by_size, found, mode)
    found_so_far = Scaling(
        job_of(runs[0].made_from) or "job", mode, metric, sizes, grade, reasons, found, quality(runs),
        losses(runs, mode),
    )  # fmt: skip
    return _with_forecast(told, found_so_far, node_size, at)


def scaling_of_series(series: Series, digest: str, at: int | None = None) -> Scaling:
    """The scaling of a series measured elsewhere. Raises NoEvidence for fewer than two sizes."""
    if len(series.curve) < 2:
        raise NoEvidence(f"series {series.name}: one size; efficiency needs at least two")
    told = JointEvidence(
        ANALYZER, (digest,), len(series.curve), caveats=(f"from {series.source}",) if series.source else ()
    )
    first, slowest = series.curve[0]
    sizes = tuple(
        Size(num, 1, value, told.measurement(
            "scaling.efficiency", value / num / (slowest / first), {"world_size": num}, 1,
            caveats=("measured elsewhere: no interval",)), None)
        for num, value in series.curve
    )  # fmt: skip
    noisy = ("made from training times, on which convergence luck shows",) if series.is_noisy else ()
    grade = (CONFOUNDED, ("the points come without manifests: nobody can say what else differed", *noisy))
    name = " / ".join(filter(None, (series.workload, series.hardware))) or series.name
    return _with_forecast(told, Scaling(name, series.mode, series.metric, sizes, *grade, (), None), None, at)


@dataclass(frozen=True, slots=True)
class _Pool:
    """Throughput of all runs of a size."""

    throughput: float
    uncertainty: Uncertainty | None
    num_steps: int


def _check(runs: Sequence[ScalingRun]) -> None:
    check_comparable(runs)
    if len({run.num_ranks for run in runs}) < 2:
        one = f"one run has {runs[0].num_ranks} ranks" if len(runs) == 1 else f"all runs have {runs[0].num_ranks} ranks"
        raise NoEvidence(f"{one}: scaling needs at least two sizes")


def _mode(runs: Sequence[ScalingRun], metric: str) -> str:
    batches = [(run.num_ranks, run.batch) for run in runs]
    if metric == "steps" or any(batch is None for _, batch in batches):
        return "unknown"
    whole = [batch for _, batch in batches if batch is not None]
    each = [batch / num for num, batch in batches if batch is not None]
    if max(whole) <= (1 + SAME_BATCH) * min(whole):
        return "strong"
    return "weak" if max(each) <= (1 + SAME_SHARE) * min(each) else "co-tuned"


def _differences(runs: Sequence[ScalingRun], mode: str) -> tuple[Difference, ...]:
    """What differs between the first run and any other beyond the scale, each field once."""
    first = runs[0]
    found: dict[str, Difference] = {}
    for other in runs[1:]:
        for item in differences(first.made_from, other.made_from):
            if item.kind in (CONFOUNDER, MINOR):
                found.setdefault(item.field, item)
        if mode == "co-tuned" and first.batch != other.batch:
            found.setdefault(
                "step.samples", Difference("step.samples", CONFOUNDER, "global batch", first.batch, other.batch)
            )
    return tuple(sorted(found.values(), key=lambda item: (item.kind != CONFOUNDER, item.field)))


def _pooled(runs: Sequence[ScalingRun], metric: str) -> _Pool:
    """Repeats are averaged; where their spread is larger than that within them, it is what the mean is uncertain by.

    The times of a sample are averaged, not the rates: only so do throughput, steps and their parts agree where repeats
    differ much.
    """
    rates = [rate for run in runs if (rate := run.rate(metric)) is not None]
    times = [1 / rate.mean for rate in rates]
    time, num = sum(times) / len(times), len(times)
    steps = sum(len(run.steps.duration_ns) for run in runs)
    parts = [Uncertainty.of(rate) for rate in rates]
    known = [part for part in parts if part is not None]
    if len(known) < num:
        return _Pool(1 / time, None, steps)
    within = Uncertainty(sum(part.variance for part in known) / num**2, sum(part.freedom for part in known))
    if num == 1:
        return _Pool(1 / time, within, steps)
    between = sum((value / time - 1) ** 2 for value in times) / (num - 1) / num
    return _Pool(1 / time, within if between < within.variance else Uncertainty(between, num - 1), steps)


def _size(told: JointEvidence, size: int, runs: Sequence[ScalingRun], pools: dict[int, _Pool], mode: str) -> Size:
    first, here = min(pools), pools[size]
    base = pools[first]
    value = here.throughput / size / (base.throughput / first)
    interval = None
    if size != first and here.uncertainty and base.uncertainty:
        bounds = interval_around(value, (here.uncertainty, base.uncertainty))
        interval = Interval(*bounds, LEVEL, METHOD if len(runs) == 1 else f"{METHOD}; spread of {len(runs)} runs")
    reason = "" if mode != "unknown" else "nobody tells the samples of a step, so strong and weak cannot be told apart"
    caveats = ("the interval is that of this run: repeats are missing",) if interval and len(runs) == 1 else ()
    if size != first and not (here.uncertainty and base.uncertainty):
        caveats = (f"no interval: fewer than {MIN_STEPS} counted steps here or at size {first}",)
    efficiency = told.measurement(
        "scaling.efficiency", None if reason else value, {"world_size": size}, here.num_steps,
        interval=None if reason else interval, reason=reason, caveats=caveats,
    )  # fmt: skip
    step, parts = mean_step_ns(runs), mean_parts_ns(runs)
    shares = tuple((name, parts[name] / step if name in parts and step else None) for name in PARTS)
    return Size(size, len(runs), here.throughput, efficiency, step, shares)


def _grade(
    by_size: dict[int, list[ScalingRun]], found: tuple[Difference, ...], mode: str
) -> tuple[str, tuple[str, ...]]:
    if mode == "unknown":
        return NOT_COMPARABLE, ("nobody tells the samples of a step in every run: rankscope.step(samples=...) would",)
    confounders = tuple(item for item in found if item.kind == CONFOUNDER)
    if confounders:
        return CONFOUNDED, (they_differ(confounders),)
    single = sorted(size for size, runs in by_size.items() if len(runs) < 2)
    reasons = []
    if single:
        reasons.append("only one run at size " + ", ".join(map(str, single)) + ": at least two a size are needed")
    short = sorted({run.num_ranks for runs in by_size.values() for run in runs
                    if len(run.steps.duration_ns) < MIN_STEPS})  # fmt: skip
    if short:
        reasons.append(f"fewer than {MIN_STEPS} counted steps at size {', '.join(map(str, short))}: no interval")
    reasons += [text for runs in by_size.values() for text in incomplete(runs)]
    if minor := tuple(item for item in found if item.kind == MINOR):
        reasons.append(f"minor differences: {in_words(minor)}")
    return (MOSTLY, tuple(reasons)) if reasons else (CONTROLLED, ("only the scale differs",))


def _with_forecast(told: JointEvidence, found: Scaling, node_size: int | None, at: int | None) -> Scaling:
    curve = found.curve
    held_out = back_test(curve, node_size)
    wanted = None if at is None else refusal(curve, at) or forecast(curve, at, node_size)
    measured = [size.efficiency for size in found.sizes] + _forecast_measurements(told, curve, held_out, wanted)
    return replace(found, held_out=held_out, forecast=wanted, measurements=tuple(measured))


def _forecast_measurements(
    told: JointEvidence,
    curve: tuple[tuple[int, float], ...],
    held_out: Forecast | None,
    wanted: Forecast | Refusal | None,
) -> list[Measurement]:
    found = []
    if held_out is not None:
        largest, truth = curve[-1]
        models = {"rankscope": held_out.value, "carried": held_out.carried, "linear": held_out.linear}
        found = [told.measurement("scaling.holdout_error", abs(value / truth - 1),
                                  {"model": model, "world_size": largest}, len(curve) - 1)
                 for model, value in models.items()]  # fmt: skip
    if isinstance(wanted, Refusal):
        found.append(
            told.measurement("scaling.forecast", None, {"world_size": wanted.at}, len(curve), reason=wanted.reason)
        )
    elif wanted is not None:
        bracket = Interval(wanted.low, wanted.high, FORECAST_LEVEL, "errors of such forecasts on public series")
        found.append(told.measurement("scaling.forecast", wanted.value, {"world_size": wanted.at}, len(curve),
                                      interval=bracket, caveats=wanted.notes))  # fmt: skip
    return found
