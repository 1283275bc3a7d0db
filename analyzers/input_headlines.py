"""What the loaders and the checkpoints say that a person should know first."""

from typing import Final

from .checkpoints import Checkpoints, Operation
from .headline import CRITICAL, INFO, WARNING, Headline
from .loading import Loading

MUCH_STALLED: Final = 0.1
"""Share of the time in which the training waits for data, or is held up by checkpoints, that is worth a warning."""
MAX_PATHS: Final = 3
_CHECKPOINTS: Final = "checkpoints"


def input_headlines(loading: Loading, checkpoints: Checkpoints) -> list[Headline]:
    """The headlines of both, in no order."""
    return [
        *_stalled(loading),
        *_samples(loading),
        *_repeated(loading),
        *_outcomes(checkpoints),
        *_held_up(checkpoints),
    ]


def _stalled(loading: Loading) -> list[Headline]:
    value = loading.stall.value
    if value is None or float(value) < MUCH_STALLED:
        return []
    worst = loading.by_rank[0]
    most = f"most on rank {worst.scope['rank']} ({float(worst.value or 0):.0%})" if len(loading.by_rank) > 1 else ""
    return [Headline(WARNING, f"The training waits for data {float(value):.0%} of its time{', ' * bool(most)}{most}.")]


def _samples(loading: Loading) -> list[Headline]:
    wrong = [line for line in loading.epochs if line.drawn.is_wrong]
    if not wrong:
        return []
    first = wrong[0]
    counted = first.duplicated.value is not None
    what = (
        f"{first.duplicated.value:,} samples were drawn twice, {first.missing.value or 0:,} never"
        if counted
        else first.drawn.reason
    )
    more = f" (and in {len(wrong) - 1} more epochs)" if len(wrong) > 1 else ""
    return [Headline(WARNING, f"Loader {first.loader}, epoch {first.epoch}: {what}{more}.")]


def _repeated(loading: Loading) -> list[Headline]:
    return [
        Headline(WARNING, f"Loader {name} shuffles, but each rank draws the same samples in every epoch: nobody calls "
                          "set_epoch of its sampler.")
        for name in loading.repeated
    ]  # fmt: skip


def _outcomes(checkpoints: Checkpoints) -> list[Headline]:
    found = [item for item in checkpoints.operations if item.finding]
    told = [Headline(_level(item), _said(item), _CHECKPOINTS) for item in found[:MAX_PATHS]]
    more = len(found) - MAX_PATHS
    rest = Headline(WARNING, f"{more} more findings about checkpoints.", _CHECKPOINTS)
    return [*told, rest] if more > 0 else told


def _level(item: Operation) -> int:
    if item.outcome != "ok":
        return CRITICAL if item.first.action == "save" else WARNING
    return INFO if item.finding.startswith("written by") else CRITICAL


def _said(item: Operation) -> str:
    step = "" if item.first.step is None else f" in step {item.first.step}"
    return f"Checkpoint {item.first.action}{step}, {item.first.path or 'unknown place'}: {item.finding}."


def _held_up(checkpoints: Checkpoints) -> list[Headline]:
    value = checkpoints.stall.value
    if value is None or float(value) < MUCH_STALLED:
        return []
    return [Headline(WARNING, f"Checkpoints hold the training up {float(value):.0%} of its time.", _CHECKPOINTS)]
