"""Patches on modules that come later: put on when they come, never after the end, never loading them."""

import sys
from contextlib import ExitStack

import pytest

from rankscope.hooks.late import when_loaded


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module that nobody has imported."""
    name = f"late_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


def test_it_waits_for_the_import_and_undoes_with_the_rest(module):
    seen = []
    with ExitStack() as undo:

        def came(found, late):
            seen.append(found.value)
            late.callback(seen.append, "undone")

        when_loaded(module, came, undo)
        assert seen == [] and module not in sys.modules
        __import__(module)
        assert seen == [1]
    assert seen == [1, "undone"]


def test_what_is_loaded_already_is_there_at_once():
    seen = []
    with ExitStack() as undo:
        when_loaded("json", lambda found, late: seen.append(found.__name__), undo)
        assert seen == ["json"]


def test_nothing_happens_after_the_end(module):
    seen = []
    with ExitStack() as undo:
        when_loaded(module, lambda found, late: seen.append(found), undo)
    __import__(module)
    assert seen == []
