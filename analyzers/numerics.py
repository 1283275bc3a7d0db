"""Do the numbers of the training stay sound? Loss, gradient norm, loss scale, and values that ranks should share.

Non-finite: a loss or gradient norm that is not a finite number, on any rank; infinite norms in steps that a loss scaler
skipped are its daily work and are told apart. Spike: the mean over the ranks lies more than 6 MAD from the median of
the last 100 steps. Collapse: a loss scale below 1, or at 1/256 of what it was (eight overflows in a row; torch's
documentation of GradScaler calls a scale below 1 a sign of trouble). Drift: only values declared replicated are
compared (bit by bit), for local losses differ by design.

Metrics are known by their names: "loss" for losses, "grad" and "norm" for gradient norms, "loss" and "scale" for loss
scales.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from rankscope.schema.measurement import Measurement

from .evidence import Evidence
from .run import Row, Run
from .statements import statement

ANALYZER: Final = "numerics"
NUM_MADS: Final = 6
"""Distance from the median, in median absolute deviations, that is a spike."""
WINDOW_STEPS: Final = 100
LEAST_STEPS: Final = 20
"""Steps before one that are needed to judge it."""
COLLAPSE_FACTOR: Final = 256
CURVE_COLUMNS: Final = 60
_NO_METRIC: Final = "nothing was logged as a loss or gradient norm, and no gradients were clipped by torch"
_NO_SCALE: Final = "no loss scaler was seen"
_NO_REPLICATED: Final = "no value was declared replicated on two or more ranks"
_TOO_FEW: Final = f"fewer than {LEAST_STEPS} steps with differing values"

Place = tuple[int, int]
"""Incarnation and step."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One count of one metric. first: where it began, None if it never did; ranks: who, where that is known.

    detail: a number in words about it. num_expected: so many of the count are no trouble.
    """

    kind: str
    metric: str
    count: Measurement
    first: Place | None
    ranks: tuple[int, ...] = ()
    detail: str = ""
    num_expected: int = 0


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Some neighbouring steps: mean over them of the mean over ranks, and the extremes of the latter."""

    first_step: int
    last_step: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Numerics:
    """The answer. curve: the loss, over the steps; curve_name: which metric that is, "" for none."""

    findings: tuple[Finding, ...]
    curve_name: str
    curve: tuple[CurvePoint, ...]
    unknown: tuple[Measurement, ...]

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        return (*(item.count for item in self.findings), *self.unknown)

    def of(self, kind: str) -> tuple[Finding, ...]:
        """The findings of one kind (nonfinite, spikes, collapses, drift) that have something to tell."""
        return tuple(item for item in self.findings if item.kind == kind and item.count.value)


def numerics(run: Run, coverage: float | None = None) -> Numerics:
    """The numerics of `run`. coverage is printed beside every number."""
    told = run.rows(statement(ANALYZER, "told"))
    findings = [
        *_nonfinite(run, coverage, told), *_spikes(run, coverage), *_collapses(run, coverage), *_drift(run, coverage)
    ]  # fmt: skip
    known = {item.count.name for item in findings}
    unknown = [
        _evidence(run, coverage, name).measurement(f"numerics.{measure}", None, {}, 0, reason=reason)
        for measure, name, reason in (
            ("nonfinite_steps", "nonfinite", _NO_METRIC), ("spikes", "spikes", _NO_METRIC),
            ("loss_scale_collapses", "scales", _NO_SCALE), ("replicated_drift", "drift", _NO_REPLICATED),
        )
        if f"numerics.{measure}" not in known
    ]  # fmt: skip
    name = _curve_name(told)
    return Numerics(tuple(findings), name, _curve(run, name), tuple(unknown))


def _nonfinite(run: Run, coverage: float | None, told: list[Row]) -> list[Finding]:
    evidence = _evidence(run, coverage, "nonfinite")
    bad = {row[0]: row[1:] for row in run.rows(evidence.statement)}
    found = []
    for name, _, num_steps_told, _ in told:
        num_steps, num_skipped, first, ranks = bad.get(name, (0, 0, None, ()))
        count = evidence.measurement("numerics.nonfinite_steps", num_steps, {"metric": name}, num_steps_told)
        skipped = f"{num_skipped} of them skipped by the loss scaler" if num_skipped else ""
        who = tuple(rank for rank in ranks or () if rank is not None)
        found.append(Finding("nonfinite", name, count, _place(first), who, skipped, num_skipped))
    return found


def _spikes(run: Run, coverage: float | None) -> list[Finding]:
    evidence = _evidence(run, coverage, "spikes")
    found = []
    for name, num_judged, num_spikes, first, worst, value in run.rows(evidence.statement):
        known, scope = num_judged > 0, {"metric": name}
        count = evidence.measurement(
            "numerics.spikes", num_spikes if known else None, scope, num_judged, reason="" if known else _TOO_FEW
        )
        detail = f"{value:.4g} in step {worst[1]}" if worst else ""
        found.append(Finding("spikes", name, count, _place(first), detail=detail))
    return found


def _collapses(run: Run, coverage: float | None) -> list[Finding]:
    evidence = _evidence(run, coverage, "scales")
    found = []
    for name, num_rows, num_collapses, first, least, most in run.rows(evidence.statement):
        count = evidence.measurement("numerics.loss_scale_collapses", num_collapses, {"metric": name}, num_rows)
        found.append(Finding("collapses", name, count, _place(first), detail=f"between {least:g} and {most:g}"))
    return found


def _drift(run: Run, coverage: float | None) -> list[Finding]:
    evidence = _evidence(run, coverage, "drift")
    found = []
    for name, num_compared, num_steps, first, most in run.rows(evidence.statement):
        count = evidence.measurement("numerics.replicated_drift", num_steps, {"metric": name}, num_compared)
        place = _place(first)
        ranks = _odd_ranks(run, name, place) if place else ()
        detail = f"by up to {100 * most:.2g} %" if most is not None else ""
        found.append(Finding("drift", name, count, place, ranks, detail))
    return found


def _odd_ranks(run: Run, name: str, place: Place) -> tuple[int, ...]:
    """Ranks that differ from what more than half of them told in that step; empty where no value has a majority."""
    parameters = {"name": name, "incarnation": place[0], "step": place[1]}
    told = {rank: repr(values) for rank, values in run.rows(statement(ANALYZER, "values_of_step"), parameters)}
    value, number = Counter(told.values()).most_common(1)[0]
    if 2 * number <= len(told):
        return ()
    return tuple(rank for rank, said in told.items() if said != value and rank is not None)


def _curve_name(told: list[Row]) -> str:
    """The loss: the metric of that name, else the one that most steps have."""
    losses = [(name != "loss", -num_steps, name) for name, _, num_steps, is_loss in told if is_loss]
    return min(losses)[2] if losses else ""


def _curve(run: Run, name: str) -> tuple[CurvePoint, ...]:
    if not name:
        return ()
    sql = statement(ANALYZER, "curve").replace("{columns}", str(CURVE_COLUMNS))
    return tuple(CurvePoint(*row[1:]) for row in run.rows(sql, {"name": name}))


def _evidence(run: Run, coverage: float | None, name: str) -> Evidence:
    sql = statement(ANALYZER, name)
    values: dict[str, Any] = {
        "mads": NUM_MADS, "window": WINDOW_STEPS, "least": LEAST_STEPS, "fall": COLLAPSE_FACTOR,
    }  # fmt: skip
    for key, value in values.items():
        sql = sql.replace(f"{{{key}}}", str(value))
    tables = ("metric", "step") if name == "nonfinite" else ("metric",)
    return Evidence(run, ANALYZER, sql, tables, coverage, caveats=("metrics are known by their names",))


def _place(value: Any) -> Place | None:
    """DuckDB's row values come as tuples, or as dictionaries without names."""
    if value is None:
        return None
    incarnation, step = value.values() if isinstance(value, dict) else value
    return int(incarnation), int(step)
