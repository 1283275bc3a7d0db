"""Optimizer calls: a span for each, and the step boundary that the leading optimizer marks.

How: torch's global optimizer hooks (`register_optimizer_step_pre_hook`, 2.0 and later) fire around every `step` of a
`torch.optim.Optimizer`, also of own subclasses, so gradient accumulation is counted right by construction. They fire
nested where a subclass calls `super().step`, or one optimizer wraps another (ZeroRedundancyOptimizer): only the
outermost call of a thread counts. No post-hook runs when `step` raises; the next call finds the outer one's frame gone
from the stack and closes its span as failed.

Leader: the first optimizer seen. It changes when the leader is gone, or when another one has stepped `PATIENCE` times
since the leader last did (a schedule of several steps a round keeps its leader).

A GradScaler that meets an overflow does not call the optimizer at all: `GradScaler.step` is wrapped to see that. Fused
optimizers skip inside their kernel; on CPU the scaler's `found_inf` is read, on a device it is not (it would wait).

Cost: 38 us per optimizer step, boundary included, on a slow, busy core (81 us bare).
Cannot see: optimizers outside torch.optim; steps inside a compiled graph.
"""

import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from types import CodeType
from typing import Any, Final, NamedTuple

from rankscope.schema.errors import HookUnavailable

from .base import patch
from .spans import KINDS, PHASE_OF, SpanWriter
from .steps import StepClock

PATIENCE: Final = 16

_KIND, _PHASE = KINDS["optimizer"], PHASE_OF["optimizer"]


class _Call(NamedTuple):
    """An outermost call in progress: its frame (by id and code), span record, and the phase around it."""

    frame_id: int
    code: CodeType
    record: int
    outer_phase: int


class OptimizerWatch:
    """Follows the optimizer calls of one process and tells the clock when the leader has stepped."""

    def __init__(self, clock: StepClock) -> None:
        self._clock, self._recorder, self._guard = clock, clock.recorder, clock.guard
        self._writer = SpanWriter(clock.recorder, "steps")
        self._calls: dict[int, _Call] = {}
        self._names: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._num_named: dict[str, int] = {}
        self._leader: Callable[[], Any] = _nobody
        self._since_leader: dict[int, int] = {}
        self.num_calls = 0

    def install(self, undo: ExitStack) -> None:
        """Register the hooks and wrap GradScaler.step. Raises HookUnavailable without torch."""
        try:
            from torch.amp.grad_scaler import GradScaler
            from torch.optim.optimizer import (
                Optimizer,
                register_optimizer_step_post_hook,
                register_optimizer_step_pre_hook,
            )
        except ImportError as error:
            raise HookUnavailable(f"optimizer hooks: {error}") from error
        before, after = self._hooks()
        undo.callback(register_optimizer_step_pre_hook(before).remove)
        undo.callback(register_optimizer_step_post_hook(after).remove)
        patch(GradScaler, "step", lambda original: self._wrap_scaler(original, Optimizer), undo)

    def began(self, optimizer: Any) -> None:
        """The outermost call of this thread begins, unless one is in progress. Called by `before`, called by torch."""
        frame, thread = sys._getframe(2), threading.get_ident()
        running = self._calls.get(thread)
        if running is not None:
            if _is_on_stack(running, frame.f_back):
                return
            self._end(running.record, is_failed=True)
        self.num_calls += 1
        outer_phase = self._recorder.phase if running is None else running.outer_phase
        record = self._begin(optimizer)
        self._calls[thread] = _Call(id(frame), frame.f_code, record, outer_phase)
        self._recorder.phase = _PHASE

    def ended(self, optimizer: Any) -> None:
        """A call ended well. Called by `after`, called by torch."""
        thread = threading.get_ident()
        running = self._calls.get(thread)
        if running is None or running.frame_id != id(sys._getframe(2)):
            return
        del self._calls[thread]
        self._end(running.record)
        self._recorder.phase = running.outer_phase
        self._count(optimizer, _found_overflow(optimizer))

    def skipped(self, optimizer: Any) -> None:
        """A GradScaler did not call `optimizer`, because of an overflow."""
        self._end(self._begin(optimizer))
        self._count(optimizer, True)

    def _begin(self, optimizer: Any) -> int:
        """Open the call's span; -1 in a shadow step, whose boundary counts all the same."""
        return -1 if self._recorder.is_shadow else self._writer.begin(_KIND, self._name(optimizer))

    def _end(self, record: int, is_failed: bool = False) -> None:
        if record >= 0:
            self._writer.end(record, is_failed)

    def _count(self, optimizer: Any, is_skipped: bool) -> None:
        leader, key = self._leader(), id(optimizer)
        if leader is not optimizer:
            self._since_leader[key] = num_calls = self._since_leader.get(key, 0) + 1
            if leader is not None and num_calls < PATIENCE:
                return
            self._leader = weakref.ref(optimizer)
        if self._since_leader:
            self._since_leader.clear()
        self._clock.boundary("optimizer", is_skipped=is_skipped)

    def _name(self, optimizer: Any) -> int:
        """Class name, and from the second instance on an ordinal: the call sequence tells them apart."""
        number = self._names.get(optimizer)
        if number is None:
            name = type(optimizer).__name__
            ordinal = self._num_named[name] = self._num_named.get(name, -1) + 1
            number = self._names[optimizer] = self._writer.name(f"{name}#{ordinal}" if ordinal else name)
        return number

    def _hooks(self) -> tuple[Callable[..., None], Callable[..., None]]:
        from torch.compiler import is_compiling

        guard, recorder, began, ended = self._guard, self._recorder, self.began, self.ended

        def before(optimizer: Any, args: object, kwargs: object) -> None:
            if is_compiling() or guard.is_off or not recorder.is_on:
                return
            entered = guard.enter()
            try:
                began(optimizer)
            except Exception as error:  # noqa: BLE001
                guard.failed(error)
            if entered:
                guard.leave(entered)

        def after(optimizer: Any, args: object, kwargs: object) -> None:
            if is_compiling() or guard.is_off or not recorder.is_on:
                return
            try:
                ended(optimizer)
            except Exception as error:  # noqa: BLE001
                guard.failed(error)

        return before, after

    def _wrap_scaler(self, original: Callable[..., Any], optimizer_class: type) -> Callable[..., Any]:
        guard, recorder = self._guard, self._recorder

        def step(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            num_calls = self.num_calls
            result = original(scaler, *args, **kwargs)
            if self.num_calls == num_calls and recorder.is_on and not guard.is_off:
                try:
                    optimizer = args[0] if args else kwargs["optimizer"]
                    if isinstance(optimizer, optimizer_class):
                        self.skipped(optimizer)
                except Exception as error:  # noqa: BLE001
                    guard.failed(error)
            return result

        return step


def _nobody() -> None:
    return None


def _is_on_stack(call: _Call, frame: Any) -> bool:
    while frame is not None:
        if id(frame) == call.frame_id and frame.f_code is call.code:
            return True
        frame = frame.f_back
    return False


def _found_overflow(optimizer: Any) -> bool:
    """What the scaler told a fused optimizer, where reading it waits for nothing."""
    found = getattr(optimizer, "found_inf", None)
    if found is None or not hasattr(found, "device") or found.device.type != "cpu":
        return False
    return bool(found.item())
