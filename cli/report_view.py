"""How the report looks on a terminal: headlines, then one section per question; nothing is computed here."""

from collections.abc import Iterator
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from rankscope.analyzers.brief import About, Brief, RankLine
from rankscope.analyzers.buckets import merged
from rankscope.analyzers.collectives import Collectives, OperationClass
from rankscope.analyzers.communication import Communication, Operations
from rankscope.analyzers.headline import CRITICAL, INFO, WARNING, Headline
from rankscope.analyzers.own_version import own_version
from rankscope.analyzers.phases import Phases
from rankscope.analyzers.report import Report
from rankscope.schema.measurement import Measurement

from .checkpoints_view import checkpoints_section
from .device_view import devices_section, memory_section
from .host_view import hosts_section, network_section, processes_section, storage_section
from .loading_view import loading_section
from .numerics_view import numerics_section
from .printing import drawn_lines
from .quality_view import quality
from .tables import FittingTable
from .words import NONE, bar, count, duration, histogram, share, size, sparkline

MAX_RANKS: Final = 16
"""Ranks listed one by one; those that did not end cleanly come first."""
BAD_ENDS: Final = frozenset({"killed", "failed"})
MAX_PHASES: Final = 16
"""Spans of the user count as phases too, and there may be hundreds of kinds."""
MAX_OPERATIONS: Final = 20
HISTOGRAM_COLUMNS: Final = 40
FEW: Final = 0.5
"""Share of the operations below which quantiles say on how many they stand."""
_OF_MOST: Final = "Transfers are those of the size class with most operations: rankscope collectives has them all."
_Transfers = dict[tuple[str | None, str], OperationClass]
"""By group, or kind of group where many are taken together, and operation."""
_MARKS: Final = {CRITICAL: ("✖", "bold red"), WARNING: ("▲", "yellow"), INFO: ("·", "green")}


def draw(report: Report, console: Console) -> None:
    """Print the report."""
    for line in _lines(report, console):
        print(line, file=console.file)


def _lines(report: Report, console: Console) -> Iterator[str]:
    yield from drawn_lines(_title(report), console)
    yield ""
    yield from drawn_lines(Group(*(_headline(line) for line in report.headlines)), console, indent=1)
    sections = (
        ("Steps", _steps(report.brief)),
        ("Ranks", _ranks(report)),
        ("Phases of a step", _phases(report.phases)),
        ("Communication", _communication(report.communication, _transfers(report))),
        ("Data loading", loading_section(report.loading)),
        ("Checkpoints", checkpoints_section(report.checkpoints)),
        ("Memory", memory_section(report.memory)),
        ("Devices", devices_section(report.devices)),
        ("Network", network_section(report.network)),
        ("Hosts", hosts_section(report.hosts)),
        ("CPU by rank", processes_section(report.hosts)),
        ("Storage", storage_section(report.storage)),
        ("Numerics", numerics_section(report.numerics)),
        ("Capture quality", quality(report)),
    )
    for name, body in sections:
        if body is not None:
            yield ""
            yield from drawn_lines(Text(name, style="bold"), console)
            yield from drawn_lines(body, console, indent=1)


def _title(report: Report) -> RenderableType:
    about = report.brief.about
    state = "still running" if about.is_running else "ended"
    facts = [_plural(about.world_size or about.num_processes, "rank"), *_nodes(report.brief)]
    if report.brief.num_steps.value is not None:
        facts.append(_plural(int(report.brief.num_steps.value), "step"))
    if about.span_ns:
        facts.append(duration(about.span_ns))
    if len(about.incarnations) > 1:
        facts.append(f"started {len(about.incarnations)} times")
    line = Text.assemble(("rankscope ", "dim"), (about.run_id, "bold cyan"), f"  {state} · " + " · ".join(facts))
    more = [
        *_owners(about),
        *(f"{name} {value}" for name, value in about.layout),
        report.address,
        f"rankscope {own_version()}",
    ]
    return Group(line, Text(" · ".join(more), style="dim"))


def _nodes(brief: Brief) -> list[str]:
    """Nothing where no process tells its host, as in imported traces: one made-up node is no node."""
    is_told = not brief.ranks or any(line.host for line in brief.ranks)
    return [_plural(brief.about.num_nodes, "node")] if is_told else []


def _owners(about: About) -> list[str]:
    pairs = (("job", about.job_id), ("project", about.project), ("owner", about.owner))
    return [f"{name} {value}" for name, value in pairs if value]


def _headline(headline: Headline) -> Text:
    mark, style = _MARKS[headline.level]
    sure = "" if headline.confidence is None else f" ({100 * headline.confidence:.0f} % sure)"
    closer = f" → rankscope {headline.command}" if headline.command else ""
    text = (headline.text, style if headline.level == CRITICAL else "")
    return Text.assemble((f"{mark} ", style), text, (sure + closer, "dim"))


def _steps(brief: Brief) -> RenderableType:
    if brief.duration_ns("p50") is None:
        return Text(f"{NONE}  {brief.durations[0].reason}")
    counted = sum(number for _, number in brief.histogram)
    boundaries = ", ".join(name for name, _ in brief.boundaries)
    figures = "   ".join(f"{name} {duration(brief.duration_ns(name))}" for name in ("p50", "p95", "p99", "max"))
    lines = [Text(f"{figures}   over {count(counted)} counted steps of all ranks (boundary: {boundaries})")]
    lines.append(Text("left out: step 0 as warm-up, and steps marked warm-up, checkpoint, eval or shadow", style="dim"))
    bins = merged(brief.histogram, HISTOGRAM_COLUMNS)
    lines.append(
        _labelled(
            "distribution",
            histogram([number for _, _, number in bins]),
            duration(bins[0][0]),
            duration(brief.duration_ns("max")),
        )
    )
    first, last = brief.series[0].first_step, brief.series[-1].last_step
    lines.append(
        _labelled("over time", sparkline([point.longest_ns for point in brief.series]), f"step {first}", f"step {last}")
    )
    return Group(*lines)


def _labelled(name: str, drawing: str, left: str, right: str) -> Text:
    return Text.assemble((f"{name:<13}", "dim"), f"{left} ", (drawing, "cyan"), f" {right}")


def _ranks(report: Report) -> RenderableType:
    about, waits = report.brief.about, {item.scope.get("rank"): item for item in report.communication.host_wait}
    last = about.incarnations[-1] if about.incarnations else 0
    ranks = [line for line in report.brief.ranks if line.incarnation == last]
    ranks.sort(key=lambda line: (line.exit_kind not in BAD_ENDS, line.rank is None, line.rank or 0))
    table = _table(
        "rank", "host", "pid", "steps", "p50 step", "longest", "host-visible waits", "end", right=(0, 2, 3, 4, 5, 6)
    )
    for line in ranks[:MAX_RANKS]:
        table.add_row(*_rank_cells(line, waits.get(line.rank), report))
    more = len(ranks) - MAX_RANKS
    return Group(table, Text(f"and {_plural(more, 'more rank')}", style="dim")) if more > 0 else table


def _rank_cells(line: RankLine, wait: Measurement | None, report: Report) -> tuple[RenderableType, ...]:
    end = Text(line.exit_kind, style="bold red" if line.exit_kind in BAD_ENDS else "")
    waited = NONE if wait is None or wait.value is None else f"{duration(int(wait.value) / wait.n)} a step"
    return (
        Text(NONE if line.rank is None else str(line.rank)),
        Text(line.host or NONE),
        Text(NONE if line.pid is None else str(line.pid)),
        Text(count(line.num_steps)),
        Text(duration(line.p50_ns)),
        Text(duration(line.longest_ns)),
        Text(waited),
        end,
    )


def _phases(phases: Phases) -> RenderableType | None:
    if not phases.phases:
        return None
    table = _table(
        "phase", "share of the step", "", "spans", "mean a step", "most a step", "by rank", right=(1, 3, 4, 5, 6)
    )
    for phase in phases.phases[:MAX_PHASES]:
        table.add_row(
            Text(phase.name),
            Text(share(phase.share)),
            Text(bar(phase.share, 20), style="cyan"),
            Text(count(phase.num_spans)),
            Text(duration(_a_step(phase.mean, phases))),
            Text(duration(_a_step(phase.most, phases))),
            Text(NONE if phase.slowest_rank is None else str(phase.slowest_rank)),
        )
    more = len(phases.phases) - MAX_PHASES
    return Group(table, Text(f"and {_plural(more, 'more phase')}", style="dim")) if more > 0 else table


def _a_step(measurement: Measurement, phases: Phases) -> float | None:
    return None if measurement.value is None else int(measurement.value) / max(1, phases.steps_per_rank)


def _transfers(report: Report) -> _Transfers:
    """The transfer of each kind of operation: of its size class with most operations."""
    apart = next((item.classes for item in report.findings if isinstance(item, Collectives)), ())
    found: _Transfers = {}
    for item in sorted(apart, key=lambda item: item.num_matched):
        found[item.group.group_id if item.group is not None else item.group_kind, item.op] = item
    return found


def _communication(talk: Communication, transfers: _Transfers) -> RenderableType:
    if not talk.operations:
        return Text(f"{NONE}  no collective was recorded")
    table = _table(
        "group", "operation", "count", "bytes each", "total", "duration\np50", "\np99", "host wait\np50", "\np99",
        "transfer\np50", "ends\nby", right=tuple(range(2, 10)), spare=("ends\nby", "bytes each", "total"),
    )  # fmt: skip
    for item in talk.operations[:MAX_OPERATIONS]:
        table.add_row(*(Text(cell) for cell in _operation_cells(item, _transfer_of(item, transfers))))
    table.columns[0].min_width = min(12, max(len(item.group.label) for item in talk.operations))
    table.columns[1].no_wrap = True  # a name is never broken: the group's label is, if need be
    notes = [
        *_few(talk, transfers),
        *([_OF_MOST] if any(item.least_bytes != item.most_bytes for item in talk.operations[:MAX_OPERATIONS]) else []),
        "Durations include waiting for the others: the rank that comes last shows the shortest, so they name nobody.",
        *_inside_backward(talk),
    ]
    if thinned := [item for item in talk.operations if item.estimate]:
        notes.insert(0, _estimated(thinned))
    if (more := len(talk.operations) - MAX_OPERATIONS) > 0:
        notes.insert(0, f"and {_plural(more, 'more kind')} of operation")
    return Group(table, *(Text(note, style="dim") for note in notes))


def _transfer_of(item: Operations, transfers: _Transfers) -> OperationClass | None:
    return transfers.get((item.group.group_id, item.op)) or transfers.get((item.group.kind, item.op))


def _operation_cells(item: Operations, transfer: OperationClass | None) -> tuple[str, ...]:
    return (
        item.group.label,
        item.op,
        f"{count(_number(item.count))} of\n~{count(_number(item.estimate[0]))}"
        if item.estimate
        else count(_number(item.count)),
        _size_range(item.least_bytes, item.most_bytes),
        f"≥ {size(_number(item.bytes))}" if item.estimate else size(_number(item.bytes)),
        *(duration(_statistic(item.duration, name)) for name in ("p50", "p99")),
        *(duration(_statistic(item.host_wait, name)) for name in ("p50", "p99")),
        duration(None if transfer is None else _statistic(transfer.transfer, "p50")),
        item.timing_source.removesuffix(" 100 %"),
    )


def _few(talk: Communication, transfers: _Transfers) -> list[str]:
    """Host waits and transfers that stand on fewer than half of the operations of their row."""
    found = []
    for item in talk.operations[:MAX_OPERATIONS]:
        told = [("host wait", _number_of(item.host_wait), item.count.n)]
        if (apart := _transfer_of(item, transfers)) is not None:
            told.append(("transfer", _number_of(apart.transfer), apart.num_operations))
        found += [f"{item.group.label} {item.op}: {name} of n = {count(number)} only"
                  for name, number, num in told if 0 < number < FEW * num]  # fmt: skip
    return [f"{'; '.join(found)}."] if found else []


def _number_of(parts: tuple[Measurement, ...]) -> int:
    return parts[0].n if parts and parts[0].value is not None else 0


def _estimated(thinned: list[Operations]) -> str:
    sizes = [_number(item.estimate[1]) for item in thinned]
    total = "" if None in sizes else f", estimated {size(sum(number or 0 for number in sizes))} in all"
    return f"of ~: counted by sequence number, not all have rows (capture quality); totals are of the rows{total}."


def _size_range(least: int | None, most: int | None) -> str:
    low, high = size(least), size(most)
    if least == most:
        return low
    number, _, unit = low.partition(" ")
    return f"{number if high.endswith(f' {unit}') else low} to {high}"


def _inside_backward(talk: Communication) -> list[str]:
    number = sum(item.num_inside_backward for item in talk.operations)
    return (
        [f"{_plural(number, 'operation')} were waited for inside backward, where the host cannot see the wait."]
        if number
        else []
    )


def _statistic(measurements: tuple[Measurement, ...], name: str) -> int | None:
    return next((_number(item) for item in measurements if item.scope.get("statistic") == name), None)


def _number(measurement: Measurement) -> int | None:
    return None if measurement.value is None else int(measurement.value)


def _table(*headers: str, right: tuple[int, ...], spare: tuple[str, ...] = ()) -> Table:
    table = FittingTable(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim", show_edge=False)
    table.spare = spare
    for index, header in enumerate(headers):
        is_whole = index in right or not header
        table.add_column(header, justify="right" if index in right else "left", overflow="fold", no_wrap=is_whole)
    return table


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
