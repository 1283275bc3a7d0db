"""Hooks are installed when what they need is imported, one by one, and undone in full."""

import sys
import types
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, cast

import pytest

from rankscope.hooks.base import Recorder
from rankscope.hooks.registry import HOOKS, SAMPLERS, HookSpec
from rankscope.schema.errors import HookUnavailable
from rankscope.schema.journal import CHOSEN_OFF
from rankscope.tracer import installing


class Notes:
    """The part of a recorder that installing uses."""

    def __init__(self) -> None:
        self.lines: list[dict] = []

    def journal(self, kind: str, **body: object) -> None:
        self.lines.append({"k": kind, **body})


@pytest.fixture
def world(monkeypatch):
    """install(needs, function) -> (notes, undo, errors): one hook in a module of its own."""

    def run(needs: str, function: Callable[..., object]) -> tuple[Notes, ExitStack, list[BaseException]]:
        module: Any = types.ModuleType("rankscope.hooks.made_up")
        module.install = function
        monkeypatch.setitem(sys.modules, "rankscope.hooks.made_up", module)
        monkeypatch.setattr(installing, "HOOKS", (HookSpec("made_up", "made_up:install", needs, True, ""),))
        notes, undo = Notes(), ExitStack()
        errors: list[BaseException] = []
        installing.install_hooks(cast(Recorder, notes), undo, {"made_up"}, errors.append)
        return notes, undo, errors

    return run


def test_what_is_imported_is_hooked_at_once_and_undone(world):
    done: list[str] = []

    def install(recorder, undo):
        done.append("on")
        undo.callback(done.append, "off")

    _, undo, _ = world("json", install)
    assert done == ["on"]
    undo.close()
    assert done == ["on", "off"]


def test_what_comes_later_is_hooked_then(world, tmp_path, monkeypatch):
    package = tmp_path / "lateone"
    package.mkdir()
    (package / "__init__.py").write_text("import lateone.part\nis_whole = True\n")
    (package / "part.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[bool] = []
    _, undo, errors = world(
        "lateone.part", lambda recorder, undo: seen.append(getattr(sys.modules["lateone"], "is_whole", False))
    )
    assert seen == []
    import lateone  # type: ignore[import-not-found]  # noqa: F401

    assert seen == [True] and errors == []
    undo.close()


def test_after_undoing_a_late_import_hooks_nothing(world, tmp_path, monkeypatch):
    (tmp_path / "latetwo.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[int] = []
    _, undo, _ = world("latetwo", lambda recorder, undo: seen.append(1))
    undo.close()
    import latetwo  # type: ignore[import-not-found]  # noqa: F401

    assert seen == []


def test_a_hook_that_fails_half_way_undoes_what_it_did(world):
    done: list[str] = []

    def install(recorder, undo):
        undo.callback(done.append, "off")
        raise ZeroDivisionError("half")

    notes, undo, errors = world("json", install)
    assert done == ["off"] and isinstance(errors[0], ZeroDivisionError)
    assert notes.lines == [{"k": "hook", "hook": "made_up", "is_on": False, "why": "ZeroDivisionError: half"}]
    undo.close()


def test_an_unavailable_hook_says_why_and_is_no_error(world):
    def install(recorder, undo):
        raise HookUnavailable("needs more")

    notes, _, errors = world("json", install)
    assert errors == [] and notes.lines[0]["why"] == "needs more"


def test_an_error_in_a_late_hook_does_not_reach_the_import(world, tmp_path, monkeypatch):
    (tmp_path / "latethree.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)

    def install(recorder, undo):
        raise ZeroDivisionError("late")

    _, undo, errors = world("latethree", install)
    import latethree  # type: ignore[import-not-found]  # noqa: F401

    assert isinstance(errors[0], ZeroDivisionError)
    undo.close()


def test_what_somebody_switched_off_is_told():
    notes = Notes()
    names = {spec.name for spec in (*HOOKS, *SAMPLERS)} - {"nic", "checkpoints"}
    installing.tell_chosen_off(cast(Recorder, notes), names)
    assert notes.lines == [
        {"k": "hook", "hook": hook, "is_on": False, "why": CHOSEN_OFF} for hook in ("checkpoints", "nic")
    ]
