"""Forward spans: the outermost call of any `nn.Module`, seen without a cost for the modules inside it.

How: one global forward pre-hook. When it fires, the call is an outermost one: it takes itself away and puts a forward
hook (`always_call`, so exceptions end the span too) on that one module; when the call ends, the module's hook goes and
the global one returns. Inner modules see no hook at all and stay on torch's fast path. The usual way, global hooks
that stay, costs every module 3..5 us. A loss that is a module is a forward of its own; the span's name is the class.

A call is `eval` if gradients are off or the module is in evaluation mode, else `forward`. Forwards inside a backward
(activation checkpointing) are part of the backward: the hook is away meanwhile.

A compiled module makes the same two moves itself (`compiled`). A compiled function that calls modules is traced through
the pre-hook, which is folded away (`is_compiling`): its forwards are not seen. Nor are calls while torch traces, and
of `torch.fx.GraphModule` without gradients (what compiled functions run).

Cost: 33 us per outermost call on a slow, busy core (an 11-module net there: 126 us bare, 172 us with global hooks that
stay), much of it torch's slow path for hooked modules; nothing per inner module. Cannot see: a second thread's
forward while one is in progress. Source: torch.nn.modules.module (`always_call`: 2.2 and later).
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple

from .base import Guard, Recorder
from .dynamo import tracing_test
from .spans import KINDS, PHASE_OF, SpanWriter
from .steps import StepClock

_KEY: Final = "rankscope"
_FORWARD, _FORWARD_PHASE = KINDS["forward"], PHASE_OF["forward"]
_EVAL, _EVAL_PHASE = KINDS["eval"], PHASE_OF["eval"]


class _Call(NamedTuple):
    """The outermost call in progress.

    module: what carries the end hook; None where the call ends by itself (a compiled module). handled: id of the
    exception that was being handled at the begin; another one at the end is the call's own.
    """

    module: Any
    record: int
    outer_phase: int
    step: int
    thread: int
    handled: int


class ForwardWatch:
    """Follows the outermost module calls of one process."""

    def __init__(self, recorder: Recorder, guard: Guard, clock: StepClock) -> None:
        import torch
        import torch.nn.modules.module as module

        self._is_grad_enabled = torch.is_grad_enabled
        self._recorder, self._guard, self._clock = recorder, guard, clock
        self._writer = SpanWriter(recorder, guard.hook)
        self._global: dict[Any, Any] = module._global_forward_pre_hooks
        self._names: dict[type, int] = {}
        self._running: _Call | None = None
        self._is_held_off = False
        self._pre_hook, self._end_hook = self._hooks()

    def install(self, undo: ExitStack) -> None:
        """Put the global hook in place."""
        undo.callback(self._leave)
        self._arm()

    def hold_off(self) -> bool:
        """A backward begins: forwards inside it are not told. True if that was not so already."""
        running = self._running
        if running is not None and running.step != self._recorder.step:  # its end was never seen (KeyboardInterrupt)
            self._end(running, is_failed=True)
        if self._is_held_off:
            return False
        self._is_held_off = True
        self._disarm()
        return True

    def allow(self) -> None:
        """The backward ended."""
        self._is_held_off = False
        if self._running is None:
            self._arm()

    @property
    def is_armed(self) -> bool:
        """A module call now would be an outermost one."""
        return _KEY in self._global

    def begin_compiled(self, module: Any) -> _Call | None:
        """A compiled module is called; None where that is not told. Give the result to `end_compiled`."""
        if self._guard.is_off or not self._recorder.is_on or self._recorder.is_shadow:
            return None
        try:
            return self._begin(module, None)
        except Exception as error:  # noqa: BLE001
            self._disarm()
            self._guard.failed(error)
            return None

    def end_compiled(self, call: _Call | None, is_failed: bool = False) -> None:
        """That call ended."""
        if call is None:
            return
        try:
            self._end(call, is_failed)
        except Exception as error:  # noqa: BLE001
            self._guard.failed(error)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Nobody sees a hook of ours inside."""
        was_armed = self.is_armed
        self._disarm()
        try:
            yield
        finally:
            if was_armed and self._running is None and not self._is_held_off:
                self._arm()

    def _begin(self, module: Any, hooked: Any) -> _Call:
        """An outermost call of `module` begins; hooked: the module that carries our end hook."""
        is_training = self._is_grad_enabled() and module.training
        recorder, clock, kind = self._recorder, self._clock, _FORWARD if is_training else _EVAL
        if is_training and clock.is_holding:
            clock.work_begins()
        elif not is_training:
            clock.num_evals += 1
        self._disarm()
        record = self._writer.begin(kind, self._name(type(module)))
        self._running = call = _Call(hooked, record, recorder.phase, recorder.step, threading.get_ident(), _handled())
        recorder.phase = _FORWARD_PHASE if is_training else _EVAL_PHASE
        return call

    def _end(self, call: _Call, is_failed: bool = False) -> None:
        self._forget_module(call.module)
        if self._running is not call:
            return
        self._running = None
        self._writer.end(call.record, is_failed)
        self._recorder.phase = call.outer_phase if call.step == self._recorder.step else 0
        if not self._is_held_off:
            self._arm()

    def _arm(self) -> None:
        if not self._guard.is_off:
            self._global[_KEY] = self._pre_hook

    def _disarm(self) -> None:
        self._global.pop(_KEY, None)

    def _leave(self) -> None:
        self._disarm()
        self._is_held_off = True
        running, self._running = self._running, None
        if running is not None:
            self._forget_module(running.module)

    def _name(self, module_class: type) -> int:
        number = self._names.get(module_class)
        if number is None:
            number = self._names[module_class] = self._writer.name(module_class.__name__)
        return number

    @staticmethod
    def _forget_module(module: Any) -> None:
        if module is not None:
            module._forward_hooks.pop(_KEY, None)
            module._forward_hooks_always_called.pop(_KEY, None)

    def _hooks(self) -> tuple[Callable[..., None], Callable[..., None]]:
        from torch.compiler import is_compiling
        from torch.fx import GraphModule as graph_class

        guard, recorder, is_tracing = self._guard, self._recorder, tracing_test()

        def pre_hook(module: Any, args: object) -> None:
            if is_compiling() or not recorder.is_on or recorder.is_shadow or is_tracing():
                return
            if isinstance(module, graph_class) and not self._is_grad_enabled():
                return  # most likely a graph that a compiled function runs
            entered = guard.enter()
            try:
                self._begin(module, module)
                module._forward_hooks[_KEY] = end_hook
                module._forward_hooks_always_called[_KEY] = True
            except Exception as error:  # noqa: BLE001
                self._disarm()
                guard.failed(error)
            if entered:
                guard.leave(entered)

        def end_hook(module: Any, args: object, result: object) -> None:
            call = self._running
            try:
                if call is None or call.module is not module:
                    self._forget_module(module)
                elif call.thread == threading.get_ident():
                    self._end(call, is_failed=_handled() != call.handled)
            except Exception as error:  # noqa: BLE001
                guard.failed(error)

        return pre_hook, end_hook


def _handled() -> int:
    return id(sys.exc_info()[1])
