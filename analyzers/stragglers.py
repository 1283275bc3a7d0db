"""Who makes the others wait in a live run, since when, why, and what that costs.

`lateness` says how late each rank was by its own work in each step, and what it inherited; `late_ranks` who stands out
by that; `causes` why, from the rank's own rows; `imbalance` whether uneven work explains why nobody stands out. A
verdict is one rank (straggler), the ranks of a node (straggler_set), uneven work with nobody to name (imbalance), or
nothing; no verdict where there is too little to go by, which `reason` says. (A slow stage is for `what_if` to tell.)

confidence: the lower end of the 95 % interval (Wilson) of the share of steps in which the rank was late, times the
coverage; of a single delay, how far it exceeds what is told at all. cost: by how much sooner the last rank would have
come; device time: the waits of all ranks that fall on the named ones, inherited ones included.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from rankscope.schema.measurement import Measurement, Verdict

from .causes import COMPUTE, COVERS, UNKNOWN, Cause, cause
from .evidence import Evidence
from .groups import named_ranks, ranks_in_words
from .headline import Headline, verdict_headline
from .imbalance import COMPUTATION, MIN_COST_UNTOLD, Imbalance, imbalance, lost
from .late_ranks import ANALYZER as LATE_RANKS
from .late_ranks import (
    BETWEEN,
    CHRONICALLY,
    MIN_STEPS,
    ONCE,
    SINCE,
    TURNS,
    Finding,
    excess,
    late_ranks,
    whose_turn,
    wilson,
)
from .lateness import ANALYZER as LATENESS
from .lateness import Ints, Lateness, Step, lateness
from .run import Run
from .silent_ranks import silent_ranks
from .statements import statement

ANALYZER: Final = "stragglers"
STRAGGLER, SET, IMBALANCE, NOTHING = "straggler", "straggler_set", "imbalance", "nothing"
MAX_ALONE: Final = 4
"""Ranks late together without a common place that are looked into one by one."""
_TABLES: Final = ("collective", "step", "process", "process_group")
_ALONE: Final = "one rank alone has nobody to be late to"
_NOBODY_TOGETHER: Final = (
    "ranks meet only in pairs, one after the other (sends and receives, or stages): none can be late"
)
_NOT_SURE: Final = (
    "the ranks that waited least are not the ones that come late; in steps of so many operations no others are compared"
)
_STATEMENT: Final = "rankscope.analyzers.lateness.lateness"


class _Numbers(NamedTuple):
    """The last fields of `Straggler`."""

    cause: Cause
    place: str
    typical_ns: int
    share: float
    device_ns: int
    num_late: int


@dataclass(frozen=True, slots=True)
class Straggler:
    """One finding. place: "node ..." or ""; ranks of it in `verdict.ranks`. device_ns: waits of others.

    typical_ns: median own lateness of its latest rank, beyond the median rank's, in the steps in which it was late.
    share: of the time.
    """

    verdict: Verdict
    finding: Finding
    cause: Cause
    place: str
    typical_ns: int
    share: float
    device_ns: int
    num_late: int


@dataclass(frozen=True, slots=True)
class Stragglers:
    """The answer. own, inherited, wait, blame: one measurement per rank. reason: why there is no verdict, or ""."""

    lateness: Lateness
    stragglers: tuple[Straggler, ...]
    imbalance: Imbalance | None
    own: tuple[Measurement, ...]
    inherited: tuple[Measurement, ...]
    wait: tuple[Measurement, ...]
    blame: tuple[Measurement, ...]
    cost: tuple[Measurement, ...]
    verdicts: tuple[Verdict, ...]
    reason: str = ""

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them."""
        return (*self.cost, *self.own, *self.inherited, *self.wait, *self.blame)

    @property
    def headlines(self) -> tuple[Headline, ...]:
        """A sentence for each verdict."""
        return tuple(verdict_headline(verdict, "stragglers") for verdict in self.verdicts if verdict.kind != NOTHING)


def stragglers(run: Run, coverage: float | None = None) -> Stragglers:
    """The stragglers of `run`. coverage: rows present / expected."""
    return run.anew(lambda: _stragglers(run, coverage))


def _stragglers(run: Run, coverage: float | None) -> Stragglers:
    late = lateness(run)
    told, cost = (_evidence(run, late, coverage, name) for name in (LATENESS, LATE_RANKS))
    reason = _too_little(run, late)
    named = () if reason else tuple(_named(run, late, coverage))
    if late.compared.suspects is not None and not (named and _are_suspects(late, named)):
        reason, named = reason or _NOT_SURE, ()
    verdicts = tuple(item.verdict for item in named)
    if not verdicts and not reason:
        verdicts = tuple(silent_ranks(late, STRAGGLER, UNKNOWN, coverage))
    uneven = None if reason or verdicts else imbalance(run, late) or _by_computation(run, late)
    if not verdicts and not reason:
        verdicts = (_uneven(late, uneven, coverage) if uneven else _nothing(late, coverage),)
    return Stragglers(
        late, named, uneven, _by_rank(told, late, "straggler.lateness_own", late.own_ns),
        _by_rank(told, late, "straggler.lateness_inherited", late.inherited_ns),
        _by_rank(told, late, "straggler.wait", late.wait_ns), _by_rank(told, late, "straggler.blame", late.blame_ns),
        tuple(_cost(cost, late, item) for item in named), verdicts, reason,
    )  # fmt: skip


def _too_little(run: Run, late: Lateness) -> str:
    if not late.num_operations:
        return _why_no_operation(run)
    if not late.num_matched:
        return "of no operation did all members leave a begin on a common clock"
    if late.num_ranks < 2:
        return _ALONE if late.num_ranks else _NOBODY_TOGETHER
    if len(late.steps) < MIN_STEPS:
        return f"{len(late.steps)} counted steps, of {MIN_STEPS} that it takes to call a rank late"
    return ""


def _are_suspects(late: Lateness, named: tuple[Straggler, ...]) -> bool:
    return {rank for item in named for rank in item.verdict.ranks} <= set(late.compared.suspects or ())


def _why_no_operation(run: Run) -> str:
    [[num_ranks, num_steps]] = run.rows(statement(ANALYZER, "extent"))
    if num_ranks == 1:
        return _ALONE
    if not num_steps:
        return "no counted step: the run has fewer than two steps, or all are left out"
    return "no counted step has an operation of a known group whose begin is known"


def _evidence(run: Run, late: Lateness, coverage: float | None, analyzer: str) -> Evidence:
    matched = late.num_matched / late.num_operations if late.num_operations else None
    known = [share for share in (coverage, matched) if share is not None]
    compared = f"{late.num_matched:,} of {late.num_operations:,} operations compared"
    return Evidence(  # the values come from several temporary tables, so the function is the statement
        run, analyzer, _STATEMENT, _TABLES, min(known, default=None), window="counted steps",
        left_out="the first step, warm-up, checkpoint and eval steps; operations of which a member left no begin",
        caveats=(compared, *filter(None, [late.compared.window])),
        clock_error_ns=late.error_ns,
    )  # fmt: skip


def _by_rank(told: Evidence, late: Lateness, name: str, values: Ints) -> tuple[Measurement, ...]:
    steps = late.is_known.sum(axis=0)
    return tuple(
        told.measurement(name, int(total), {"rank": rank}, int(num))
        for rank, total, num in zip(late.ranks, values.sum(axis=0), steps, strict=True)
    )


def _cost(told: Evidence, late: Lateness, item: Straggler) -> Measurement:
    first, end = item.finding.rows
    scope: dict[str, Any] = {"ranks": ranks_in_words(item.verdict.ranks), "first_step": late.steps[first].step,
                             "last_step": late.steps[end - 1].step}  # fmt: skip
    return told.measurement("straggler.cost", item.finding.cost_ns, scope, end - first)


def _named(run: Run, late: Lateness, coverage: float | None) -> Iterator[Straggler]:
    places: dict[int, str] = dict(run.rows(statement(ANALYZER, "places")))
    for finding in late_ranks(late):
        ranks = tuple(late.ranks[column] for column in finding.columns)
        place = _place(ranks, late.ranks, places)
        if place or len(ranks) == 1 or len(ranks) > MAX_ALONE:
            yield _straggler(run, late, finding, coverage, place)
        else:
            for at in range(len(ranks)):
                yield _straggler(run, late, _alone(late, finding, at), coverage, "")


def _place(ranks: tuple[int, ...], every: tuple[int, ...], places: dict[int, str]) -> str:
    """The node of which `ranks` are all the ranks, if there is one and it is not the only one."""
    if len(ranks) < 2:
        return ""
    nodes = {places.get(rank) for rank in ranks}
    others = {places.get(rank) for rank in every if rank not in ranks}
    return f"node {nodes.pop()}" if len(nodes) == 1 and None not in nodes and not nodes & others else ""


def _alone(late: Lateness, finding: Finding, at: int) -> Finding:
    """One of several ranks that have nothing in common. cost: what it takes longer than the ranks that are on time."""
    first, end = finding.rows
    column = finding.columns[at]
    beyond = excess(late)[first:end]
    rest = np.delete(beyond, finding.columns, axis=1).max(axis=1, initial=0.0)
    cost = int(np.maximum(0.0, beyond[:, column] - rest).sum())
    chosen = finding.late[:, at : at + 1]
    return Finding((column,), finding.rows, finding.when, chosen, float(chosen.mean()), cost, finding.margin_ns,
                   finding.ratio)  # fmt: skip


def _straggler(run: Run, late: Lateness, finding: Finding, coverage: float | None, place: str) -> Straggler:
    first, end = finding.rows
    ranks = tuple(late.ranks[column] for column in finding.columns)
    worst = max(range(len(ranks)), key=lambda at: (int(late.own_ns[first:end, finding.columns[at]].sum()), -at))
    why = _cause(run, late, finding, worst)
    share = finding.cost_ns / max(1, int(late.duration_ns[first:end].sum()))
    is_late = finding.late[:, worst]
    typical = int(np.median(excess(late)[first:end, finding.columns[worst]][is_late]))
    device = int(late.blame_ns[first:end, list(finding.columns)].sum())
    numbers = _Numbers(why, place, typical, share, device, int(is_late.sum()))
    kind = STRAGGLER if len(ranks) == 1 else SET
    since = None if finding.when == CHRONICALLY else late.steps[first].step
    verdict = Verdict(
        kind, ranks, _in_words(late, finding, numbers, ranks), _confidence(late, finding, coverage), why.name, since,
        float(finding.cost_ns), (*_matched(late, finding, ranks), *why.evidence),
    )  # fmt: skip
    return Straggler(verdict, finding, *numbers)


def _cause(run: Run, late: Lateness, finding: Finding, at: int) -> Cause:
    first, end = finding.rows
    column = finding.columns[at]
    steps = [late.steps[first + int(row)] for row in np.flatnonzero(finding.late[:, at])]
    others = [rank for other, rank in enumerate(late.ranks) if other not in finding.columns]
    rate = float(late.own_ns[first:end, column].sum()) / max(1, int(late.duration_ns[first:end].sum()))
    return cause(run, late.ranks[column], steps, others, rate, _own(late, column))


def _own(late: Lateness, column: int) -> dict[Step, int]:
    """A rank's own lateness, by step."""
    return dict(zip(late.steps, late.own_ns[:, column].tolist(), strict=True))


def _in_words(late: Lateness, finding: Finding, found: _Numbers, ranks: tuple[int, ...]) -> str:
    who = named_ranks(ranks)
    if found.place:
        who = f"{found.place} ({who})"
    first, end = finding.rows
    begin, last = late.steps[first].step, late.steps[end - 1].step
    often = f"in {found.num_late} of {end - first} counted steps"
    when = {
        CHRONICALLY: f"{often}", SINCE: f"since step {begin}, {often} from there",
        BETWEEN: f"from step {begin} to {last}, {often} there", ONCE: f"once, in step {begin}",
    }[finding.when]  # fmt: skip
    verb = "makes" if len(ranks) == 1 or found.place else "make"
    why = f"cause: {found.cause.name}"
    if found.cause.name != UNKNOWN:
        why += f" ({100 * found.cause.share:.0f} % of it)"
    cost = _duration(finding.cost_ns) if finding.when == ONCE else f"{100 * found.share:.0f} % of the time"
    return f"{who} {verb} the others wait {when}, by {_duration(found.typical_ns)}; {why}; costs {cost}"


def _duration(ns: int) -> str:
    return f"{ns / 1e9:.3g} s" if ns >= 1_000_000_000 else f"{ns / 1e6:.3g} ms"


def _matched(late: Lateness, finding: Finding, ranks: tuple[int, ...]) -> tuple[dict[str, Any], ...]:
    first, end = finding.rows
    steps = f"step BETWEEN {late.steps[first].step} AND {late.steps[end - 1].step}"
    return ({"table": "collective", "predicate": f"rank IN ({', '.join(map(str, ranks))}) AND {steps}"},)


def _confidence(late: Lateness, finding: Finding, coverage: float | None) -> float:
    if finding.when == ONCE:
        sure = 1 - finding.margin_ns / (2 * max(1, finding.cost_ns))
    else:
        sure = wilson(finding.share, finding.rows[1] - finding.rows[0])
    matched = late.num_matched / late.num_operations
    return round(sure * min(matched, 1.0 if coverage is None else coverage), 3)


def _by_computation(run: Run, late: Lateness) -> Imbalance | None:
    """Uneven work of which the job tells nothing, by the computation of each step's latest rank."""
    cost, share = lost(late)
    if share < MIN_COST_UNTOLD or whose_turn(late) != TURNS:
        return None
    beyond = excess(late)
    latest = np.argmax(beyond, axis=1)
    explained = total = 0
    for column in np.unique(latest):
        rows: Sequence[int] = [int(row) for row in np.flatnonzero(latest == column) if beyond[row, column] > 0]
        steps: list[Step] = [late.steps[row] for row in rows]
        others = [rank for other, rank in enumerate(late.ranks) if other != column]
        why = cause(run, late.ranks[int(column)], steps, others, 0.0, _own(late, int(column)))
        explained += min(why.lateness_ns, dict(why.parts).get(COMPUTE, 0))
        total += why.lateness_ns
    return Imbalance(COMPUTATION, explained / total, cost, share) if total and explained / total >= COVERS else None


def _uneven(late: Lateness, uneven: Imbalance, coverage: float | None) -> Verdict:
    what = f"the ranks' {uneven.by} differ from step to step and who has more comes late"
    how = f"correlation {uneven.strength:.2f}"
    if uneven.by == COMPUTATION:
        what = "computation takes longer on one rank, then on another"
        how = f"that explains {100 * uneven.strength:.0f} % of the lateness"
    cost = f"the latest of each step costs {100 * uneven.share:.0f} % of the time"
    text = f"{what} ({how}): nobody to name; {cost}"
    evidence = ({"table": "step", "predicate": "left_out IS NULL"}, {"table": "collective", "predicate": "true"})
    sure = round(min(1.0, uneven.strength) * (1.0 if coverage is None else coverage), 3)
    return Verdict(IMBALANCE, (), text, sure, cost_ns=float(uneven.cost_ns), evidence=evidence)


def _nothing(late: Lateness, coverage: float | None) -> Verdict:
    cost, share = lost(late)
    text = (f"no rank stands out in {len(late.steps)} counted steps: whoever comes last in a step costs "
            f"{100 * share:.1f} % of the time, {whose_turn(late)}")  # fmt: skip
    sure = round(wilson(1.0, len(late.steps)) * (1.0 if coverage is None else coverage), 3)
    return Verdict(
        NOTHING, (), text, sure, cost_ns=float(cost), evidence=({"table": "collective", "predicate": "true"},)
    )
