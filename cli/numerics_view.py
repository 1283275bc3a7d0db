"""The section on numerics: the loss over the steps, and what is unsound about the numbers."""

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rankscope.analyzers.groups import ranks_in_words
from rankscope.analyzers.numerics import Finding, Numerics

from .plots import curve
from .words import NONE, count

_KINDS = {
    "nonfinite": "steps not finite", "spikes": "spikes", "collapses": "collapses", "drift": "steps of drift",
}  # fmt: skip


def numerics_section(numerics: Numerics) -> RenderableType | None:
    """None where nothing was logged that tells of numerics."""
    if not numerics.findings:
        return None
    parts: list[RenderableType] = []
    if len(numerics.curve) > 1:
        parts += _curve(numerics)
    parts.append(_table(numerics))
    return Group(*parts)


def _curve(numerics: Numerics) -> list[RenderableType]:
    points = numerics.curve
    lines = curve([point.mean for point in points])
    indent = " " * (lines[0].index("┤") + 1)
    first, last = f"step {points[0].first_step}", f"step {points[-1].last_step}"
    gap = " " * max(1, len(points) - len(first) - len(last))
    title = Text.assemble((f"{numerics.curve_name}", ""), ("  mean over the ranks", "dim"))
    return [
        title,
        *(Text(line, style="cyan") for line in lines),
        Text(indent + first + gap + last, style="dim"),
        Text(""),
    ]


def _table(numerics: Numerics) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim", show_edge=False)
    for name, side in (("metric", "left"), ("what", "left"), ("found", "right"), ("of", "right"), ("first", "left"),
                       ("ranks", "left"), ("", "left")):  # fmt: skip
        table.add_column(name, justify="right" if side == "right" else "left", overflow="fold")
    for finding in numerics.findings:
        table.add_row(*(Text(cell) for cell in _cells(finding)))
    return table


def _cells(finding: Finding) -> tuple[str, ...]:
    value = finding.count.value
    return (
        finding.metric,
        _KINDS[finding.kind],
        NONE if value is None else count(int(value)),
        count(finding.count.n),
        f"step {finding.first[1]}" if finding.first else "",
        ranks_in_words(finding.ranks) if finding.ranks else "",
        finding.detail if value else finding.count.reason,
    )
