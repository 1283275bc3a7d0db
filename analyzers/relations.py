"""What a part computes beside its views, because the order of rows matters: a sort in SQL would cost ten times as much.

Each function offers relations to the part's statements; `Partial.relations` names those that a statement reads.
"""

from collections.abc import Callable
from typing import Final

from .part import Part


def _matched(part: Part) -> None:
    from .matched_part import offer_matched

    offer_matched(part)


def _gaps(part: Part) -> None:
    from .sequence_gaps import offer_gaps

    offer_gaps(part)


def _waits(part: Part) -> None:
    from .unions import offer_waits

    offer_waits(part)


def _phases(part: Part) -> None:
    from .unions import offer_phases

    offer_phases(part)


def _live(part: Part) -> None:
    from .live_time import offer_live

    offer_live(part)


RELATIONS: Final[dict[str, Callable[[Part], None]]] = {
    "part_matched": _matched,
    "part_gaps": _gaps,
    "part_waits": _waits,
    "part_phases": _phases,
    "part_live": _live,
}
"""By the first of the relations that the function offers."""
