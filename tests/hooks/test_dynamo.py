"""Which of our code is hidden from torch.compile, and that looking for it again costs nothing."""

import sys
from types import CodeType, ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")

import torch._C._dynamo.eval_frame as eval_frame

from rankscope.hooks import dynamo


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> list[CodeType]:
    """The code that is marked from now on, in order."""
    found: list[CodeType] = []

    def note(code: CodeType, strategy: Any) -> None:
        found.append(code)

    monkeypatch.setattr(eval_frame, "set_code_exec_strategy", note)
    return found


def module_with(monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> ModuleType:
    module = ModuleType(name)
    exec(source, vars(module))
    monkeypatch.setitem(sys.modules, name, module)
    return module


def test_each_module_is_looked_through_once_and_again_when_it_has_grown(
    marked: list[CodeType], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "def first():\n    def inner(): pass\nclass Thing:\n    def method(self): pass\n"
    module = module_with(monkeypatch, "rankscope._grows", source)
    dynamo.hide_our_code()
    assert {"first", "inner", "method"} <= {code.co_name for code in marked}
    marked.clear()
    dynamo.hide_our_code()
    assert marked == []
    exec("def second(): pass", vars(module))
    dynamo.hide_our_code()
    assert [code.co_name for code in marked] == ["first", "inner", "method", "second"]


def test_other_modules_are_none_of_our_business(marked: list[CodeType], monkeypatch: pytest.MonkeyPatch) -> None:
    module_with(monkeypatch, "rankscopes_neighbour", "def first(): pass")
    dynamo.hide_our_code()
    assert "first" not in [code.co_name for code in marked]
