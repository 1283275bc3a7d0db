"""The run in brief: what it is, its ranks, its steps and how their durations are distributed.

A step's duration runs from the end of the previous boundary to the end of its own, the wait for data included. Counted
are steps that ended, that the job did not leave out, and that are not the first of their incarnation (it holds the
start of the job). The distribution is over ranks and steps; p50, p95, p99 are within 1 %, the maximum is exact.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from rankscope.schema.measurement import Measurement

from .buckets import Histogram, quantile
from .evidence import Evidence
from .partials import Pair
from .profile import COLLECTIVES, SPANS
from .run import Row, Run
from .statements import statement

ANALYZER: Final = "brief"
WINDOW: Final = Pair(ANALYZER, "window", (COLLECTIVES, SPANS))
PAIRS: Final = (WINDOW,)
"""Everything that this analyzer asks of the large tables."""
LEFT_OUT: Final = "the first step of each incarnation; steps marked warm-up, checkpoint, eval or shadow"
SERIES_COLUMNS: Final = 60
"""Points of the step-time series: what fits on a line."""
_SHARES: Final = (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))
_NO_STEP: Final = "no counted step: the run has fewer than two steps, or all are left out"


@dataclass(frozen=True, slots=True)
class About:
    """The run's own description; None where nobody said.

    span_ns: longest time between the first and the last row of a rank, or the last reading of its host while it lived.
    """

    run_id: str
    job_id: str | None
    owner: str | None
    project: str | None
    created_ns: int | None
    world_size: int | None
    layout: tuple[tuple[str, str], ...]
    num_nodes: int
    num_processes: int
    incarnations: tuple[int, ...]
    span_ns: int | None
    is_running: bool


@dataclass(frozen=True, slots=True)
class RankLine:
    """One rank of one incarnation. mean_ns, p50_ns, longest_ns: of its counted steps, None without any."""

    incarnation: int
    rank: int | None
    host: str
    pid: int | None
    exit_kind: str
    num_steps: int
    num_counted: int
    p50_ns: int | None
    longest_ns: int | None
    num_skipped: int


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """Some neighbouring steps: mean and maximum of the slowest rank's duration."""

    first_step: int
    last_step: int
    mean_ns: int
    longest_ns: int


@dataclass(frozen=True, slots=True)
class Brief:
    """The answer. histogram: buckets of the counted step durations; longest: (duration, incarnation, step, rank)."""

    about: About
    ranks: tuple[RankLine, ...]
    num_steps: Measurement
    durations: tuple[Measurement, ...]
    tail_ratio: Measurement
    skipped: Measurement
    histogram: Histogram
    series: tuple[SeriesPoint, ...]
    longest: tuple[int, int, int, int | None] | None
    boundaries: tuple[tuple[str, int], ...]

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        return (self.num_steps, *self.durations, self.tail_ratio, self.skipped)

    def duration_ns(self, statistic: str) -> int | None:
        """The statistic (p50, p95, p99, max) of step.duration over all ranks."""
        found = [item.value for item in self.durations if item.scope == {"statistic": statistic}]
        return None if not found or found[0] is None else int(found[0])


def brief(run: Run, coverage: float | None = None) -> Brief:
    """The run in brief. coverage is printed beside every number."""
    buckets = run.rows(statement(ANALYZER, "step_durations"))
    by_rank: dict[tuple[int, int | None], Histogram] = defaultdict(list)
    for incarnation, rank, bucket, count in buckets:
        by_rank[incarnation, rank].append((bucket, count))
    histogram = _total(buckets)
    told = Evidence(
        run,
        ANALYZER,
        statement(ANALYZER, "step_durations"),
        ("step",),
        coverage,
        left_out=LEFT_OUT,
        predicate="end_ns >= start_ns AND left_out IS NULL AND step > 0",
        caveats=("quantiles within 1 % (logarithmic buckets)",),
    )
    longest = run.rows(statement(ANALYZER, "longest_steps"))
    ranks = _ranks(run, by_rank)
    series = run.rows(statement(ANALYZER, "step_series").replace("{columns}", str(SERIES_COLUMNS)))
    return Brief(
        _about(run),
        ranks,
        _num_steps(run, ranks, coverage),
        _durations(told, histogram, longest),
        _tail_ratio(told, histogram, longest),
        _skipped(run, ranks, coverage),
        histogram,
        tuple(SeriesPoint(*row[1:]) for row in series),
        longest[0] if longest else None,
        tuple(run.rows(statement(ANALYZER, "boundaries"))),
    )


def _about(run: Run) -> About:
    rows = run.rows(statement(ANALYZER, "run"))
    said = rows[0] if rows else (None,) * 15
    processes = run.rows(statement(ANALYZER, "processes"))
    names = ("dp", "tp", "pp", "cp", "ep", "sharding", "precision")
    layout = tuple((name, str(value)) for name, value in zip(names, said[8:15], strict=True) if value is not None)
    spans = [row[2] - row[1] for row in WINDOW.rows(run) if row[1] is not None and row[2] is not None]
    return About(
        run.run_id, said[1], said[2], said[3], said[4], said[7], layout, len({row[3] for row in processes if row[3]}),
        len({row[2] for row in processes}), tuple(sorted({row[0] or 0 for row in processes})), max(spans, default=None),
        any(row[6] == "running" for row in processes) or run.unsealed.num_alive > 0,
    )  # fmt: skip


def _ranks(run: Run, by_rank: dict[tuple[int, int | None], Histogram]) -> tuple[RankLine, ...]:
    steps = {(row[0], row[1]): row for row in run.rows(statement(ANALYZER, "ranks"))}
    found = []
    seen = set()
    for incarnation, rank, _, _, host, pid, exit_kind in run.rows(statement(ANALYZER, "processes")):
        key = (incarnation or 0, rank)
        seen.add(key)
        found.append(_rank_line(key, host or "", pid, exit_kind or "unknown", steps.get(key), by_rank.get(key, [])))
    found += [
        _rank_line(key, "", None, "unknown", row, by_rank.get(key, [])) for key, row in steps.items() if key not in seen
    ]
    return tuple(found)


def _rank_line(
    key: tuple[int, int | None],
    host: str,
    pid: int | None,
    exit_kind: str,
    row: tuple[int, ...] | None,
    histogram: Histogram,
) -> RankLine:
    num_steps, num_counted, _, longest, skipped = row[2:7] if row else (0, 0, None, None, 0)
    return RankLine(
        *key, host, pid, exit_kind, num_steps, num_counted, quantile(histogram, 0.5, longest), longest, skipped
    )


def _total(buckets: list[tuple[int, int | None, int, int]]) -> Histogram:
    counts: dict[int, int] = defaultdict(int)
    for _, _, bucket, count in buckets:
        counts[bucket] += count
    return sorted(counts.items())


def _num_steps(run: Run, ranks: tuple[RankLine, ...], coverage: float | None) -> Measurement:
    told = Evidence(run, ANALYZER, statement(ANALYZER, "ranks"), ("step",), coverage)
    total = sum(rank.num_steps for rank in ranks)
    if not run.size("step").num_rows:
        return told.measurement("step.count", None, {}, 0, reason="no step row: no boundary was seen")
    most: dict[int, int] = defaultdict(int)
    for rank in ranks:
        most[rank.incarnation] = max(most[rank.incarnation], rank.num_steps)
    return told.measurement("step.count", sum(most.values()), {}, total)


def _durations(told: Evidence, histogram: Histogram, longest: list[Row]) -> tuple[Measurement, ...]:
    total = sum(count for _, count in histogram)
    most = longest[0][0] if longest else None
    values = {name: quantile(histogram, share, most) for name, share in _SHARES} | {"max": most}
    return tuple(
        told.measurement(
            "step.duration", value, {"statistic": name}, total, reason="" if value is not None else _NO_STEP
        )
        for name, value in values.items()
    )


def _tail_ratio(told: Evidence, histogram: Histogram, longest: list[Row]) -> Measurement:
    most = longest[0][0] if longest else None
    p50, p99 = quantile(histogram, 0.50, most), quantile(histogram, 0.99, most)
    total = sum(count for _, count in histogram)
    if not p50 or p99 is None:
        return told.measurement("step.tail_ratio", None, {}, total, reason=_NO_STEP)
    return told.measurement("step.tail_ratio", p99 / p50, {}, total)


def _skipped(run: Run, ranks: tuple[RankLine, ...], coverage: float | None) -> Measurement:
    told = Evidence(run, ANALYZER, statement(ANALYZER, "ranks"), ("step",), coverage)
    if not run.size("step").num_rows:
        return told.measurement("numerics.skipped_steps", None, {}, 0, reason="no step row: no boundary was seen")
    most: dict[int, int] = defaultdict(int)
    for rank in ranks:
        most[rank.incarnation] = max(most[rank.incarnation], rank.num_skipped)
    return told.measurement("numerics.skipped_steps", sum(most.values()), {}, sum(rank.num_steps for rank in ranks))
