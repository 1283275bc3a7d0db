"""The section "Data loading" of the report; nothing is computed here."""

from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rankscope.analyzers.loading import EpochLine, Loader, Loading
from rankscope.schema.measurement import Measurement

from .tables import FittingTable
from .words import NONE, bar, count, duration, share, sparkline

MAX_ROWS: Final = 8
BAR_COLUMNS: Final = 16


def loading_section(loading: Loading) -> RenderableType | None:
    """Stall of the ranks, one row a loader, one an epoch; None where no loader was seen."""
    if not loading.loaders and loading.stall.value is None:
        return None
    parts: list[RenderableType] = [_stall(loading)]
    if loading.loaders:
        parts.append(_loaders(loading))
    if loading.epochs:
        parts.append(_epochs(loading))
    return Group(*parts)


def _stall(loading: Loading) -> Text:
    value = _number(loading.stall)
    if value is None:
        return Text(f"{NONE}  {loading.stall.reason}")
    line = Text.assemble((f"{'waits for data':<15}", "dim"), f"{share(value)} of the time ")
    line.append(bar(value, BAR_COLUMNS), style="cyan")
    if len(loading.by_rank) > 1:
        worst, least = loading.by_rank[0], loading.by_rank[-1]
        line.append(f"  most {share(_number(worst))} (rank {worst.scope['rank']})")
        line.append(f", least {share(_number(least))} (rank {least.scope['rank']})")
    return line


def _loaders(loading: Loading) -> Table:
    table = _table("loader", "workers", "batches", "wait p50", "p99", "longest", "over 1 ms", "ready", "none ready",
                   "over time", right=(1, 2, 3, 4, 5, 6, 7, 8))  # fmt: skip
    for item in loading.loaders[:MAX_ROWS]:
        table.add_row(*_loader(item))
    return table


def _loader(item: Loader) -> tuple[Text, ...]:
    return (
        Text(item.name),
        Text(count(item.num_workers)),
        Text(count(item.num_batches)),
        *(Text(duration(wait)) for wait in item.waits),
        Text(share(_number(item.saturation))),
        Text(NONE if item.mean_depth is None else f"{item.mean_depth:.1f}"),
        Text(share(item.empty_ratio)),
        Text(sparkline(list(item.series)), style="cyan"),
    )


def _epochs(loading: Loading) -> RenderableType:
    table = _table("epoch of", "no.", "drawn", "of", "padded", "twice", "never", "", right=(1, 2, 3, 4, 5, 6))
    shown = loading.epochs[-MAX_ROWS:]
    for line in shown:
        table.add_row(*_epoch(line))
    more = len(loading.epochs) - len(shown)
    return Group(table, Text(f"and {more:,} epochs before", style="dim")) if more > 0 else table


def _epoch(line: EpochLine) -> tuple[Text, ...]:
    style = "bold red" if line.drawn.is_wrong else ""
    return (
        Text(line.loader),
        Text(str(line.epoch)),
        Text(count(line.drawn.num_samples)),
        Text(count(line.dataset_size)),
        Text(count(line.drawn.num_padded)),
        Text(count(line.drawn.duplicated), style=style),
        Text(count(line.drawn.missing), style=style),
        Text(line.drawn.reason, style=style or "dim"),
    )


def _number(measurement: Measurement) -> float | None:
    return None if measurement.value is None else float(measurement.value)


def _table(*headers: str, right: tuple[int, ...]) -> Table:
    table = FittingTable(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim", show_edge=False)
    table.spare = ("over time", "none ready", "ready")
    for index, header in enumerate(headers):
        table.add_column(header, justify="right" if index in right else "left", overflow="fold", no_wrap=index in right)
    return table
