"""Hosts' clocks on a terminal: a line a host, its offset over time, and what the times of several are good for."""

from typing import TYPE_CHECKING, Final

from .tables import new_table
from .words import NONE, count, duration, sparkline

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rankscope.analyzers.clock_ties import HostClock
    from rankscope.analyzers.clocks import ClockAnswer, Clocks

MAX_HOSTS: Final = 64
"""That are listed, those with the largest error first; --json has all."""
_NOTE: Final = (
    "offset: ahead of the clock of rank 0's host, in the middle of the run; error: 95 % of the single differences lie "
    "within it; hard bound: what causality leaves around the offset, whoever was late"
)
_COLUMNS: Final = 20
IMPORTED: Final = "imported"
"""The host of importers of traces that tell none."""
_MAX_RANKS: Final = 24
"""Characters for the ranks of a host."""


def clocks_section(found: "Clocks") -> "RenderableType":
    """One line a host."""
    from rich.console import Group
    from rich.text import Text

    if len(found.hosts) == 1:
        host = found.hosts[0].clock.host
        if host.name == IMPORTED:
            return Text("No host is told by what was imported: all ranks are taken to share one clock.")
        return Text(f"All ranks ran on {host.name}: they share one clock, and nothing has to be aligned.")
    table = new_table("host", "ranks", "offset", "drift", "error", "hard bound", "made of", "offset over time",
                      left=("host", "ranks", "made of"))  # fmt: skip
    for item in _listed(found):
        table.add_row(*_line(item))
    parts: list[RenderableType] = [Text(line.text, style="bold") for line in found.headlines]
    rest = len(found.hosts) - MAX_HOSTS
    notes = [_NOTE]
    notes += [f"{item.clock.host.name}: {item.clock.reason}" for item in found.hosts[:MAX_HOSTS] if item.clock.reason]
    notes += [f"and {rest:,} more hosts, see --json"] if rest > 0 else []
    return Group(*parts, Text(), table, *(Text(note, style="dim") for note in notes))


def _listed(found: "Clocks") -> "list[ClockAnswer]":
    """The reference, then all in order; of very many those that are known worst."""
    if len(found.hosts) <= MAX_HOSTS:
        return list(found.hosts)
    by_error = sorted(found.hosts[1:], key=lambda item: -(_known(item.error.value) or float("inf")))
    return [found.hosts[0], *by_error[: MAX_HOSTS - 1]]


def _line(item: "ClockAnswer") -> tuple[str, ...]:
    from rankscope.analyzers.clock_ties import BY_OPERATIONS, REFERENCE
    from rankscope.analyzers.groups import ranks_in_words

    clock = item.clock
    ranks = ranks_in_words(clock.host.ranks)
    shown = ranks if len(ranks) <= _MAX_RANKS else f"{len(clock.host.ranks):,} ranks"
    if clock.how == REFERENCE:
        return clock.host.name, shown, duration(0), NONE, NONE, NONE, "the reference", ""
    drift = _known(item.drift.value)
    made = f"{count(clock.num_operations)} {'ends' if clock.how == BY_OPERATIONS else 'operations'}"
    bound = NONE if clock.bound is None else f"{signed(clock.bound[0])} .. {signed(clock.bound[1])}"
    return (
        clock.host.name, shown, signed(_known(item.offset.value)), NONE if drift is None else f"{1e6 * drift:+.1f} ppm",
        duration(_known(item.error.value)), bound, clock.how if not clock.num_operations else made, _over_time(clock),
    )  # fmt: skip


def signed(nanoseconds: float | None) -> str:
    """1234567 is +1.23 ms."""
    if nanoseconds is None:
        return NONE
    return ("+" if nanoseconds >= 0 else "-") + duration(abs(nanoseconds))


def _over_time(clock: "HostClock") -> str:
    """The offset from the first to the last operation, between its own extremes; empty where it is constant."""
    if clock.observed is None or clock.drift is None:
        return ""
    begin, end = clock.observed
    values = [clock.ahead_ns(begin + (end - begin) * i // (_COLUMNS - 1)) for i in range(_COLUMNS)]
    return sparkline([value - min(values) for value in values])


def _known(value: float | int | str | None) -> float | None:
    return None if value is None else float(value)
