"""What crosses which link, and what nodes send against what they must, on a terminal; nothing is computed here."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from .tables import new_table
from .words import NONE, bar, count, duration, share, size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rankscope.analyzers.amplification import Amplification, NodeTraffic
    from rankscope.analyzers.placement import Crossing
    from rankscope.schema.measurement import Measurement

MAX_NODES: Final = 16
BAR_COLUMNS: Final = 18


def placement_lines(found: "Sequence[Crossing]") -> "list[RenderableType]":
    """One row for each mesh dimension and link."""
    from rich.text import Text

    table = new_table("groups", "of", "link", "operations", "bytes", "transfer", "busbw", "exposed", "",
                      left=("of", "link"))  # fmt: skip
    for item in found:
        busbw, exposed = _number(item.busbw), _number(item.exposed_share)
        transfer = None if item.transfer.value is None else int(item.transfer.value)
        table.add_row(
            count(item.num_groups), Text(item.group_kind), item.link, count(item.num_operations),
            size(_number(item.bytes)), duration(transfer), NONE if busbw is None else f"{size(busbw)}/s",
            share(exposed), Text(bar(exposed or 0.0, BAR_COLUMNS), style="cyan"),
        )  # fmt: skip
    note = "exposed: share of the exposed communication, or of the host-visible waits where no device tells it"
    return [table, Text(note, style="dim")]


def network_lines(found: "Amplification") -> "list[RenderableType]":
    """One line a node, or why there is none."""
    from rich.text import Text

    if found.nothing is not None:
        return [Text(f"{NONE}  {found.nothing.reason}")]
    lines = [Text(_node_line(node)) for node in found.nodes[:MAX_NODES]]
    rest = len(found.nodes) - MAX_NODES
    caveats = {caveat for node in found.nodes for caveat in node.sent.provenance.caveats}
    notes = [Text(caveat, style="dim") for caveat in sorted(caveats)]
    return [*lines, *([Text(f"and {rest:,} more nodes", style="dim")] if rest > 0 else []), *notes]


def _node_line(node: "NodeTraffic") -> str:
    least, ring = (_number(item) for item in node.amplification)
    if least is None or ring is None:
        return f"{node.node}  {NONE}  {node.amplification[0].reason}"
    return (
        f"{node.node}  sent {size(_number(node.sent))} over {', '.join(node.nics)}: {least:.2f} times what its "
        f"collectives must send ({size(_number(node.expected[0]))}), {ring:.2f} times a ring's "
        f"{size(_number(node.expected[1]))}"
    )


def _number(item: "Measurement") -> float | None:
    return None if item.value is None else float(item.value)
