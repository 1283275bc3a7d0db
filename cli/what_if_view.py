"""The what-if replay on a terminal: what the stragglers cost and where they are; nothing is computed here."""

from typing import TYPE_CHECKING, Final

from .words import NONE, count, duration, share

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rankscope.analyzers.what_if import WhatIf
    from rankscope.schema.measurement import Measurement

MAX_ROWS: Final = 12


def what_if_section(found: "WhatIf", is_somebody_late: bool = False) -> "RenderableType":
    """The verdict, what it costs, and the slowdown by slice, worst first. is_somebody_late: as the arrivals tell."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    if found.verdict is not None:
        style = "" if found.verdict.kind == "nothing" else "bold red"
        text = f"{found.verdict.kind}: {found.verdict.text}"
        if found.verdict.kind == "nothing" and is_somebody_late:
            text = "by the replay the job is hardly slowed down; by the order of arrival somebody is late, see below"
        parts.append(Text(text, style=style))
        if found.verdict.ranks:
            parts.append(Text(f"ranks        {', '.join(map(str, found.verdict.ranks))}"))
    if found.reason:
        parts.append(Text(f"no verdict from the replay: {found.reason}", style="yellow"))
    if found.slowdown.value is None:
        return Group(*parts)
    return Group(*parts, *(Text(line) for line in _lines(found)), Text(), _slices(found))


def _lines(found: "WhatIf") -> list[str]:
    slowdown = float(found.slowdown.value or 0)
    cost = found.verdict.cost_ns if found.verdict is not None else None
    lost = f", {duration(cost)} over {count(found.num_steps)} steps" if cost is not None else ""
    out = f", {count(found.num_left_out)} with other operations left out" if found.num_left_out else ""
    return [
        f"slowdown     {slowdown:.3f} times the time without stragglers (wasted: {share(1 - 1 / slowdown)}{lost})",
        f"worst 3 %    of the workers explain {_share(found.share_worst_workers)} of it",
        f"last stage   explains {_share(found.share_last_stage)} of it",
        f"replay       of {count(found.num_steps)} steps, error {_share(found.replay_error)}{out}",
    ]


def _slices(found: "WhatIf") -> "RenderableType":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    for header in ("only this slow", "", "slowdown"):
        table.add_column(header, justify="right" if header == "slowdown" else "left")
    for title, key, items in (
        ("data rank", "dp_rank", found.by_dp_rank), ("stage", "stage", found.by_stage),
        ("operation", "op", found.by_op),
        ("worker", "worker", found.by_worker),
    ):  # fmt: skip
        for item in sorted(items, key=lambda item: -float(item.value or 0))[:MAX_ROWS]:
            table.add_row(title, str(item.scope[key]), f"{float(item.value or 0):.3f}")
    return table


def _share(measurement: "Measurement") -> str:
    return NONE if measurement.value is None else share(float(measurement.value))
