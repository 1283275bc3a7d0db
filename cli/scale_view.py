"""A scaling series on a terminal; nothing is computed here."""

from collections.abc import Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rankscope.analyzers.forecast import LEVEL, Forecast, Refusal
from rankscope.analyzers.scaling import CONTROLLED, Scaling, Size

from .words import NONE, bar, duration, share

BAR_COLUMNS: Final = 30
_GRADES: Final = {CONTROLLED: "green", "mostly controlled": "yellow"}


def scale_view(found: Sequence[Scaling]) -> RenderableType:
    """All series, one below the other."""
    return Group(*(part for item in found for part in _series(item)))


def _series(item: Scaling) -> list[RenderableType]:
    title = Text(f"{item.name}: {item.mode} scaling, {item.metric.replace('_', ' ')}", style="bold")
    lines = [
        Text.assemble(
            "comparison  ", (item.grade, _GRADES.get(item.grade, "red")), f": {'; '.join(item.grade_reasons)}"
        )
    ]
    if item.quality is not None:
        lines.append(Text(f"quality     {item.quality.text}"))
    lines += [Text(f"lost        {loss.text}") for loss in item.losses]
    return [title, _sizes(item), *lines, *_forecast(item), Text()]


def _sizes(item: Scaling) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    unit = "MFU x ranks" if item.metric == "mfu" else "per second"
    for header in ("ranks", "runs", unit, "step", "efficiency", "90 % interval", "0 .. 100 %"):
        table.add_column(header, justify="left" if header.startswith("0") else "right")
    for size in item.sizes:
        table.add_row(str(size.num_ranks), str(size.num_runs), f"{size.throughput:,.4g}", duration(size.step_ns),
                      *_efficiency(size))  # fmt: skip
    return table


def _efficiency(size: Size) -> tuple[str, str, Text]:
    value, interval = size.efficiency.value, size.efficiency.interval
    if value is None:
        return NONE, "", Text()
    bounds = "" if interval is None else f"{100 * interval.low:.1f} .. {100 * interval.high:.1f}"
    return share(float(value)), bounds, Text(bar(float(value), BAR_COLUMNS), style="cyan")


def _forecast(item: Scaling) -> list[RenderableType]:
    lines: list[RenderableType] = []
    if isinstance(item.forecast, Refusal):
        lines.append(Text(f"forecast    refused: {item.forecast.reason}", style="yellow"))
    elif isinstance(item.forecast, Forecast):
        told = item.forecast
        lines.append(Text(f"forecast    {told.value:,.4g} per second on {told.at} ranks "
                          f"({LEVEL:.0%} bracket {told.low:,.4g} .. {told.high:,.4g})", style="bold"))  # fmt: skip
        lines.append(
            Text(f"            simpler ones: last efficiency carried {told.carried:,.4g}, linear {told.linear:,.4g}")
        )
        lines += [Text(f"            {note}") for note in told.notes]
    if item.held_out is not None:
        largest, truth = item.curve[-1]
        errors = (item.held_out.error(truth), item.held_out.carried / truth - 1, item.held_out.linear / truth - 1)
        words = ", ".join(
            f"{name} {error:+.1%}" for name, error in zip(("this", "carried", "linear"), errors, strict=True)
        )
        lines.append(Text(f"tested on   {largest} ranks, predicted from the smaller sizes: {words}"))
    return lines
