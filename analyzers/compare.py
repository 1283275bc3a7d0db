"""Is one run faster than another, by how much, and may one compare them at all.

Ratios of the means over counted steps, with the interval of a block bootstrap at 99 % (for waits, too; the tail, the
bubble and the rest are no series over steps, and have none): two runs of the same code differ by chance, too, and a
false "faster" costs more than a missed one. The interval speaks of these two runs; what differs between repeats is not
in it. Where something else than the scale differs that changes speed (`differences`), the runs are not comparable, and
the numbers are printed for what they are.
"""

from dataclasses import dataclass
from typing import Final

from rankscope.schema.measurement import Interval, Measurement

from .bootstrap import METHOD, MIN_STEPS, Resampled, Uncertainty, interval_around, interval_of_ratio
from .differences import CONFOUNDER, Difference, differences, they_differ
from .joint_evidence import JointEvidence
from .quality import loss_at
from .scaling import SAME_BATCH
from .scaling_run import PARTS, ScalingRun, check_comparable

ANALYZER: Final = "compare"
LEVEL: Final = 0.99
FASTER, SLOWER, NO_DIFFERENCE, NOT_COMPARABLE, UNKNOWN = (
    "faster", "slower", "no difference", "not comparable", "unknown")  # fmt: skip

_UNSEEN: Final = "not seen in both runs"


@dataclass(frozen=True, slots=True)
class Compared:
    """One quantity of both runs. ratio: B over A, with its interval where there is one."""

    name: str
    unit: str
    left: float | None
    right: float | None
    ratio: Measurement


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answer about B against A. verdict: faster, slower, no difference, not comparable or unknown."""

    verdict: str
    text: str
    quantities: tuple[Compared, ...]
    differences: tuple[Difference, ...]

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them."""
        return tuple(item.ratio for item in self.quantities)


def compare(left: ScalingRun, right: ScalingRun) -> Comparison:
    """B = `right` against A = `left`. Raises NoEvidence: runs of different jobs, a run without counted steps."""
    check_comparable((left, right))
    found = differences(left.made_from, right.made_from)
    in_the_way = _in_the_way(left, right, found)
    evidence = JointEvidence(
        ANALYZER, (left.digest, right.digest), sum(len(run.steps.duration_ns) for run in (left, right)),
        caveats=("the interval is that of these two runs",),
    )  # fmt: skip
    told = _Told(evidence, {"of": right.run_id, "against": left.run_id})
    quantities = tuple(_quantities(told, left, right))
    verdict, text = _verdict(quantities, in_the_way)
    return Comparison(verdict, text, quantities, found)


def _in_the_way(left: ScalingRun, right: ScalingRun, found: tuple[Difference, ...]) -> tuple[Difference, ...]:
    """What makes a comparison of speed meaningless: confounders, another number of ranks, another batch as drawn."""
    some = [item for item in found if item.kind == CONFOUNDER]
    if left.num_ranks != right.num_ranks:
        some.append(Difference("run.world_size", CONFOUNDER, "number of ranks", left.num_ranks, right.num_ranks))
    known = {item.name for item in some}
    is_told = left.batch is not None and right.batch is not None and "global batch" not in known
    if is_told and abs((left.batch or 0) - (right.batch or 0)) > SAME_BATCH * max(left.batch or 0, right.batch or 0):
        some.append(Difference("step.samples", CONFOUNDER, "global batch", left.batch, right.batch))
    return tuple(some)


@dataclass(frozen=True, slots=True)
class _Told:
    """What all ratios have in common. scope: the runs that are compared."""

    evidence: JointEvidence
    scope: dict[str, object]

    def ratio(self, name: str, above: Resampled | None, below: Resampled | None, reason: str = "") -> Measurement:
        """Of two means over steps."""
        scope = {"quantity": name, **self.scope}
        if above is None or below is None or below.mean <= 0:
            return self.evidence.measurement("compare.ratio", None, scope, 0, reason=reason)
        bounds = interval_of_ratio(above, below, LEVEL)
        interval = None if bounds is None else Interval(*bounds, LEVEL, METHOD)
        num = len(above.values) + len(below.values)
        return self.evidence.measurement("compare.ratio", above.mean / below.mean, scope, num, interval=interval)

    def point(
        self, name: str, above: float | None, below: float | None, reason: str, spread: tuple[Resampled, ...] = ()
    ) -> Measurement:
        """Of two numbers; with an interval where their spread over the steps is known."""
        value = None if above is None or not below else above / below
        reason = "that of A is 0" if above is not None and below == 0 else reason
        known = [part for part in map(Uncertainty.of, spread) if part is not None]
        interval = None
        if value and len(known) == 2:
            interval = Interval(*interval_around(value, known, LEVEL), LEVEL, METHOD)
        return self.evidence.measurement(
            "compare.ratio", value, {"quantity": name, **self.scope}, sum(len(item.values) for item in spread) or 2,
            interval=interval, reason="" if value is not None else reason,
        )  # fmt: skip


def _quantities(told: _Told, left: ScalingRun, right: ScalingRun) -> list[Compared]:
    one, other = (Resampled.of(run.steps.duration_ns) for run in (left, right))
    found = [Compared("step time", "ns", one.mean, other.mean, told.ratio("step time", other, one))]
    found += [_rate(told, left, right, name) for name in ("samples", "tokens")]
    for part in PARTS:
        name, before, after = f"{part} per step", left.parts_ns.get(part), right.parts_ns.get(part)
        spread = tuple(Resampled.of(run.part_series[part]) for run in (right, left) if part in run.part_series)
        found.append(Compared(name, "ns", before, after, told.point(name, after, before, _UNSEEN, spread)))
    points: list[tuple[str, str, float | None, float | None]] = [
        ("memory of a rank, most", "bytes", left.memory_bytes, right.memory_bytes),
        ("loss at equal samples", "", *_losses(left, right)),
    ]
    for name, unit, before, after in points:
        found.append(Compared(name, unit, before, after, told.point(name, after, before, _UNSEEN)))
    return [item for item in found if item.left is not None or item.right is not None]


def _rate(told: _Told, left: ScalingRun, right: ScalingRun, metric: str) -> Compared:
    before, after = left.rate(metric), right.rate(metric)
    reason = left.steps.samples.reason or right.steps.samples.reason or f"nobody tells the {metric} of a step"
    return Compared(
        f"{metric} per second", "1/s", None if before is None else before.mean, None if after is None else after.mean,
        told.ratio(f"{metric} per second", after, before, reason),
    )  # fmt: skip


def _losses(left: ScalingRun, right: ScalingRun) -> tuple[float | None, float | None]:
    if not all(len(run.loss) and run.loss_samples[-1] > 0 for run in (left, right)):
        return None, None
    reached = min(float(run.loss_samples[-1]) for run in (left, right))
    return loss_at(left, reached), loss_at(right, reached)


def _verdict(quantities: tuple[Compared, ...], in_the_way: tuple[Difference, ...]) -> tuple[str, str]:
    if in_the_way:
        return NOT_COMPARABLE, f"not comparable: {they_differ(in_the_way)}"
    known = {item.name: item.ratio for item in quantities}
    throughput = known.get("samples per second")
    if throughput is None or throughput.value is None:  # at the same batch steps tell as much
        throughput = known["step time"]
    ratio, interval = throughput.value, throughput.interval
    if interval is None or ratio is None:
        return UNKNOWN, f"fewer than {MIN_STEPS} counted steps: nothing can be said"
    if throughput is not known["step time"]:
        return _in_words(float(ratio), interval.low, interval.high)
    verdict, text = _in_words(1 / float(ratio), 1 / interval.high, 1 / interval.low)
    return verdict, f"{text}, by step time: nobody tells the samples of a step, so only at the same batch"


def _in_words(gain: float, low: float, high: float) -> tuple[str, str]:
    """gain: speed of B over that of A, with its interval."""
    if low <= 1 <= high:
        return NO_DIFFERENCE, f"no difference to be seen ({100 * (low - 1):+.1f} .. {100 * (high - 1):+.1f} %)"
    if gain > 1:
        return FASTER, f"faster by {100 * (gain - 1):.1f} % ({100 * (low - 1):.1f} .. {100 * (high - 1):.1f})"
    return SLOWER, f"slower by {100 * (1 - gain):.1f} % ({100 * (1 - high):.1f} .. {100 * (1 - low):.1f})"
