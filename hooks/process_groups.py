"""Which operations a process issues on its process groups, when each was issued, waited for and completed.

Picks the best way this torch offers and wires the parts: creation of groups, calls from Python at the class, calls from
C++ by native hooks (tier 1, torch 2.14+) or a dispatcher kernel and the functional entries (tier 2), waits, completion.
Each part has its own guard, so that a failing one is switched off alone. What each costs and misses: their docstrings.
"""

from contextlib import ExitStack
from typing import Final, Literal

from . import class_methods, dispatcher, functional, group_creation, native, waits
from rankscope.schema.errors import HookUnavailable

from .base import Guard, Recorder
from .device_times import make_device_times
from .ledger import Ledger

Tier = Literal["native", "dispatcher"]

HOOK: Final = "process_groups"

_live: Ledger | None = None


def install(recorder: Recorder, undo: ExitStack, tier: Tier | None = None) -> None:
    """Watch all process groups until `undo` closes. tier: None picks the best one. A second install does nothing.

    Raises HookUnavailable where torch has no distributed package.
    """
    global _live
    if _live is not None:
        return
    import torch.distributed

    if not torch.distributed.is_available():
        raise HookUnavailable("this torch is built without distributed")
    ledger = Ledger(recorder, make_device_times(recorder, undo))
    undo.callback(_forget, ledger)
    _live = ledger
    chosen = tier or ("native" if native.is_available() else "dispatcher")
    waits.install(ledger, _guard(recorder, "waits", None), undo)
    if chosen == "native":
        native.install(ledger, _guard(recorder, "native", "native"), undo)
    else:
        dispatcher.install(ledger, _guard(recorder, "dispatcher", "dispatcher"), undo)
    own = _guard(recorder, "functional", "functional")
    functional.install(ledger, own, undo, writes=chosen == "dispatcher")
    class_methods.install(ledger, _guard(recorder, "class", "class"), undo, beside_kernel=chosen == "dispatcher")
    group_creation.install(recorder, ledger.registry, _guard(recorder, "groups", None), undo)


def poll() -> None:
    """Ask every open operation once whether it is complete: for hooks at the ends of backward and step. Never blocks."""
    if _live is not None and _live.recorder.is_on:
        _live.completion.poll_all()
        _live.device.resolve()


def _guard(recorder: Recorder, part: str, tier: str | None) -> Guard:
    name = f"{HOOK}.{part}"
    guard = Guard(recorder, name)
    if tier is not None:
        recorder.journal("hook", hook=name, tier=tier, is_on=True)
    return guard


def _forget(ledger: Ledger) -> None:
    global _live
    ledger.completion.forget_all()
    ledger.registry.forget_all()
    _live = None
