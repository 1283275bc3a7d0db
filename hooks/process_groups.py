"""Which operations a process issues on its process groups, when each was issued, waited for and completed.

Picks the best way this torch offers and wires the parts: creation of groups, calls from Python at the class, calls from
C++ by native hooks (tier 1, torch 2.14+) or a dispatcher kernel and the functional entries (tier 2), waits, completion.
Each part has its own guard, so that a failing one is switched off alone. What each costs and misses: their docstrings.
"""

from contextlib import ExitStack
from typing import Final, Literal, NamedTuple

from rankscope.schema.errors import HookUnavailable

from . import class_methods, dispatcher, functional, group_creation, native, waits
from .base import Guard, Recorder, claim
from .device_times import make_device_times
from .ledger import Ledger
from .row_guard import RowGuard

Tier = Literal["native", "dispatcher"]

HOOK: Final = "process_groups"


class _Live(NamedTuple):
    ledger: Ledger
    guards: list[RowGuard]
    watch: Guard


_live: _Live | None = None


def install(recorder: Recorder, undo: ExitStack, tier: Tier | None = None) -> None:
    """Watch all process groups until `undo` closes. tier: None picks the best one. A second install does nothing.

    Raises HookUnavailable where torch has no distributed package.
    """
    global _live
    import torch.distributed

    if not torch.distributed.is_available():
        raise HookUnavailable("this torch is built without distributed")
    if not claim(HOOK, undo):
        return
    watch, chosen = Guard(recorder, f"{HOOK}.waits"), tier or best_tier()
    ledger = Ledger(recorder, make_device_times(recorder, undo), watch)
    _live = _Live(ledger, [], watch)
    undo.callback(_forget, _live)
    waits.install(ledger, watch, undo)
    if chosen == "native":
        native.install(ledger, _guard(recorder, "native"), undo)
    else:
        dispatcher.install(ledger, _guard(recorder, "dispatcher"), undo)
    functional.install(ledger, _guard(recorder, "functional"), undo, writes=chosen == "dispatcher")
    class_methods.install(ledger, _guard(recorder, "class"), undo, beside_kernel=chosen == "dispatcher")
    group_creation.install(recorder, ledger.registry, last_look, Guard(recorder, f"{HOOK}.groups"), undo)


def best_tier() -> Tier:
    """What this torch offers."""
    return "native" if native.is_available() else "dispatcher"


def poll(*, is_doubtful: bool = False) -> None:
    """Ask every open operation once whether it is complete: at the ends of backward and step. Never blocks.

    is_doubtful: an exception ended the backward, so an operation may be what failed.
    """
    if _live is not None and _live.ledger.recorder.is_on:
        _live.ledger.completion.poll_all(is_doubtful=is_doubtful)
        _live.ledger.device.resolve()
        for guard in _live.guards:
            guard.flush()


def _guard(recorder: Recorder, tier: str) -> RowGuard:
    assert _live is not None
    guard = RowGuard(recorder, f"{HOOK}.{tier}")
    _live.guards.append(guard)
    recorder.journal("hook", hook=guard.hook, tier=tier, is_on=True)
    return guard


def last_look() -> None:
    """Close what is complete by now: the groups of the process, or the recording, end. Never blocks."""
    if _live is not None and _live.ledger.recorder.is_on and not _live.watch.is_off:
        try:
            _live.ledger.completion.last_look()
        except Exception as error:  # noqa: BLE001 - the guard's
            _live.watch.failed(error)


def _forget(live: _Live) -> None:
    global _live
    last_look()
    for guard in live.guards:
        guard.flush()
    live.ledger.completion.forget_all()
    live.ledger.registry.forget_all()
    _live = None
