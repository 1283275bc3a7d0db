"""Phases of a step without user code: spans of kind forward, eval, backward and data, and the phase in progress.

backward: `_engine_run_backward`, replaced in torch.autograd and torch.autograd.graph, sees `loss.backward()`,
`autograd.backward` and `autograd.grad`, eager and compiled; nested ones (reentrant checkpointing) belong to the
outermost. data: `_BaseDataLoaderIter.__next__`, the one place for both kinds of loader; the span of the call that found
the data at an end has the name "end". forward and eval: `forward`. Optimizer spans come from the steps hook.

`recorder.phase` is set around each, so that a collective knows who issued it. Cost: about 40 us a backward on a slow,
busy core. Cannot see: backward passes started from C++; loaders of other libraries. Source: torch 2.0 and later.
"""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from rankscope.schema.errors import HookUnavailable

from . import compiled
from .base import Guard, Recorder, claim, patch
from .dynamo import hide_our_code, tracing_test
from .forward import ForwardWatch
from .spans import KINDS, PHASE_OF, SPAN_LAYOUT, SpanWriter
from .steps import StepClock, clock_for

END_NAME: Final = "end"

_BACKWARD, _BACKWARD_PHASE = KINDS["backward"], PHASE_OF["backward"]
_DATA, _DATA_PHASE = KINDS["data"], PHASE_OF["data"]


class _Backward:
    """Backward spans: the outermost call of the process is told, calls inside it are not.

    One for all threads: reentrant calls may come from the engine's device threads.
    """

    __slots__ = ("_clock", "_outer_phase", "_record", "_step", "_writer")

    def __init__(self, clock: StepClock, writer: SpanWriter) -> None:
        self._clock, self._writer = clock, writer
        self._record, self._outer_phase, self._step = -1, 0, 0

    def begin(self) -> bool:
        """True if this is an outermost call: its caller must `end` it. Raises what the recorder raises."""
        recorder = self._writer.recorder
        if self._record >= 0:
            return False
        if self._clock.is_holding:
            self._clock.work_begins()
        self._record = self._writer.begin(_BACKWARD)
        self._outer_phase, self._step, recorder.phase = recorder.phase, recorder.step, _BACKWARD_PHASE
        return True

    def end(self, is_failed: bool = False) -> None:
        """The outermost call ended."""
        record, self._record = self._record, -1
        recorder = self._writer.recorder
        self._writer.end(record, is_failed)
        # A boundary inside (an optimizer that steps from a backward hook) has begun a new step, without a phase.
        recorder.phase = self._outer_phase if self._step == recorder.step else 0


def install(recorder: Recorder, undo: ExitStack) -> None:
    """See `base.Hook`. Raises HookUnavailable without torch."""
    try:
        import torch
        from torch.utils.data.dataloader import _BaseDataLoaderIter
    except ImportError as error:
        raise HookUnavailable(f"phases: {error}") from error
    if not claim("phases", undo):
        return
    guard, clock = Guard(recorder, "phases"), clock_for(recorder)
    writer = SpanWriter(recorder, "phases")
    forward = ForwardWatch(recorder, guard, clock)
    forward.install(undo)
    compiled.install(forward, undo)
    backward, data = _Backward(clock, writer), _Data(recorder, writer)
    for module in (torch.autograd.graph, torch.autograd):
        patch(
            module,
            "_engine_run_backward",
            lambda original: _wrap_backward(original, backward, guard, forward, clock),
            undo,
        )
    patch(_BaseDataLoaderIter, "__next__", lambda original: _wrap_next(original, data, guard), undo)
    hide_our_code()


def _wrap_backward(
    original: Callable[..., Any], backward: _Backward, guard: Guard, forward: ForwardWatch, clock: StepClock
) -> Callable[..., Any]:
    recorder, is_tracing = guard.recorder, tracing_test()

    def begin() -> bool:
        try:
            if is_tracing() or not backward.begin():
                return False
            forward.hold_off()
            return True
        except Exception as error:  # noqa: BLE001
            guard.failed(error)
            return False

    def end(is_failed: bool) -> None:
        clock.poll(is_doubtful=is_failed)
        try:
            forward.allow()
            backward.end(is_failed)
        except Exception as error:  # noqa: BLE001
            guard.failed(error)

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        if guard.is_off or not recorder.is_on or recorder.is_shadow or not begin():
            return original(*args, **kwargs)
        try:
            result = original(*args, **kwargs)
        except BaseException:
            end(True)
            raise
        end(False)
        return result

    return run_backward


class _Data:
    """Data spans: per thread, since loaders may be drained by threads of their own."""

    __slots__ = ("_end_name", "_recorder", "_running", "_writer")

    def __init__(self, recorder: Recorder, writer: SpanWriter) -> None:
        self._recorder, self._writer = recorder, writer
        self._running: set[int] = set()
        self._end_name = 0

    def begin(self) -> tuple[int, bool] | None:
        """(record, whether the phase was set); None inside another loader's call in this thread."""
        thread, recorder = threading.get_ident(), self._recorder
        if thread in self._running:
            return None
        record = self._writer.begin(_DATA)
        self._running.add(thread)
        # Not where a phase is in progress: then this is a thread that reads ahead, or a loader inside a user's span.
        sets_phase = recorder.phase == 0
        if sets_phase:
            recorder.phase = _DATA_PHASE
        return record, sets_phase

    def end(self, call: tuple[int, bool], error: BaseException | None) -> None:
        """The call returned a batch, or raised `error`."""
        record, sets_phase = call
        self._running.discard(threading.get_ident())
        if isinstance(error, StopIteration):
            self._end_name = self._end_name or self._writer.name(END_NAME)
            self._recorder.poke(SPAN_LAYOUT, record, "name", self._end_name)
        self._writer.end(record, error is not None)
        if sets_phase and self._recorder.phase == _DATA_PHASE:
            self._recorder.phase = 0


def _wrap_next(original: Callable[..., Any], data: _Data, guard: Guard) -> Callable[..., Any]:
    recorder = guard.recorder

    def begin() -> tuple[int, bool] | None:
        entered = guard.enter()
        try:
            return data.begin()
        except Exception as error:  # noqa: BLE001
            guard.failed(error)
            return None
        finally:
            if entered:
                guard.leave(entered)

    def end(call: tuple[int, bool], error: BaseException | None) -> None:
        try:
            data.end(call, error)
        except Exception as failure:  # noqa: BLE001
            guard.failed(failure)

    def next_batch(iterator: Any) -> Any:
        call = begin() if recorder.is_on and not recorder.is_shadow and not guard.is_off else None
        if call is None:
            return original(iterator)
        try:
            batch = original(iterator)
        except BaseException as error:
            end(call, error)
            raise
        end(call, None)
        return batch

    return next_batch
