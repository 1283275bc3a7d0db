"""`rankscope pipeline RUN`: how much of a pipeline's time is bubble, against what its schedule must cost."""

from typing import TYPE_CHECKING, Final

from rankscope.schema.errors import NoEvidence

from .arguments import JsonOption, RunArgument
from .opening import opened
from .printing import print_drawn

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rankscope.analyzers.pipeline import Pipeline

MAX_ROWS: Final = 64
"""Ranks that are listed; --json has all, with every step."""
_BAR: Final = 30


def command(run: RunArgument, json: JsonOption = False) -> int:
    """Print each rank's bubble, the schedule's ideal, and what the rest is due to.

    Needs spans of micro-batches that tell their stage: an imported pipeline log, or a run that recorded them.

    Example: rankscope pipeline rankscope-runs/my-run
    """
    from rankscope.analyzers.pipeline import pipeline

    with opened(run) as asked:
        found = pipeline(asked.run, asked.share)
    if found is None:
        raise NoEvidence(f"{run}: no pipeline in it: no spans that tell more than one stage")
    if json:
        asked.print_json(found.measurements)
    else:
        print_drawn(_drawn(found))
        asked.print_gap()
    return 0


def _drawn(found: "Pipeline") -> "RenderableType":
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from .words import bar, share

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    for header in ("rank", "stage", "idle", "bubble"):
        table.add_column(header, justify="right")
    table.add_column("")
    for item in found.ranks[:MAX_ROWS]:
        bubble = _number(item.bubble.value)
        table.add_row(str(item.rank), str(item.stage), share(_number(item.idle.value)), share(bubble),
                      Text(bar(bubble or 0.0, _BAR), style="cyan"))  # fmt: skip
    more = len(found.ranks) - MAX_ROWS
    rest = [Text(f"and {more:,} more ranks", style="dim")] if more > 0 else []
    return Group(table, *rest, Text(), *(Text(line) for line in _lines(found)))


def _lines(found: "Pipeline") -> list[str]:
    from .words import share

    ideal, bubble = _number(found.ideal.value), _number(found.mean_bubble.value)
    told = "; ".join(found.ideal.provenance.caveats) if ideal is not None else found.ideal.reason
    lines = [
        f"bubble       {share(bubble)} of the time, {found.num_steps:,} steps",
        f"ideal        {share(ideal)} ({told})",
    ]
    slowest = _number(found.imbalance.value)
    if slowest is not None:
        due = "" if found.due_to_imbalance is None else f", which costs {share(found.due_to_imbalance)}"
        lines.append(f"imbalance    the slowest stage computes {slowest:.2f} times the mean{due}")
    if found.excused is not None:
        lines.append(f"other idle   {share(found.excused)}: data, checkpoints, data-parallel communication")
    if ideal is not None and bubble is not None and found.due_to_imbalance is not None:
        rest = bubble - ideal - found.due_to_imbalance
        lines.append(f"unexplained  {share(rest)}" if rest > 0 else "unexplained  nothing")
    warmup = "" if found.warmup_ratio is None else f", {found.warmup_ratio:.1f} times as long as the others"
    lines.append(f"left out     the first step (warm-up{warmup})"
                 + (f", and {found.num_left_out - 1} more" if found.num_left_out > 1 else ""))  # fmt: skip
    return lines


def _number(value: float | int | str | None) -> float | None:
    return None if value is None else float(value)
