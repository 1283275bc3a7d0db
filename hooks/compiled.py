"""Keeps the forward hook out of torch.compile's and torch.export's sight, and sees the calls of compiled modules.

A compiled module (`OptimizedModule`) warns when global module hooks exist, and strict export takes another way and
fails. So the call of a compiled module is wrapped: it begins and ends the forward span itself, without a hook; export
and ahead-of-time compilation run with the hook away. Put in place once torch's compiler is loaded, never loading it.

Source: torch._dynamo.eval_frame (2.0), torch._dynamo.functional_export (2.9).
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import wrapt

from .base import patch
from .forward import ForwardWatch

_COMPILER: Final = "torch._dynamo.eval_frame"
_EXPORT: Final = "torch._dynamo.functional_export"
_EXPORT_MAKERS: Final = ("dynamo_graph_capture_for_export", "_dynamo_graph_capture_for_export")


def install(forward: ForwardWatch, undo: ExitStack) -> None:
    """Wrap what is loaded now, and the rest when it comes."""
    late = undo.enter_context(ExitStack())
    is_over: list[bool] = []
    undo.callback(is_over.append, True)

    def compiler_came(module: Any) -> None:
        if not is_over:
            patch(module.OptimizedModule, "__call__", lambda original: _wrap_call(original, forward), late)
            if hasattr(module.OptimizedModule, "_aot_compile"):
                patch(module.OptimizedModule, "_aot_compile", lambda original: _hide(original, forward), late)

    def export_came(module: Any) -> None:
        for name in _EXPORT_MAKERS:
            if not is_over and hasattr(module, name):
                patch(module, name, lambda original: _hide_in_made(original, forward), late)

    wrapt.register_post_import_hook(compiler_came, _COMPILER)
    wrapt.register_post_import_hook(export_came, _EXPORT)


def _wrap_call(original: Callable[..., Any], forward: ForwardWatch) -> Callable[..., Any]:
    def call(module: Any, /, *args: Any, **kwargs: Any) -> Any:
        if not forward.is_armed:
            return original(module, *args, **kwargs)
        begun = forward.begin_compiled(module)
        try:
            result = original(module, *args, **kwargs)
        except BaseException:
            forward.end_compiled(begun, is_failed=True)
            raise
        forward.end_compiled(begun)
        return result

    return call


def _hide(original: Callable[..., Any], forward: ForwardWatch) -> Callable[..., Any]:
    def hidden(*args: Any, **kwargs: Any) -> Any:
        with forward.hidden():
            return original(*args, **kwargs)

    return hidden


def _hide_in_made(original: Callable[..., Any], forward: ForwardWatch) -> Callable[..., Any]:
    def make(*args: Any, **kwargs: Any) -> Any:
        return _hide(original(*args, **kwargs), forward)

    return make
