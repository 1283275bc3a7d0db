"""What is worth saying first about the numerics of a run: numbers that are no numbers, ranks that disagree."""

from .groups import named_ranks
from .headline import CRITICAL, INFO, WARNING, Headline
from .numerics import Finding, Numerics


def numerics_headlines(numerics: Numerics) -> list[Headline]:
    """The headlines, in no order."""
    found = [Headline(_level(item), _nonfinite(item)) for item in numerics.of("nonfinite")]
    found += [Headline(CRITICAL, _drift(item)) for item in numerics.of("drift")]
    found += [Headline(WARNING, _collapse(item)) for item in numerics.of("collapses")]
    found += [Headline(INFO, _spikes(item)) for item in numerics.of("spikes")]
    return found


def _level(item: Finding) -> int:
    """Infinite norms that the loss scaler skipped are its daily work."""
    return INFO if item.num_expected == item.count.value else CRITICAL


def _nonfinite(item: Finding) -> str:
    who = f" on {named_ranks(item.ranks)}" if item.ranks else ""
    detail = f", {item.detail}" if item.detail else ""
    return f"{item.metric} was not finite in {_count(item, 'step')}{_since(item)}{who}{detail}."


def _drift(item: Finding) -> str:
    differ = "differs" if len(item.ranks) == 1 else "differ"
    who = f": {named_ranks(item.ranks)} {differ} from the others" if item.ranks else ""
    detail = f" {item.detail}" if item.detail else ""
    return (
        f"{item.metric}, meant to be equal on all ranks, differs{detail} in {_count(item, 'step')}{_since(item)}{who}."
    )


def _collapse(item: Finding) -> str:
    return f"{item.metric} collapsed {_count(item, 'time')}{_since(item)} ({item.detail})."


def _spikes(item: Finding) -> str:
    return f"{item.metric} spiked in {_count(item, 'step')}{_since(item)}; the worst was {item.detail}."


def _since(item: Finding) -> str:
    if item.first is None:
        return ""
    incarnation, step = item.first
    return f", first in step {step}" + (f" of incarnation {incarnation}" if incarnation else "")


def _count(item: Finding, noun: str) -> str:
    number = int(item.count.value or 0)
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
