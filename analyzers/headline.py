"""One sentence that a person should know of a run: how bad it is, what it says, how sure, and where to look closer."""

from dataclasses import dataclass
from typing import Final

from rankscope.schema.measurement import Verdict

from .groups import named_ranks

CRITICAL, WARNING, INFO = 2, 1, 0
_CRITICAL_KINDS: Final = frozenset({"hang", "mismatch", "dead_rank"})
"""Verdicts of these kinds mean that the job does not go on; the others, that it is slower than it could be."""
NOTHING: Final = "nothing"
UNDECIDED: Final = 0.5
"""Confidence of a verdict that says what cannot be decided."""


@dataclass(frozen=True, slots=True)
class Headline:
    """One sentence. level: CRITICAL, WARNING or INFO. command: of rankscope, that looks closer; "" if none does.

    confidence: 0 to 1; None for what the rows say without a doubt.
    """

    level: int
    text: str
    command: str = ""
    confidence: float | None = None


def verdict_headline(verdict: Verdict, command: str) -> Headline:
    """A verdict as a headline: what, who, since when, the cause, how sure; what it costs stands in the text or nowhere.

    Example: `Straggler: one worker: dp 0, stage 0 (rank 0).`
    """
    who = "" if not verdict.ranks or "rank" in verdict.text else f" ({named_ranks(verdict.ranks)})"
    is_said = "since" in verdict.text or f"in step {verdict.since_step}" in verdict.text
    since = "" if verdict.since_step is None or is_said else f", since step {verdict.since_step}"
    cause = f", cause: {verdict.cause}" if verdict.cause and verdict.cause not in verdict.text else ""
    kind = verdict.kind.replace("_", " ").capitalize()
    text = f"{kind}: {verdict.text.rstrip('.')}{who}{since}{cause}."
    return Headline(_level(verdict), text, command, verdict.confidence)


def worst_first(headlines: list[Headline]) -> tuple[Headline, ...]:
    """The worst first; of those as bad: conclusions, observations, what is undecided; else in the order given."""
    return tuple(sorted(headlines, key=lambda item: (-item.level, _place(item.confidence))))


def percent(share: float) -> str:
    """0.1234 is 12.3 %."""
    return f"{100 * share:.1f} %"


def _place(confidence: float | None) -> float:
    if confidence is None:
        return 1.0
    return 2.0 if confidence <= UNDECIDED else 1.0 - confidence


def _level(verdict: Verdict) -> int:
    if verdict.kind == NOTHING:
        return INFO
    return CRITICAL if verdict.kind in _CRITICAL_KINDS else WARNING
