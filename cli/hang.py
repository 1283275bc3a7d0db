"""`rankscope hang RUN`: who is missing, in which group everybody waits, and what the record cannot decide."""

from typing import TYPE_CHECKING, Annotated, Final

from .arguments import JsonOption, Option, RunArgument
from .opening import opened
from .printing import print_drawn

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rankscope.analyzers.hang import Hang
    from rankscope.analyzers.hang_parts import Blocked

MAX_ROWS: Final = 12
"""Groups and pairs that are listed; --json has all."""
_NS: Final = 1_000_000_000


def command(
    run: RunArgument,
    json: JsonOption = False,
    patience: Annotated[
        float,
        Option(
            "--patience",
            metavar="SECONDS",
            envvar="RANKSCOPE_PATIENCE_SECONDS",
            min=0,
            help="How long an operation of a live run may be unfinished.",
        ),
    ] = 60.0,
    fail_on_findings: Annotated[bool, Option("--fail-on-findings", help="Exit with 1 if something hangs.")] = False,
) -> int:
    """Print which ranks everybody else waits for.

    Per group: how far anyone came, who is behind. Works on imported flight-recorder dumps, and on runs that hang,
    or died hanging.

    Example: rankscope hang rankscope-runs/my-run
    """
    import time

    from rankscope.analyzers.hang import hang
    from rankscope.schema.process_rows import this_boot

    with opened(run) as asked:
        now_ns = {this_boot(): time.monotonic_ns()}
        found = hang(asked.run, asked.share, patience_ns=int(patience * _NS), now_ns=now_ns)
    if json:
        asked.print_json(found.measurements, found.verdicts)
    else:
        print_drawn(_drawn(found, patience))
        asked.print_gap()
    return int(fail_on_findings and bool(found.verdicts))


def _drawn(found: "Hang", patience: float) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    from .words import count

    parts: list[RenderableType] = [Text(f"{item.kind}: {item.text}", style="bold red") for item in found.verdicts]
    if not found.verdicts:
        parts.append(Text("nobody is missing, as far as the record goes"))
        unfinished = found.measurements[0].value
        if unfinished:
            parts.append(
                Text(f"{count(int(unfinished))} operations are unfinished, and no rank is behind", style="dim")
            )
    if found.num_young:
        young = f"{count(found.num_young)} unfinished operations are younger than {patience:g} s, or of unknown age"
        parts.append(Text(young, style="dim"))
    if found.blocked:
        parts += [Text(), _groups(found.blocked, found.undecided)]
    if found.peers:
        parts += [Text(), _pairs(found)]
    return Group(*parts)


def _groups(blocked: "tuple[Blocked, ...]", undecided: "tuple[Blocked, ...]") -> "RenderableType":
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from rankscope.analyzers.groups import ranks_in_words

    from .words import NONE, duration

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    for header in ("group", "operation", "number", "waiting", "missing", "for", ""):
        table.add_column(header, justify="right" if header in ("number", "for") else "left", overflow="fold")
    for item in blocked[:MAX_ROWS]:
        missing = ranks_in_words(item.missing) or NONE
        note = "" if item.missing else "all came, nobody finished"
        if item.is_behind and item not in undecided:
            note = "behind another group"
        if item.unrecorded:
            note = f"no record of {ranks_in_words(item.unrecorded)}"
        table.add_row(item.group.label, item.op or NONE, str(item.seq), ranks_in_words(item.waiting), missing,
                      duration(item.age_ns), Text(note, style="dim"))  # fmt: skip
    more = len(blocked) - MAX_ROWS
    return Group(table, Text(f"and {more} more groups", style="dim")) if more > 0 else table


def _pairs(found: "Hang") -> "RenderableType":
    from rich.text import Text

    every = (f"{item.rank} for {item.peer}" + (" (never sent)" if item.is_unsent else "") for item in found.peers)
    pairs = list(dict.fromkeys(every))  # the same two ranks may do so in several groups
    shown = ", ".join(pairs[:MAX_ROWS]) + (f" and {len(pairs) - MAX_ROWS} more" if len(pairs) > MAX_ROWS else "")
    return Text(f"sends and receives, who waits for whom: {shown}", style="dim")
