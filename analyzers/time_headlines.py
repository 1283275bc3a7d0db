"""What the division of the ranks' time says in few sentences: how much is exposed communication and how much idle.

Only for timelines of devices: what hosts see is said by the headlines of communication and phases.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from .headline import INFO, WARNING, Headline, percent

if TYPE_CHECKING:
    from .timeline import Timeline, Times

MUCH_EXPOSED: Final = 0.2
"""Share of the time in communication with nothing else going on that is worth a warning (as for host-visible waits)."""
MUCH_IDLE: Final = 0.2
MAX_NAME: Final = 60
"""Characters of a kernel's name that are shown: template arguments can fill a page."""
_COMMAND: Final = "time"
_EXPOSED: Final = "time.exposed_communication"


def time_headlines(times: "Times") -> Iterator[Headline]:
    """One sentence on the whole, with the rank that is worst; one on names that may be classed wrongly."""
    known = [item for item in times.timelines if item.kind != "host" and item.value("time.span")]
    exposed, idle, compute = (_share(known, part) for part in (_EXPOSED, "time.idle", "time.compute"))
    if exposed is not None:
        talk = f"communication with nothing else going on {percent(exposed)}{_worst(known, _EXPOSED)}"
        text = f"{talk[0].upper()}{talk[1:]} of the time"
        if idle is not None and compute is not None:
            stands = f"idle {percent(idle)}{_worst(known, 'time.idle')}"
            text = f"Devices compute {percent(compute)} of the time; {stands}; {talk}"
        is_much = exposed >= MUCH_EXPOSED or (idle or 0.0) >= MUCH_IDLE
        yield Headline(WARNING if is_much else INFO, f"{text}.", _COMMAND)
    if times.suspects:
        name = times.suspects[0].name
        first = name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}..."
        others = f" and {len(times.suspects) - 1} other names" if len(times.suspects) > 1 else ""
        yield Headline(WARNING, f"{first}{others} counts as computing, but sounds like communication.", _COMMAND)


def _share(timelines: "list[Timeline]", name: str) -> float | None:
    """The part of all ranks' time; None unless every rank tells it."""
    parts = [item.value(name) for item in timelines]
    whole = sum(item.value("time.span") or 0 for item in timelines)
    return None if not whole or None in parts else sum(part or 0 for part in parts) / whole


def _worst(timelines: "list[Timeline]", name: str) -> str:
    if len(timelines) < 2:
        return ""
    shares = [float(item.value(name) or 0) / float(item.value("time.span") or 1) for item in timelines]
    rank = timelines[shares.index(max(shares))].rank
    return "" if rank is None else f" (most on rank {rank}: {percent(max(shares))})"
