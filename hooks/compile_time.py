"""Time in torch.compile: a span of kind compile for each compilation, named after what started it.

Names: dynamo (a frame is traced and its graph compiled, the backend's work included), lazy_backward (the backward graph
is compiled at its first run), cudagraph_recording, triton_autotuning. Nested compilations belong to the outermost one.
How: torch tells the begin and the end of the outermost compilation to its callback handler; the two methods that tell
it are wrapped, because `torch._dynamo.reset` empties the handler's lists. Needs nothing until torch's compiler is
loaded, and never loads it.

The first compilation also tells the compiler in table `artifact`. Cost: about 4 us a compilation.
Cannot see: ahead-of-time compilation by other tools; Triton kernels that are built outside torch.compile.
Source: `CompilationCallbackHandler` of torch._dynamo.callback (2.4; what started it: 2.7).
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from rankscope.schema.errors import HookUnavailable

from .base import Guard, Recorder, claim, patch
from .spans import KINDS, SpanWriter

UNKNOWN_TRIGGER: Final = "compile"


class CompileLog:
    """The compilation in progress, if there is one: torch tells only the outermost, of all threads."""

    __slots__ = ("_is_told", "_record", "_writer", "guard")

    def __init__(self, recorder: Recorder) -> None:
        self.guard, self._writer = Guard(recorder, "compile"), SpanWriter(recorder, "compile")
        self._record, self._is_told = -1, False

    def begin(self, trigger: str) -> None:
        """A compilation begins."""
        guard = self.guard
        if guard.is_off or not guard.recorder.is_on or self._record >= 0:
            return
        entered = guard.enter()
        try:
            if not self._is_told:
                self._is_told = True
                guard.recorder.journal("row", table="artifact", row=_compiler())
            self._record = self._writer.begin(KINDS["compile"], self._writer.name(trigger))
        except Exception as error:  # noqa: BLE001
            guard.failed(error)
        if entered:
            guard.leave(entered)

    def end(self) -> None:
        """It ended, well or not: torch does not say which."""
        record, self._record = self._record, -1
        if record < 0 or self.guard.is_off:
            return
        try:
            self._writer.end(record)
        except Exception as error:  # noqa: BLE001
            self.guard.failed(error)


def install(recorder: Recorder, undo: ExitStack) -> None:
    """See `base.Hook`. Raises HookUnavailable without torch's compiler, or where it tells nobody of its work."""
    try:
        from torch._dynamo.callback import CompilationCallbackHandler as Handler
    except ImportError as error:
        raise HookUnavailable(f"compile: {error}") from error
    if not (hasattr(Handler, "run_start_callbacks") and hasattr(Handler, "run_end_callbacks")):
        raise HookUnavailable("compile: this version of torch does not tell when it compiles")
    if not claim("compile", undo):
        return
    log = CompileLog(recorder)
    patch(Handler, "run_start_callbacks", lambda original: _wrap_start(original, log), undo)
    patch(Handler, "run_end_callbacks", lambda original: _wrap_end(original, log), undo)


def _wrap_start(original: Callable[..., Any], log: CompileLog) -> Callable[..., Any]:
    def run_start_callbacks(handler: Any, *args: Any, **kwargs: Any) -> Any:
        log.begin(_trigger(args, kwargs))
        return original(handler, *args, **kwargs)

    return run_start_callbacks


def _wrap_end(original: Callable[..., Any], log: CompileLog) -> Callable[..., Any]:
    def run_end_callbacks(handler: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(handler, *args, **kwargs)
        finally:
            log.end()

    return run_end_callbacks


def _trigger(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    told = args[0] if args else kwargs.get("args")
    name = getattr(getattr(told, "callback_trigger", None), "name", None)
    return name.lower() if isinstance(name, str) else UNKNOWN_TRIGGER


def _compiler() -> dict[str, str]:
    import torch

    return {
        "kind": "compiler", "name": "torch.compile", "version": str(torch.__version__), "source": "seen to compile"
    }  # fmt: skip
