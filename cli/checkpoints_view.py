"""Checkpoints on a terminal, for the report and for `rankscope checkpoints`; nothing is computed here."""

from typing import Final, Literal

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rankscope.analyzers.checkpoints import Checkpoints, Operation
from rankscope.schema.measurement import Measurement

from .words import NONE, count, duration, share, size

MAX_ROWS: Final = 8
BAR_COLUMNS: Final = 19
_BLOCKING, _BESIDE = "█", "░"


def checkpoints_section(found: Checkpoints, max_rows: int = MAX_ROWS) -> RenderableType | None:
    """The saves and loads, then what they cost; None where there was none and the run was never restarted."""
    if not found.operations and found.recovery.restart.value is None:
        return None
    parts: list[RenderableType] = []
    if found.operations:
        parts.append(_operations(found, max_rows))
    return Group(*parts, *_figures(found))


def _operations(found: Checkpoints, max_rows: int) -> RenderableType:
    table = _table("step", "", "format", "ranks", "files", "bytes", "blocking", "total", "blocking █ beside ░", "path",
                   "", right=(0, 3, 4, 5, 6, 7), whole=(8,))  # fmt: skip
    shown = found.operations[-max_rows:]
    longest = max((item.total_ns or item.blocking_ns or 0 for item in shown), default=0)
    for item in shown:
        table.add_row(*_operation(item, longest))
    more = len(found.operations) - len(shown)
    return Group(table, Text(f"and {more:,} before", style="dim")) if more > 0 else table


def _operation(item: Operation, longest_ns: int) -> tuple[Text, ...]:
    first = item.first
    mode = " async" if first.mode == "async" else ""
    style = "bold red" if item.outcome != "ok" else "yellow" if item.finding else ""
    return (
        Text(count(first.step if first.global_step is None else first.global_step)),
        Text(f"{first.action}{mode}"),
        Text(first.format or NONE),
        Text(str(len(item.parts))),
        Text(count(item.num_files)),
        Text(size(item.num_bytes)),
        Text(duration(item.blocking_ns)),
        Text(duration(item.total_ns)),
        Text(_bar(item, longest_ns), style="cyan"),
        Text(first.path or NONE),
        Text("; ".join(filter(None, (item.finding, _part(item)))), style=style),
    )


def _part(item: Operation) -> str:
    """What a load took of the checkpoint, where that is not all."""
    ratio = item.read_ratio
    return "" if ratio is None or ratio >= 1 else f"{share(ratio)} of the stored bytes asked for"


def _bar(item: Operation, longest_ns: int) -> str:
    total = item.total_ns or item.blocking_ns or 0
    if not longest_ns:
        return ""
    held = round((item.blocking_ns or 0) / longest_ns * BAR_COLUMNS)
    return _BLOCKING * held + _BESIDE * (round(total / longest_ns * BAR_COLUMNS) - held)


def _figures(found: Checkpoints) -> list[Text]:
    cost = found.recovery
    lines = (
        [_line("held up", share(_number(found.stall)), "of the training time", found.stall)] if found.operations else []
    )
    for action in ("save", "load"):
        speed = found.time("checkpoint.bandwidth", action)
        if speed is not None and speed.value is not None:
            lines.append(_line(f"{action} speed", f"{size(_number(speed))}/s", "", speed))
    if found.operations:
        lines.append(_line("interval", duration(_number(found.interval)), "between saves", found.interval))
        lines.append(_line("best interval", duration(_number(found.optimum)), _optimum(found), found.optimum))
    lines.append(_line("restart", duration(_number(cost.restart)), "to the end of the first step", cost.restart))
    lines.append(_line("lost work", duration(_number(cost.lost_work)), "of steps done again", cost.lost_work))
    lines.append(_line("effective", share(_number(cost.effective)), "of the time went to steps that count",
                       cost.effective))  # fmt: skip
    return lines


def _optimum(found: Checkpoints) -> str:
    interval = found.optimum.interval
    if interval is None:
        return ""
    low, high = duration(interval.low), duration(interval.high)
    return f"(Daly; {interval.level:.0%}: {low} to {high}; Young {duration(found.young_ns)})"


def _line(name: str, value: str, unit: str, measurement: Measurement) -> Text:
    text = measurement.reason if measurement.value is None else unit
    return Text.assemble((f"{name:<15}", "dim"), value, " ", (text, "dim"))


def _number(measurement: Measurement) -> float | None:
    return None if measurement.value is None else float(measurement.value)


def _table(*headers: str, right: tuple[int, ...], whole: tuple[int, ...]) -> Table:
    """right: columns of numbers; whole: further columns that are never folded."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim", show_edge=False)
    for index, header in enumerate(headers):
        justify: Literal["left", "right"] = "right" if index in right else "left"
        table.add_column(header, justify=justify, overflow="fold", no_wrap=index in (*right, *whole))
    return table
