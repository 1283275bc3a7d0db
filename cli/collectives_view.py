"""Collectives taken apart, on a terminal: where their time goes, who was waited for, what is not matched."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from .placement_view import network_lines, placement_lines
from .tables import new_table
from .words import NONE, bar, count, duration, share, size

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from rankscope.analyzers.collectives import Collectives, OperationClass
    from rankscope.analyzers.listed import Operation
    from rankscope.schema.measurement import Measurement

MAX_CLASSES: Final = 24
MAX_RANKS: Final = 16
MAX_REASONS: Final = 8
BAR_COLUMNS: Final = 18
GROUP_COLUMNS: Final = 28
_WAIT, _TRANSFER = "░", "█"


def collectives_section(found: "Collectives", operations: "Sequence[Operation]" = ()) -> "RenderableType":
    """One section a question; sections without an answer are left out, but never without a word why."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(line.text, style="bold") for line in found.headlines]
    parts += [Text(line, style="yellow") for line in _sampled(found)]
    parts += [Text()] if parts else []
    parts += _where(found) if found.classes else [Text(f"{NONE}  no collective was recorded")]
    if found.caused:
        parts += [Text(), Text("Who was waited for", style="bold"), *_caused(found)]
    if found.placement:
        parts += [Text(), Text("Placement", style="bold"), *placement_lines(found.placement)]
    parts += [Text(), Text("Over the network", style="bold"), *network_lines(found.network)]
    if operations:
        parts += [Text(), Text("Single operations", style="bold")]
        for operation in operations:
            parts += [Text(line) for line in _operation_lines(operation)]
    if found.unmatched:
        parts += [Text(), Text("Not matched", style="bold"), *_unmatched(found)]
    return Group(*parts)


def _sampled(found: "Collectives") -> list[str]:
    """Which operations the numbers are of, where it is not all of them."""
    first = next((item for one in found.classes for item in one.measurements), None)
    if first is None or not first.provenance.window:
        return []
    return [f"of so many operations a sample was matched: {first.provenance.window}"]


def _where(found: "Collectives") -> "list[RenderableType]":
    from rich.text import Text

    table = new_table(
        "group", "operation", "size", "times", "wait p50", "p99", "transfer p50", "p99", "end skew", "busbw", "",
        left=("group", "operation"), spare=("end skew", "times", "p99", "size"),
    )  # fmt: skip
    table.columns[0].max_width, table.columns[0].min_width, table.columns[1].no_wrap = GROUP_COLUMNS, 5, True
    most = max((_rank_time(item) for item in found.classes), default=0)
    for item in found.classes[:MAX_CLASSES]:
        group = item.group.label if item.group is not None else f"{item.num_groups} x {item.group_kind}"
        speed = _value(item.busbw, "p50")
        table.add_row(
            Text(group, no_wrap=True, overflow="ellipsis"), item.op, _size_class(item.size_class), _times(item),
            _time(item.wait, "p50"), _time(item.wait, "p99"), _time(item.transfer, "p50"), _time(item.transfer, "p99"),
            _time(item.end_skew, "p50"), NONE if speed is None else f"{size(speed)}/s", _share_bar(item, most),
        )  # fmt: skip
    rest = len(found.classes) - MAX_CLASSES
    note = f"time of all ranks: {_WAIT} waiting for the last one {_TRANSFER} transfer; busbw as nccl-tests counts, p50"
    parts: list[RenderableType] = [table, Text(note, style="dim")]
    return parts + ([Text(f"and {rest:,} more kinds of operations, see --json", style="dim")] if rest > 0 else [])


def _rank_time(item: "OperationClass") -> int:
    return item.wait_ns + item.transfer_ns * (item.size or 1)


def _share_bar(item: "OperationClass", most: int) -> "Text":
    """Waiting and transfer of one class, over all ranks, in proportion to the class with most."""
    from rich.text import Text

    if not most:
        return Text()
    total = round(_rank_time(item) / most * BAR_COLUMNS)
    waiting = round(item.wait_ns / most * BAR_COLUMNS)
    return Text.assemble((_WAIT * waiting, "yellow"), (_TRANSFER * (total - waiting), "cyan"))


def _times(item: "OperationClass") -> str:
    """5 of 8: so many of them are matched."""
    if item.num_matched == item.num_operations:
        return count(item.num_operations)
    return f"{count(item.num_matched)} of {count(item.num_operations)}"


def _size_class(size_class: int | None) -> str:
    """Of sizes up to a power of four: binary units, as the classes are."""
    if not size_class:
        return NONE if size_class is None else "nothing"
    for factor, unit in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_class >= factor:
            return f"≤ {size_class // factor} {unit}"
    return f"≤ {size_class} B"


def _caused(found: "Collectives") -> "list[RenderableType]":
    from rich.text import Text

    total = sum(int(item.value or 0) for item in found.caused)
    ranked = sorted(found.caused, key=lambda item: (-int(item.value or 0), item.scope["rank"]))
    table = new_table("rank", "others waited", "share", "was last", "", left=())
    for item in ranked[:MAX_RANKS]:
        part = int(item.value or 0) / total if total else 0.0
        times = f"{count(item.n)} time{'' if item.n == 1 else 's'}"
        table.add_row(str(item.scope["rank"]), duration(int(item.value or 0)), share(part), times,
                      Text(bar(part, BAR_COLUMNS), style="cyan"))  # fmt: skip
    note = ("sums over all other ranks; only where the ends coincide closely enough to say who was last; what such a "
            "rank itself waited for elsewhere is told apart by rankscope stragglers")  # fmt: skip
    rest = len(ranked) - MAX_RANKS
    more = [Text(f"and {rest:,} more ranks", style="dim")] if rest > 0 else []
    return [table, *more, Text(note, style="dim")]


def _unmatched(found: "Collectives") -> "list[RenderableType]":
    from rich.text import Text

    table = new_table("group", "operation", "times", "why", left=("group", "operation", "why"))
    for item in found.unmatched[:MAX_REASONS]:
        table.add_row(Text(item.group_kind), item.op, count(item.num_operations), item.reason)
    rest = sum(item.num_operations for item in found.unmatched[MAX_REASONS:])
    return [table, *([Text(f"and {rest:,} more", style="dim")] if rest else [])]


def _operation_lines(found: "Operation") -> list[str]:
    """A line that says what it was, and one a rank: waiting, then transfer, on one scale of time."""
    what = f"{found.op} {found.seq} in {found.group.label}"
    where = "" if found.step is None else f", step {found.step}"
    last = "nobody can be named" if found.last_rank is None else f"rank {found.last_rank} last"
    moved = "" if found.size_bytes is None else f"{size(found.size_bytes)}, "
    speed = "" if found.busbw is None else f", busbw {size(found.busbw)}/s"
    skew = "" if found.end_skew_ns is None else f", end skew {duration(found.end_skew_ns)}"
    lines = ["", f"{what}{where}: {moved}{last}, transfer {duration(found.transfer_ns)}{skew}{speed}"]
    ordered = sorted(found.members, key=lambda item: (-item.arrival_ns, item.rank))
    begin, end = found.first_arrival_ns, max(found.last_arrival_ns + max(found.transfer_ns, 0), found.first_arrival_ns)
    columns = 3 * BAR_COLUMNS
    for member in ordered[:MAX_RANKS]:
        at, last_at = (round((moment - begin) / max(1, end - begin) * columns)
                       for moment in (member.arrival_ns, max(found.last_arrival_ns, member.arrival_ns)))  # fmt: skip
        at, last_at = min(at, columns - 1), min(last_at, columns - 1)
        drawn = " " * at + _WAIT * (last_at - at) + _TRANSFER * (columns - last_at)
        lines.append(f"  rank {member.rank:>5}  waited {duration(member.wait_ns):>8}  {drawn}")
    rest = len(ordered) - MAX_RANKS
    return [*lines, *([f"  and {rest:,} more ranks that came earlier"] if rest > 0 else [])]


def _value(found: "Sequence[Measurement]", statistic: str) -> int | None:
    value = next((item.value for item in found if item.scope["statistic"] == statistic), None)
    return None if value is None else int(value)


def _time(found: "Sequence[Measurement]", statistic: str) -> str:
    return duration(_value(found, statistic))
