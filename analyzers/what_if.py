"""What would the job cost without its stragglers? The step's dependency graph replayed with other durations.

T: replay with the measured durations and no delay between operations. T_ideal: compute at the mean of its kind,
communication at the median transfer of its kind (transfer = end - last begin of its group). S = T / T_ideal, wasted
fraction 1 - 1/S. S of a slice (data rank, stage, kind): only that slice at its measured times, over T_ideal; of a
worker: the smaller one of its data rank's and stage's. M_W, M_S: the share of T - T_ideal that goes when the worst 3 %
of workers (at least one), or the last stage, are ideal. Times are means over the steps. Beyond a replay error of 5 %
(observed / T - 1) the graph does not describe the job, and there is no verdict.

Source: Lin et al., arXiv 2505.05713. Needs rows that tell stage, chunk, micro-batch and role; steps whose operations
differ from the usual ones are left out. Of the ranks of one data coordinate and stage (tensor parallel) the highest
stands for all. Of more than MAX_ROWS operations one step in some is taken: each is replayed by itself.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from rankscope.schema.errors import NoEvidence
from rankscope.schema.measurement import Measurement, Verdict

from .clocks import align
from .evidence import Evidence
from .headline import INFO, NOTHING, Headline, verdict_headline
from .partials import Given, Pair
from .profile import COLLECTIVES, has_any
from .replay import CLIP, EMBEDDING, GATHER, LAYERNORM, P2P, SCATTER, Graph, Op, Times, build, last_begin
from .run import Run
from .sampled import most_steps
from .statements import statement

ANALYZER: Final = "what_if"
_PROCESSES, _STEPS = "replayed_process", "replayed_steps"
"""Small tables for each part: proc of the ranks that are replayed; stride: one step in so many is."""
OPERATIONS: Final = Pair.of_parts(
    ANALYZER, "operations", ("span", "collective", "step"),
    given=(Given(_PROCESSES, f"FROM _{_PROCESSES}"), Given(_STEPS, f"FROM _{_STEPS}")),
)  # fmt: skip
MAX_ROWS: Final = 500_000
"""Operations with a stage that are replayed, about: 5 us and 1 kB each."""
MIN_STEPS: Final = 20
"""However many operations these have."""
SLOW: Final = 1.1
"""A job is slowed down from S = 1.1 on (the paper's threshold)."""
EXPLAINS: Final = 0.5
"""A slice that explains at least half of the slowdown is named (the paper's threshold)."""
WORST_PERCENT: Final = 3
MAX_REPLAY_ERROR: Final = 0.05
_OVERLAP_NS: Final = 10_000_000
"""A transfer that ended more than 10 ms before its last member began is a clock's or a log's error: taken as 0."""
_COMMUNICATION: Final = (*P2P, GATHER, SCATTER, CLIP, EMBEDDING, LAYERNORM)
_NAMES: Final = {"forward-send": "forward-pp-comm", "forward-recv": "forward-pp-comm",
                 "backward-send": "backward-pp-comm", "backward-recv": "backward-pp-comm"}  # fmt: skip
_Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The answer. by_*: slowdown with only that slice as measured. reason: why there is no verdict; "" if there is."""

    slowdown: Measurement
    replay_error: Measurement
    share_worst_workers: Measurement
    share_last_stage: Measurement
    by_dp_rank: tuple[Measurement, ...] = ()
    by_stage: tuple[Measurement, ...] = ()
    by_op: tuple[Measurement, ...] = ()
    by_worker: tuple[Measurement, ...] = ()
    verdict: Verdict | None = None
    num_steps: int = 0
    num_left_out: int = 0
    reason: str = ""

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them."""
        return (self.slowdown, self.replay_error, self.share_worst_workers, self.share_last_stage, *self.by_dp_rank,
                *self.by_stage, *self.by_op, *self.by_worker)  # fmt: skip

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdict, if there is one."""
        return () if self.verdict is None else (self.verdict,)

    @property
    def headlines(self) -> tuple[Headline, ...]:
        """The verdict with what it costs, or why there is none."""
        if self.verdict is None:
            return (Headline(INFO, f"No verdict on stragglers from the replay: {self.reason}.", "stragglers"),)
        said = verdict_headline(self.verdict, "stragglers")
        if self.verdict.kind == NOTHING or self.slowdown.value is None:
            return (said,)
        slow = f"A step takes {float(self.slowdown.value):.2f} times as long as without stragglers"
        return (replace(said, text=f"{said.text} {slow}, over {self.num_steps:,} steps."),)


@dataclass(frozen=True, slots=True)
class _Job:
    """The measured lengths and the ideal ones, by operation; arrays by (step, data rank)."""

    graph: Graph
    measured: dict[Op, Times]
    ideal: dict[Op, Times]
    observed_ns: float
    ranks: dict[_Key, int]
    num_steps: int
    num_left_out: int

    def ranks_of(self, stage: int) -> tuple[int, ...]:
        """The ranks of a stage."""
        return tuple(sorted(rank for (_, number), rank in self.ranks.items() if number == stage))

    def time(self, lengths: dict[Op, Times]) -> float:
        """Mean time of a step, replayed."""
        return float(self.graph.replay(lengths).mean())

    def only(self, base: dict[Op, Times], other: dict[Op, Times], of: Callable[[Op, int], bool]) -> float:
        """`base`, with the lengths of `other` where `of` (operation, data rank) holds."""
        mixed = {}
        for op, lengths in base.items():
            mask = np.array([of(op, dp) for dp in range(lengths.shape[1])])
            mixed[op] = np.where(mask[None, :], other[op], lengths) if mask.any() else lengths
        return self.time(mixed)


def what_if(run: Run, coverage: float | None = None) -> WhatIf | None:
    """The replay; None where no row tells a stage and a role, so that the question does not arise."""
    return run.anew(lambda: _what_if(run, coverage))


def _what_if(run: Run, coverage: float | None) -> WhatIf | None:
    if not has_any(run, COLLECTIVES, "num_staged > 0"):
        return None
    clocks = align(run)
    stride = _choose(run)
    rows = OPERATIONS.rows(run)
    window = "counted steps" + (f", one in {stride}" if stride > 1 else "")
    told = Evidence(run, ANALYZER, OPERATIONS.definition, ("span", "collective", "step", "process"), coverage,
                    window=window, predicate="rows that tell stage and role",
                    clock_error_ns=clocks.worst_error_ns)  # fmt: skip
    if not any(row[4] in _COMMUNICATION for row in rows) or len({row[2] for row in rows}) < 2:
        return None
    if any(row[6] is None or row[7] is None for row in rows):
        return _nothing(told, "the clocks of its hosts cannot be compared")
    try:
        job = _job(rows)
    except NoEvidence as error:
        return _nothing(told, str(error))
    return _answer(told, job)


def _choose(run: Run) -> int:
    """Leave the small tables; one step in so many is replayed."""
    run.rows(f"CREATE OR REPLACE TEMP TABLE _{_PROCESSES} AS {statement(ANALYZER, 'replayed')}")
    [[num_rows]] = run.rows(statement(ANALYZER, "num_staged"))
    stride = max(1, min(-(-int(num_rows or 0) // MAX_ROWS), most_steps(run) // MIN_STEPS))
    run.rows(f"CREATE OR REPLACE TEMP TABLE _{_STEPS} AS SELECT {stride} AS stride")
    return stride


def _job(rows: list[tuple[Any, ...]]) -> _Job:
    """Raises NoEvidence where the operations do not fit a graph."""
    cells: dict[_Key, dict[Op, tuple[int, int]]] = defaultdict(dict)
    chunks, ranks = dict[Op, int | None](), dict[_Key, int]()
    for step, dp, stage, rank, kind, chunk, start, end, number in rows:
        op = Op(kind, number, stage)
        cells[step, dp][op] = (start, end)
        chunks.setdefault(op, chunk)
        ranks[dp, stage] = rank
    num_dp = 1 + max(dp for _, dp in cells)
    usual, _ = Counter(frozenset(cell) for cell in cells.values()).most_common(1)[0]
    every = sorted({step for step, _ in cells})
    steps = [step for step in every if all(cells.get((step, dp), {}).keys() == usual for dp in range(num_dp))]
    if not steps:
        raise NoEvidence("no step has the same operations on all data-parallel ranks")
    ops = sorted(usual)
    first = cells[steps[0], 0]
    begin_of, end_of = ({op: float(first[op][i]) for op in ops} for i in (0, 1))
    graph = build(ops, chunks, begin_of, end_of, num_dp)
    begin, end = (_arrays(cells, ops, steps, num_dp, index) for index in (0, 1))
    measured = _lengths(graph, begin, end)
    whole = np.maximum.reduce(list(end.values())).max(1) - np.minimum.reduce(list(begin.values())).min(1)
    return _Job(graph, measured, _ideal(measured), float(whole.mean()), ranks, len(steps), len(every) - len(steps))


def _arrays(
    cells: dict[_Key, dict[Op, tuple[int, int]]], ops: list[Op], steps: list[int], num_dp: int, index: int
) -> dict[Op, Times]:
    return {op: np.array([[cells[step, dp][op][index] for dp in range(num_dp)] for step in steps], np.float64)
            for op in ops}  # fmt: skip


def _lengths(graph: Graph, begin: dict[Op, Times], end: dict[Op, Times]) -> dict[Op, Times]:
    found = {op: end[op] - begin[op] for op in begin}
    for group in graph.groups:
        last = last_begin(group[0].kind, [begin[op] for op in group])
        for op in group:
            transfer = end[op] - last
            found[op] = np.where(transfer <= -_OVERLAP_NS, 0.0, transfer)
    return found


def _ideal(measured: dict[Op, Times]) -> dict[Op, Times]:
    by_kind: dict[str, list[Times]] = defaultdict(list)
    for op, lengths in measured.items():
        by_kind[op.kind].append(lengths)
    usual = {kind: float((np.median if kind in _COMMUNICATION else np.mean)(np.stack(lengths)))
             for kind, lengths in by_kind.items()}  # fmt: skip
    return {op: np.full_like(lengths, usual[op.kind]) for op, lengths in measured.items()}


def _answer(told: Evidence, job: _Job) -> WhatIf:
    whole, ideal = job.time(job.measured), job.time(job.ideal)
    stages = sorted({stage for _, stage in job.ranks})
    dps = sorted({dp for dp, _ in job.ranks})
    of_dp = {dp: job.only(job.ideal, job.measured, lambda _, d, dp=dp: d == dp) / ideal for dp in dps}  # type: ignore[misc]
    of_stage = {s: job.only(job.ideal, job.measured, lambda op, _, s=s: op.stage == s) / ideal for s in stages}  # type: ignore[misc]
    kinds = sorted({_name(op) for op in job.measured})
    of_kind = {k: job.only(job.ideal, job.measured, lambda op, _, k=k: _name(op) == k) / ideal for k in kinds}  # type: ignore[misc]
    workers = {place: min(of_dp[place[0]], of_stage[place[1]]) for place in job.ranks}
    worst = sorted(workers, key=lambda place: (-workers[place], job.ranks[place]))
    worst = worst[: math.ceil(len(worst) * WORST_PERCENT / 100)]
    lost = whole - ideal
    share_w = (
        (whole - job.only(job.measured, job.ideal, lambda op, dp: (dp, op.stage) in worst)) / lost if lost else None
    )
    by_stage = {s: (whole - job.only(job.measured, job.ideal, lambda op, _, s=s: op.stage == s)) / lost  # type: ignore[misc]
                for s in stages} if lost else {}  # fmt: skip
    share_s = by_stage.get(stages[-1])
    error = abs(job.observed_ns / whole - 1)
    n = job.num_steps

    def slowdown(value: float, **scope: Any) -> Measurement:
        return told.measurement("straggler.slowdown", value, scope, n)

    return WhatIf(
        slowdown(whole / ideal), told.measurement("straggler.replay_error", error, {}, n),
        told.measurement("straggler.share_worst_workers", share_w, {}, n, reason="" if lost else "nothing is lost"),
        told.measurement("straggler.share_last_stage", share_s, {}, n, reason="" if lost else "nothing is lost"),
        tuple(slowdown(value, dp_rank=dp) for dp, value in of_dp.items()),
        tuple(slowdown(value, stage=stage) for stage, value in of_stage.items()),
        tuple(slowdown(value, op=kind) for kind, value in _worst_first(of_kind)),
        tuple(slowdown(value, worker=job.ranks[place], dp_rank=place[0], stage=place[1])
              for place, value in _worst_first(workers)),
        _verdict(job, whole, ideal, error, share_w, by_stage, worst), n, job.num_left_out,
        "" if error <= MAX_REPLAY_ERROR else f"the replay differs from what was observed by {error:.1%}",
    )  # fmt: skip


def _name(op: Op) -> str:
    return _NAMES.get(op.kind, op.kind)


def _worst_first(values: dict[Any, float]) -> list[tuple[Any, float]]:
    return sorted(values.items(), key=lambda item: (-item[1], item[0]))


def _verdict(
    job: _Job, whole: float, ideal: float, error: float, share_w: float | None, by_stage: dict[int, float],
    worst: list[_Key],
) -> Verdict | None:  # fmt: skip
    """None where the replay cannot be trusted. The last stage goes before few workers, these before another stage."""
    if error > MAX_REPLAY_ERROR:
        return None
    last_stage = max(by_stage, default=0)
    share_s = by_stage.get(last_stage)
    slowest = max(by_stage, key=lambda stage: by_stage[stage], default=0)
    slowdown, cost = whole / ideal, (whole - ideal) * job.num_steps
    evidence: tuple[dict[str, Any], ...] = (
        {"slowdown": slowdown, "share_worst_workers": share_w, "share_last_stage": share_s, "replay_error": error},
    )
    if slowdown < SLOW or share_w is None or share_s is None:
        return Verdict("nothing", (), f"no straggler: slowdown {slowdown:.2f}", 1 - error, evidence=evidence)
    if share_s >= EXPLAINS and share_s >= share_w:
        return Verdict("stage", job.ranks_of(last_stage), "last stage", 1 - error, cost_ns=cost, evidence=evidence)
    if share_w >= EXPLAINS:
        places = ", ".join(f"dp {dp}, stage {stage}" for dp, stage in worst)
        text = f"one worker: {places}" if len(worst) == 1 else f"{len(worst)} workers: {places}"
        kind = "straggler" if len(worst) == 1 else "straggler_set"
        ranks = tuple(sorted(job.ranks[place] for place in worst))
        return Verdict(kind, ranks, text, 1 - error, cost_ns=cost, evidence=evidence)
    if by_stage[slowest] >= EXPLAINS:
        part = f"{100 * min(1.0, by_stage[slowest]):.0f} %"
        text = f"stage {slowest}, which explains {part} of a slowdown of {slowdown:.2f}"
        return Verdict("stage", job.ranks_of(slowest), text, 1 - error, cost_ns=cost, evidence=evidence)
    text = f"slowdown {slowdown:.2f}, and neither few workers nor a stage explain half of it"
    return Verdict("imbalance", (), text, 1 - error, cost_ns=cost, evidence=evidence)


def _nothing(told: Evidence, reason: str) -> WhatIf:
    def none(name: str) -> Measurement:
        return told.measurement(name, None, {}, 0, reason=reason)

    return WhatIf(none("straggler.slowdown"), none("straggler.replay_error"), none("straggler.share_worst_workers"),
                  none("straggler.share_last_stage"), reason=reason)  # fmt: skip
