"""Who makes the others wait, on a terminal: each finding in words, with its plot, then the ranks."""

from typing import Final

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rankscope.analyzers.groups import ranks_in_words
from rankscope.analyzers.imbalance import COMPUTATION
from rankscope.analyzers.late_ranks import ONCE, Floats, excess
from rankscope.analyzers.stragglers import NOTHING, Straggler, Stragglers

from .plots import curve
from .words import count, duration, share

MAX_RANKS: Final = 12
PLOT_COLUMNS: Final = 100
PLOT_LINES: Final = 4
_LABEL: Final = 12
_NS_PER_HOUR: Final = 3_600_000_000_000
_MEANINGS: Final = {
    "data": "data loading", "gc": "Python's garbage collector", "compile": "torch.compile", "checkpoint": "checkpoint",
    "cpu_contention": "waiting for a CPU", "page_faults": "page faults", "throttle": "its device is throttled",
    "compute": "computation takes longer there", "network": "network",
}  # fmt: skip
_EVEN: Final = "sort or pack the samples so that all ranks get as many tokens in each step"
_SILENT: Final = "find that rank's files (`rankscope verify`, its node's local directory) and look again"
_NEXT: Final = {
    "data": "compare that rank's input with another's: its shard, its mount (`rankscope report`), its loader workers",
    "gc": "call gc.freeze() after setup, or collect at the same step on all ranks (gc.disable(), then gc.collect())",
    "compile": "find what recompiles there (TORCH_LOGS=recompiles): shapes of its own, or a warm-up that is too short",
    "checkpoint": "write checkpoints asynchronously, or spread the writing over the ranks",
    "cpu_contention": "see what else runs on those CPUs, and pin the ranks (`rankscope report`, ranks short of CPU)",
    "page_faults": "see why that rank's memory is paged in: memory limit, mapped files, huge pages",
    "throttle": "check cooling and power limit of that device; move the rank to another one to confirm",
    "compute": "run the same work on another device or node: if it is late there too, it is the work; else the host",
    "network": "check that node's links and switch ports",
    "unknown": "time outside what is recorded: put `with rankscope.span(\"name\"):` around the suspects",
}  # fmt: skip


def stragglers_section(found: Stragglers, is_replayed: bool = False) -> RenderableType:
    """The findings, worst first, or why there is none; then a table of the ranks. is_replayed: `what_if` has a verdict,
    and a better answer to what it costs.
    """
    if not found.lateness.num_matched or not found.lateness.steps:
        return Text(f"no verdict: {found.reason}", style="yellow")
    parts: list[RenderableType] = []
    for item in found.stragglers:
        parts += [*_finding(found, item, is_replayed), Text("")]
    if not found.stragglers:
        parts += [*_nobody(found), Text("")]
    return Group(*parts, *_ranks(found))


def _finding(found: Stragglers, item: Straggler, is_replayed: bool) -> list[RenderableType]:
    verdict = item.verdict
    first, end = item.finding.rows
    plural = "s" if len(verdict.ranks) > 1 else ""
    often = f"{count(item.num_late)} of {count(end - first)} counted steps"
    waited = f"the others waited {item.device_ns / _NS_PER_HOUR:.2g} device hours for it"
    cost = f"{duration(verdict.cost_ns)} of training, {share(item.share)} of those steps; {waited}"
    if is_replayed:
        cost = f"at least {cost}; in all, what the replay says"
    lines = [
        ("who", f"rank{plural} {ranks_in_words(verdict.ranks)}" + (f", {item.place}" if item.place else "")),
        ("since", _since(found, item)),
        ("how late", f"{duration(item.typical_ns)} in a usual late step; late in {often}"),
        ("cause", _cause(item)),
        ("how sure", share(verdict.confidence, 0)),
        ("costs", cost),
        ("do next", _NEXT[item.cause.name]),
    ]  # fmt: skip
    drawn: list[RenderableType] = [Text(f"{verdict.kind}: {verdict.text}", style="bold red")]
    drawn += [_line(label, text) for label, text in lines]
    late = excess(found.lateness)[:, list(item.finding.columns)].max(axis=1)
    return [*drawn, *_plot(late, found.lateness.steps[0].step, found.lateness.steps[-1].step)]


def _since(found: Stragglers, item: Straggler) -> str:
    steps = found.lateness.steps
    first, end = item.finding.rows
    if item.finding.when == ONCE:
        return f"once, in step {steps[first].step}"
    if item.verdict.since_step is None:
        return f"the first counted step on ({steps[first].step})"
    until = "" if end == len(steps) else f", until step {steps[end - 1].step}"
    return f"step {item.verdict.since_step}{until}"


def _cause(item: Straggler) -> str:
    why = item.cause
    others = [(name, amount) for name, amount in why.parts if name != why.name and why.lateness_ns][:3]
    # what a rank does longer while nobody waits for it yet is more than its lateness, and explains all of it
    told = ", ".join(f"{name} {share(min(1.0, amount / why.lateness_ns), 0)}" for name, amount in others)
    if why.name == "unknown":
        return "unknown: nothing that its rows tell covers 80 % of the lateness" + (f" ({told})" if told else "")
    return f"{why.name}: {_MEANINGS[why.name]}, {share(why.share, 0)} of the lateness" + (
        f" (beside it {told})" if told else ""
    )


def _nobody(found: Stragglers) -> list[RenderableType]:
    if not found.verdicts:
        return [Text(f"no verdict: {found.reason}", style="yellow")]
    verdict = found.verdicts[0]
    style = "" if verdict.kind == NOTHING else "bold yellow"
    drawn: list[RenderableType] = [Text(f"{verdict.kind}: {verdict.text}", style=style)]
    if verdict.ranks:
        drawn += [_line("how sure", share(verdict.confidence, 0)), _line("do next", _SILENT)]
    elif verdict.kind != NOTHING:
        told = found.imbalance is not None and found.imbalance.by != COMPUTATION
        advice = _EVEN if told else f"{_EVEN}; if they do, see what else runs on the hosts"
        drawn += [_line("costs", f"{duration(verdict.cost_ns)} of training"), _line("do next", advice)]
    late = excess(found.lateness).max(axis=1)
    return [*drawn, *_plot(late, found.lateness.steps[0].step, found.lateness.steps[-1].step)]


def _line(label: str, text: str) -> Text:
    return Text(f"{label:<{_LABEL}}{text}")


def _plot(late: Floats, first: int, last: int) -> list[RenderableType]:
    """Lateness by step, in ms; the largest of each column's steps where there are more than columns."""
    columns = min(PLOT_COLUMNS, len(late))
    values = [float(part.max()) / 1e6 for part in np.array_split(late, columns)]
    lines = curve(values, PLOT_LINES)
    title = f"lateness in ms, steps {first} to {last}"
    return [Text(title, style="dim"), *(Text(line) for line in lines)]


def _ranks(found: Stragglers) -> list[RenderableType]:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    for header in ("rank", "late by own work", "inherited", "waited", "others waited for it"):
        table.add_column(header, justify="right")
    table.add_column("inherited from")
    own, inherited = (values.sum(axis=0) for values in (found.lateness.own_ns, found.lateness.inherited_ns))
    order = np.argsort(-(own + inherited), kind="stable")
    for at in order[:MAX_RANKS]:
        rank = found.lateness.ranks[at]
        amounts = (found.own[at], found.inherited[at], found.wait[at], found.blame[at])
        table.add_row(str(rank), *(duration(int(item.value or 0)) for item in amounts), _sources(found, rank))
    rest = len(order) - MAX_RANKS
    steps = found.lateness
    compared = f"{count(steps.num_matched)} of {count(steps.num_operations)} operations compared"
    note = f"sums over {count(len(steps.steps))} counted steps; {compared}"
    more = [Text(f"and {count(rest)} ranks less late", style="dim")] if rest > 0 else []
    return [table, *more, Text(note, style="dim")]


def _sources(found: Stragglers, rank: int) -> str:
    own = [item for item in found.lateness.inheritance if item.heir == rank]
    total = sum(item.amount_ns for item in own)
    return ", ".join(f"rank {item.source} ({share(item.amount_ns / total, 0)})" for item in own[:3])
