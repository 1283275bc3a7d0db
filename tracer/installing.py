"""Hooks are installed where what they observe is there: now, or as soon as the training imports it.

A hook that fails half-way undoes what it did; one that cannot work here says why in the journal; the others go on.
"""

import sys
from collections.abc import Callable, Collection
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from typing import Any

from rankscope.hooks import base
from rankscope.hooks.base import Recorder
from rankscope.hooks.registry import DEFAULT_GROUP, HOOKS, KERNEL_WINDOWS, SAMPLERS, HookSpec
from rankscope.schema.errors import HookUnavailable
from rankscope.schema.journal import CHOSEN_OFF

Failed = Callable[[BaseException], None]


def install_hooks(recorder: Recorder, undo: ExitStack, names: Collection[str], failed: Failed) -> None:
    """Install the hooks called `names`, each when the module that it needs is imported. Their undoing goes to `undo`.

    failed: told of every error that is not HookUnavailable.
    """
    base.redact = _redact
    pending = ExitStack()
    is_wanted = [True]
    undo.callback(is_wanted.clear)
    undo.push(pending)
    for spec in (*HOOKS, DEFAULT_GROUP, KERNEL_WINDOWS):
        if spec.name in names or (spec is KERNEL_WINDOWS and "steps" in names):
            _when_imported(spec, partial(_install, recorder, pending, spec, failed), is_wanted, failed)


def tell_chosen_off(recorder: Recorder, names: Collection[str]) -> None:
    """Journal what is on unless told otherwise and not among `names`: it must not look like "nothing there"."""
    for spec in (*HOOKS, *SAMPLERS):
        if spec.default_on and spec.name not in names:
            recorder.journal("hook", hook=spec.name, is_on=False, why=CHOSEN_OFF)


def _when_imported(spec: HookSpec, install: Callable[[], None], is_wanted: list[bool], failed: Failed) -> None:
    """Call `install` once spec.needs is imported and its root package is whole (parts are imported in its middle)."""
    root = spec.needs.partition(".")[0]

    def when_needed(_module: Any = None) -> None:
        if is_wanted:
            install()

    def when_root(_module: Any = None) -> None:
        if spec.needs in sys.modules:
            when_needed()
        else:
            _register(spec.needs, when_needed, failed)

    if root in sys.modules:
        when_root()
    else:
        _register(root, when_root, failed)


def _register(module: str, callback: Callable[[Any], None], failed: Failed) -> None:
    import wrapt

    def guarded(found: Any) -> None:
        try:
            callback(found)
        except Exception as error:  # noqa: BLE001
            failed(error)

    wrapt.register_post_import_hook(guarded, module)


def _install(recorder: Recorder, undo: ExitStack, spec: HookSpec, failed: Failed) -> None:
    module, _, function = spec.target.partition(":")
    try:
        with ExitStack() as own:
            getattr(import_module(f"rankscope.hooks.{module}"), function)(recorder, own)
            undo.push(own.pop_all())
    except HookUnavailable as error:
        recorder.journal("hook", hook=spec.name, is_on=False, why=str(error))
    except Exception as error:  # noqa: BLE001
        recorder.journal("hook", hook=spec.name, is_on=False, why=f"{type(error).__name__}: {error}")
        failed(error)


def _redact(text: str) -> str:
    from . import redact  # with all its patterns: nobody pays for them at import

    return redact.text(text)
