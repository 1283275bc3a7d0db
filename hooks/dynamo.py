"""Keeps torch.compile from compiling our own code, and tells when torch is compiling.

Below a graph break, frames run under dynamo's callback: it would try to compile a wrapper of ours, break on clocks and
memory maps, and recompile at every step number. Marking the code objects makes it run them as they are; frames that
they call (the original function) are treated as usual. Inlining is not affected: what dynamo may trace into (a global
module or optimizer hook) begins with `torch.compiler.is_compiling()` and is folded away.

Source: `_FrameExecStrategy` of torch._C._dynamo.eval_frame (2.7 and later), what `torch._dynamo.skip_code` uses; not
loading torch._dynamo, which takes a second.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

_PACKAGE = "rankscope"
_seen: dict[str, int] = {}
"""Modules that were marked, and how many names they had then: one that is still being loaded has more later."""


def hide_our_code() -> None:
    """Mark every function of the rankscope modules loaded so far. Does nothing where torch has no such call.

    Every hook calls it; what an earlier call marked is not looked through again (6 ms each time).
    """
    try:
        import torch._C._dynamo.eval_frame as known
    except ImportError:
        return
    eval_frame: Any = known  # built in: what it has differs from version to version
    strategy, action = getattr(eval_frame, "_FrameExecStrategy", None), getattr(eval_frame, "_FrameAction", None)
    if strategy is None or action is None:
        return
    skip: Any = strategy(action.SKIP, action.DEFAULT)
    for code in _our_codes():
        eval_frame.set_code_exec_strategy(code, skip)


def tracing_test() -> Callable[[], bool]:
    """A cheap test whether torch is tracing with fake tensors: what then runs is compilation, not training."""
    import torch

    known: Any = torch._C
    find, keys = getattr(known, "_get_dispatch_mode", None), getattr(known, "_TorchDispatchModeKey", None)
    if find is None or keys is None:
        return lambda: False
    fake, proxy = keys.FAKE, keys.PROXY
    return lambda: find(fake) is not None or find(proxy) is not None


def _our_codes() -> Iterator[CodeType]:
    for name, module in list(sys.modules.items()):
        if (name == _PACKAGE or name.startswith(_PACKAGE + ".")) and _seen.get(name) != len(vars(module)):
            _seen[name] = len(vars(module))
            for function in _functions(module):
                yield from _nested(function.__code__)


def _functions(owner: ModuleType | type) -> Iterator[FunctionType]:
    for value in list(vars(owner).values()):
        plain = inspect.unwrap(value) if isinstance(value, FunctionType) else getattr(value, "__func__", value)
        if isinstance(plain, property) and isinstance(plain.fget, FunctionType):
            plain = plain.fget
        if isinstance(plain, FunctionType) and plain.__module__.startswith(_PACKAGE):
            yield plain
        elif isinstance(plain, type) and isinstance(owner, ModuleType) and plain.__module__ == owner.__name__:
            yield from _functions(plain)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
