"""What a hang says in few sentences: each verdict, and the operation that everybody waits in."""

from dataclasses import replace
from typing import TYPE_CHECKING

from .headline import Headline, verdict_headline

if TYPE_CHECKING:
    from .hang import Hang


def hang_headlines(hang: "Hang") -> tuple[Headline, ...]:
    """One sentence per verdict; the first one also tells the operation that is blocked first."""
    said = [verdict_headline(item, "hang") for item in hang.verdicts]
    if said and hang.blocked:
        first = hang.blocked[0]
        where = f"First blocked: {first.op or 'operation'} number {first.seq} in {first.group.label}."
        said[0] = replace(said[0], text=f"{said[0].text} {where}")
    return tuple(said)
