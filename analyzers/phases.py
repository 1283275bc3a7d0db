"""Where the time of the counted steps went, by phase: data, forward, backward, optimizer, and what the user marked.

Per rank the union of the spans of a kind (nested ones counted once), then the mean over ranks and the rank that spent
most. On CUDA these are the times in which work was launched, not done; collectives waited for inside a phase are part
of it.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from rankscope.schema.measurement import Measurement

from .evidence import Evidence
from .partials import Pair, Partial
from .run import Run
from .statements import statement

ANALYZER: Final = "phases"
PHASES: Final = Pair(ANALYZER, "phases", (Partial(ANALYZER, "phases_partial", ("span", "step"), ("part_phases",)),))
PAIRS: Final = (PHASES,)
"""Everything that this analyzer asks of the large tables."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One kind of span. mean, most: time.phase with scope.statistic mean and max; share: of all ranks' step time."""

    name: str
    num_spans: int
    mean: Measurement
    most: Measurement
    share: float
    slowest_rank: int | None


@dataclass(frozen=True, slots=True)
class Phases:
    """The answer, longest first. step_ns: time of all counted steps; steps_per_rank: most that a rank has."""

    phases: tuple[Phase, ...]
    step_ns: int
    steps_per_rank: int

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        return tuple(item for phase in self.phases for item in (phase.mean, phase.most))


def phases(run: Run, coverage: float | None = None) -> Phases:
    """The phases of the counted steps of `run`; none where it has no spans or no counted steps."""
    steps = run.rows(statement(ANALYZER, "step_time"))
    step_ns, num_ranks = sum(row[1] for row in steps), len(steps)
    told = Evidence(run, ANALYZER, statement(ANALYZER, "phases"), ("span", "step"), coverage, window="counted steps",
                    caveats=("host times", "waits for collectives inside a phase are part of it"))  # fmt: skip
    by_phase: dict[str, list[tuple[int | None, int, int]]] = defaultdict(list)
    for kind, name, rank, num_spans, union_ns in PHASES.rows(run):
        by_phase[name or kind or "unknown"].append((rank, num_spans, union_ns))
    found = [_phase(told, name, rows, step_ns, num_ranks) for name, rows in by_phase.items()] if step_ns else []
    return Phases(
        tuple(sorted(found, key=lambda phase: (-phase.share, phase.name))),
        step_ns,
        max((row[2] for row in steps), default=0),
    )


def _phase(
    told: Evidence, name: str, rows: list[tuple[int | None, int, int]], step_ns: int, num_ranks: int
) -> Phase:  # fmt: skip
    total, num_spans = sum(row[2] for row in rows), sum(row[1] for row in rows)
    rank, _, most = max(rows, key=lambda row: (row[2], -(row[0] or 0)))
    scope = {"phase": name}
    return Phase(
        name,
        num_spans,
        told.measurement("time.phase", total // num_ranks, {**scope, "statistic": "mean"}, num_spans),
        told.measurement("time.phase", most, {**scope, "statistic": "max", "rank": rank}, num_spans),
        total / step_ns,
        rank,
    )
