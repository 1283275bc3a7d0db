"""What the run made of its devices: throughput, goodput, utilisation of the model's FLOPs, energy and cost.

MFU = model FLOPs per second / (ranks x peak): throughput times the declared FLOPs of a sample or token, over the peak
that the run declares, else that of the device's name (`peaks`). Where recomputation is counted in the FLOPs it is HFU,
and called so. A value above 1 is refused: the FLOPs or the peak are wrong. Goodput = tokens (samples, where nobody
tells tokens) of the steps that count once / time from the first step to the last, checkpoints and restarts included:
the time is spent, whatever on. Cost = ranks x that time x the declared price. Nothing is guessed: a number without all
its inputs is none, and says which is missing. Worked example: 1,000 tokens/s, 6e9 FLOPs a token, 2 ranks of 1e13
FLOP/s: 0.3.
"""

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from rankscope.schema.measurement import Interval, Measurement

from .data_coordinates import world_size
from .devices import devices
from .evidence import Evidence
from .memory import memory
from .network import network
from .peaks import SIXTEEN_BITS, peak_of
from .run import Row, Run
from .statements import statement
from .throughput import NO_STEP, Throughput, throughput

ANALYZER: Final = "efficiency"
_HOUR_NS: Final = 3_600_000_000_000
_TARGET: Final = re.compile(r"^\s*(?P<name>[^<>=]+?)\s*(?P<sign><=|>=|<|>)\s*(?P<value>[-+0-9.eE]+)\s*$")
_SIGNS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Target:
    """A value that a metric is to reach, such as loss <= 2."""

    name: str
    sign: str
    value: float

    @classmethod
    def parse(cls, text: str) -> "Target":
        """From "loss <= 2.0". Raises ValueError that says the form."""
        found = _TARGET.match(text)
        try:
            value = float(found["value"]) if found else math.nan
        except ValueError:
            value = math.nan
        if found is None or not math.isfinite(value):
            raise ValueError(f"{text!r} is no target: write METRIC<=VALUE or METRIC>=VALUE")
        return cls(found["name"], found["sign"], value)

    def is_reached_by(self, value: float) -> bool:
        """`value` is as far as the target, or further."""
        return _SIGNS[self.sign](value, self.value)

    def __str__(self) -> str:
        return f"{self.name} {self.sign} {self.value:g}"


@dataclass(frozen=True, slots=True)
class RankRate:
    """Counted steps of one rank. samples_per_second: of its own samples, None where it told none."""

    rank: int | None
    node: str
    num_steps: int
    mean_step_ns: float
    samples_per_second: float | None


@dataclass(frozen=True)
class Efficiency:
    """The answer. utilisation_name: MFU or HFU; formula: the line that its number comes from; beside: the most memory
    of a rank, bytes of the interfaces that carried any, and energy.
    """

    throughput: Throughput
    goodput: Measurement
    utilisation: Measurement
    utilisation_name: str
    formula: str
    cost: Measurement
    targets: tuple[Measurement, ...]
    ranks: tuple[RankRate, ...]
    beside: tuple[Measurement, ...]

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order in which they are printed."""
        return (*self.throughput.measurements, self.goodput, self.utilisation, self.cost, *self.targets, *self.beside)


def efficiency(run: Run, coverage: float | None = None, targets: tuple[Target, ...] = ()) -> Efficiency:
    """The efficiency of `run`."""
    made = throughput(run, coverage)
    declared = tuple(map(_as_told, (run.rows(statement(ANALYZER, "declared")) or [(None,) * 7])[0]))
    spans = run.rows(statement(ANALYZER, "spans"))
    ranks = tuple(_rank(row) for row in run.rows(statement(ANALYZER, "by_rank")))
    num_ranks = world_size(run, len(ranks))
    utilisation, name, formula = _utilisation(run, coverage, made, declared, num_ranks)
    return Efficiency(
        made, _goodput(run, coverage, made, spans), utilisation, name, formula,
        _cost(run, coverage, declared[4], spans, num_ranks),
        tuple(_time_to(run, coverage, target, spans) for target in targets), ranks, _beside(run, coverage, made),
    )  # fmt: skip


def _as_told(value: Any) -> Any:
    """What was declared; None for a number that is none (`attach` takes no such, other writers of runs may)."""
    return None if isinstance(value, float) and not 0 < value < math.inf else value


def _rank(row: Row) -> RankRate:
    rank, node, num_steps, step_ns, samples, num_told = row
    is_told = num_told == num_steps and step_ns
    return RankRate(rank, node or "", num_steps, step_ns / num_steps, samples / step_ns * 1e9 if is_told else None)


def _time_ns(spans: list[Row]) -> tuple[int | None, str]:
    """From the first step to the last of the run; a reason where its incarnations have no common clock."""
    if not spans:
        return None, "no step ended"
    if len({row[3] for row in spans}) > 1:
        return None, "the incarnations ran under different clocks (another host, or a reboot)"
    return max(row[2] for row in spans) - min(row[1] for row in spans), ""


def _goodput(run: Run, coverage: float | None, made: Throughput, spans: list[Row]) -> Measurement:
    told = Evidence(run, ANALYZER, statement(ANALYZER, "useful"), ("step",), coverage)
    ended, useful, different, is_unnumbered = run.rows(statement(ANALYZER, "useful"))[0]
    span, reason = _time_ns(spans)
    unit, amount = (
        ("tokens", made.steps.tokens) if made.steps.tokens.values is not None else ("samples", made.steps.samples)
    )
    if amount.values is None or not len(amount.values):
        return told.measurement("throughput.goodput", None, {}, ended, reason=amount.reason or NO_STEP)
    if not span:
        return told.measurement("throughput.goodput", None, {}, ended, reason=reason)
    value = float(amount.values.mean()) * different / span * 1e9
    again = f"{useful - different} were done again"
    if is_unnumbered:
        again = "at most: which steps were done again after a restart, nobody tells: rankscope.step(global_step=...)"
    caveats = (f"in {unit}", f"{different} of {ended} steps count", again)
    return told.measurement("throughput.goodput", value, {}, ended, caveats=caveats)


def _utilisation(
    run: Run, coverage: float | None, made: Throughput, declared: Row, num_ranks: int
) -> tuple[Measurement, str, str]:
    """The measurement, what it is called, and its formula with the numbers in it."""
    per_sample, per_token, source, *_ = declared
    name = "HFU" if source == "counted" and declared[6] not in (None, "", "none") else "MFU"
    told = Evidence(run, ANALYZER, statement(ANALYZER, "declared"), ("run", "step", "device"), coverage)
    rates = [(per_token, made.tokens, "token"), (per_sample, made.samples, "sample")]
    flops, rate, what = next((item for item in rates if item[0] and item[1].value is not None),
                             next((item for item in rates if item[0]), (None, made.tokens, "token")))  # fmt: skip
    peak, origin = _peak(run, declared)
    if flops is None and made.samples.value is not None:  # FLOPs of a sample would do
        rate = made.samples
    missing = [reason for value, reason in (
        (flops, "nobody tells the model's FLOPs: attach(flops_per_token=...), or count them with rankscope flops"),
        (rate.value, rate.reason), (peak, origin)) if value is None]  # fmt: skip
    if missing or flops is None or rate.value is None or peak is None:
        return told.measurement("efficiency.mfu", None, {}, 0, reason="; ".join(missing)), name, ""
    value = float(rate.value) * flops / (num_ranks * peak)
    formula = (f"{float(rate.value):,.4g} {what}s/s x {flops:.4g} FLOPs a {what} ({source or 'declared'}) / "
               f"({num_ranks} ranks x {peak:.4g} FLOP/s, {origin})")  # fmt: skip
    if value > 1:
        reason = f"{formula} = {value:.3g}, above 1: the FLOPs or the peak are wrong"
        return told.measurement("efficiency.mfu", None, {}, rate.n, reason=reason), name, formula
    factor = flops / (num_ranks * peak)
    interval = None if rate.interval is None else Interval(
        rate.interval.low * factor, rate.interval.high * factor, rate.interval.level, rate.interval.method)  # fmt: skip
    caveats = (formula, *(("recomputation is counted: this is HFU",) if name == "HFU" else ()))
    return told.measurement("efficiency.mfu", value, {}, rate.n, interval=interval, caveats=caveats), name, formula


def _peak(run: Run, declared: Row) -> tuple[float | None, str]:
    """FLOP/s of one device and where that is from; None and why not."""
    if declared[3]:
        return float(declared[3]), "declared"
    names = [row[0] for row in run.rows(statement(ANALYZER, "devices")) if row[0]]
    if len(names) != 1:
        return None, "nobody tells the peak: attach(peak_flops=...)" + (
            f" ({len(names)} kinds of device)" if names else ""
        )
    peak, precision = peak_of(names[0]), (declared[5] or "").lower()
    if peak is None:
        return None, f"the peak of {names[0]} is not known here: attach(peak_flops=...)"
    if precision not in SIXTEEN_BITS:
        return None, f"peaks are known for 16-bit floats, the precision is {precision or 'not declared'}"
    return peak, f"{names[0]}, dense 16-bit"


def _cost(run: Run, coverage: float | None, price: float | None, spans: list[Row], num_ranks: int) -> Measurement:
    told = Evidence(run, ANALYZER, statement(ANALYZER, "spans"), ("run", "step"), coverage)
    span, reason = _time_ns(spans)
    if price is None:
        reason = "no price is declared: attach(price_per_device_hour=...)"
    if price is None or span is None:
        return told.measurement("cost.run", None, {}, 0, reason=reason)
    hours = num_ranks * span / _HOUR_NS
    caveats = (f"{hours:.4g} device hours x {price:g}", "from the first step to the last")
    return told.measurement("cost.run", hours * price, {}, num_ranks, caveats=caveats)


def _time_to(run: Run, coverage: float | None, target: Target, spans: list[Row]) -> Measurement:
    told = Evidence(run, ANALYZER, statement(ANALYZER, "metric"), ("metric", "step"), coverage)
    scope = {"metric": target.name, "target": str(target)}
    rows = run.rows(statement(ANALYZER, "metric"), {"name": target.name})
    _, reason = _time_ns(spans)
    if not rows:
        ((num_logged,),) = run.rows(statement(ANALYZER, "logged"), {"name": target.name})
        reason = f"no metric {target.name} was logged"
        reason = f"none of the {num_logged:,} values of {target.name} is a number" if num_logged else reason
    reached = next((row for row in rows if target.is_reached_by(row[2])), None)
    if not reason and reached is None:
        best = min if target.sign.startswith("<") else max
        reason = f"not reached: the best was {best(row[2] for row in rows):.4g}"
    if reason or reached is None:
        return told.measurement("efficiency.time_to_target", None, scope, len(rows), reason=reason)
    value = reached[3] - min(row[1] for row in spans)
    return told.measurement("efficiency.time_to_target", value, scope, len(rows), caveats=(f"in step {reached[1]}",))


def _beside(run: Run, coverage: float | None, made: Throughput) -> tuple[Measurement, ...]:
    told = [item for item in memory(run, coverage).measurements
            if item.value is not None and item.scope.get("statistic") in (None, "max")]  # fmt: skip
    held = [
        max(some, key=lambda item: float(item.value or 0))
        for name in ("memory.peak_reserved", "memory.rss")
        if (some := [item for item in told if item.name == name])
    ]
    sent = [item for item in network(run, coverage).measurements
            if item.name == "network.step_bytes" and item.scope.get("statistic") == "mean" and item.value]  # fmt: skip
    energy = list(devices(run, coverage).energy)
    return (*held, *sent, *energy, _energy_of_a_sample(run, coverage, made, energy))


def _energy_of_a_sample(
    run: Run, coverage: float | None, made: Throughput, energy: list[Measurement]
) -> Measurement:  # fmt: skip
    told = Evidence(run, ANALYZER, statement("devices", "devices"), ("device_sample", "step"), coverage)
    step = next((item for item in energy if item.name == "energy.step"), None)
    samples = made.steps.samples
    if step is None or step.value is None:
        reason = "no device was sampled" if step is None else step.reason
        return told.measurement("energy.sample", None, {}, 0, reason=reason)
    if samples.values is None or not len(samples.values):
        return told.measurement("energy.sample", None, {}, 0, reason=samples.reason or NO_STEP)
    return told.measurement("energy.sample", float(step.value) / float(samples.values.mean()), {}, step.n)
