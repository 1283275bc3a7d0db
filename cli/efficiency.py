"""`rankscope efficiency RUN`: what the run made of its devices."""

from typing import TYPE_CHECKING, Annotated, Final

from rankscope.schema.errors import NoEvidence

from .arguments import BadUsage, JsonOption, Option, RunArgument
from .opening import opened
from .printing import print_drawn

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rankscope.analyzers.efficiency import Efficiency
    from rankscope.schema.measurement import Measurement

MAX_RANKS: Final = 16
"""Ranks listed; JSON has what concerns all."""


def command(
    run: RunArgument,
    target: Annotated[
        list[str] | None,
        Option("--target", metavar="METRIC<=VALUE", help="Also the time until a logged metric got there; repeatable."),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Print throughput, goodput, MFU, memory, network, energy and cost, and what each of them lacks.

    Samples and tokens are counted per data coordinate. MFU needs the model's FLOPs (`rankscope flops`) and the peak of
    the device; cost needs a price: attach(flops_per_token=..., peak_flops=..., price_per_device_hour=...).

    Example: rankscope efficiency rankscope-runs/my-run --target "loss<=2.5"
    """
    from rankscope.analyzers.efficiency import Target, efficiency
    from rankscope.analyzers.listing import unusable

    try:
        targets = tuple(Target.parse(text) for text in target or ())
    except ValueError as error:
        raise BadUsage(f"Invalid value for '--target': {error}") from None
    with opened(run) as asked:
        found, lost = efficiency(asked.run, asked.share, targets), unusable(len(asked.run.faults))
    if not len(found.throughput.steps.duration_ns):
        raise NoEvidence(f"{run}: no counted step: the run has fewer than two steps, or all are left out{lost}")
    if json:
        asked.print_json(found.measurements)
    else:
        print_drawn(_drawn(found))
        asked.print_gap()
    return 0


def _drawn(found: "Efficiency") -> "RenderableType":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    names = {"efficiency.mfu": found.utilisation_name}
    for item in found.measurements:
        table.add_row(names.get(item.name, _name(item)), *_value(item))
    return Group(table, Text(), *_ranks(found))


def _name(item: "Measurement") -> str:
    scope = [f"rank {value}" if key == "rank" else str(value) for key, value in item.scope.items() if key != "metric"]
    return " ".join([item.name.replace("_", " ").replace(".", " "), *scope])


def _value(item: "Measurement") -> tuple[str, str]:
    from .words import NONE

    if item.value is None:
        return NONE, item.reason
    interval = item.interval
    bounds = (
        f"{interval.level:.0%} {_number(interval.low, item.unit)} .. {_number(interval.high, item.unit)}; "
        if interval
        else ""
    )
    return _number(float(item.value), item.unit), bounds + "; ".join(item.provenance.caveats)


def _number(value: float, unit: str) -> str:
    from .words import duration, size

    if unit == "ns":
        return duration(value)
    if unit == "bytes":
        return size(value)
    return f"{value:,.4g} {unit}".replace(" 1/s", " /s").removesuffix(" 1").strip()


def _ranks(found: "Efficiency") -> "list[RenderableType]":
    """Per rank, where they differ by more than a hundredth."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from .words import NONE, duration

    times = [item.mean_step_ns for item in found.ranks]
    rates = [item.samples_per_second for item in found.ranks if item.samples_per_second is not None]
    if not times or (max(times) <= 1.01 * min(times) and (not rates or max(rates) <= 1.01 * min(rates))):
        return []
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    for header in ("rank", "node", "steps", "mean step", "own samples/s"):
        table.add_column(header, justify="left" if header == "node" else "right")
    slowest = sorted(found.ranks, key=lambda item: -item.mean_step_ns)[:MAX_RANKS]
    for item in slowest:
        rate = NONE if item.samples_per_second is None else f"{item.samples_per_second:,.4g}"
        table.add_row(str(item.rank), item.node, str(item.num_steps), duration(item.mean_step_ns), rate)
    more = len(found.ranks) - len(slowest)
    return [Text("ranks differ, slowest first"), table, *([Text(f"and {more:,} more", style="dim")] if more else [])]
