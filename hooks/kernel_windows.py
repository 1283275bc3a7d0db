"""Kernel windows: torch's profiler is on for a few steps in many (RANKSCOPE_KERNELS=every:steps), off otherwise.

At the boundary before step n * every (n > 0) the profiler starts, and `steps` steps later it stops and writes its trace
to a private temporary folder; the agent imports that into table `kernel` and deletes it. On CPU jobs these are the
operators of the host. The same steps on all ranks, since they go by the step's ordinal.

The job's own profiler comes first: while it is prepared or running no window opens, and one that is open is given up
the moment the job prepares its own (two cannot run in one process, the second would raise). The profiler is driven
below `torch.profiler`, whose exit would synchronise the device.

Cost: only what was asked for: some us an operator while a window is open, and the writing of the trace at its end
(about 10 ms for 1,000 operators), inside the first step after it. Off, nothing is patched. Cannot see: other threads'
operators that do not inherit the profiler (backward threads do). Source: torch.autograd._enable_profiler, torch 2.6.
"""

import os
import tempfile
import time
from contextlib import ExitStack, suppress
from typing import Any, Final

from .base import Guard, Recorder, claim, now_ns, patch
from .steps import clock_for

VARIABLE: Final = "RANKSCOPE_KERNELS"
ROW: Final = "kernel_window"
"""Name of the journal rows that tell the agent of a trace; no table of the ontology, so that nobody else reads them."""


class KernelWindows:
    """The windows of one process; `boundary` is told when a step ended."""

    __slots__ = ("_config", "_foreign", "_guard", "_own", "_recorder", "_steps", "every", "num_steps")

    def __init__(self, recorder: Recorder, every: int, num_steps: int) -> None:
        self._recorder, self._guard = recorder, Guard(recorder, "kernel_windows")
        self.every, self.num_steps = every, num_steps
        self._foreign: set[int] = set()
        self._own: Any = None
        self._steps: list[list[int]] = []

    def boundary(self) -> None:
        """A step ended and `recorder.step` begins."""
        if self._guard.is_off or not self._recorder.is_on:
            return
        entered = self._guard.enter()
        try:
            step = self._recorder.step
            if self._own is not None:
                self._end_step(step)
            if self._own is None and step and step % self.every == 0 and not self._is_taken():
                self._open(step)
        except Exception as error:  # noqa: BLE001
            self._own = None
            self._guard.failed(error)
        if entered:
            self._guard.leave(entered)

    def give_way(self, profiler: Any) -> None:
        """The job prepares or starts a profiler of its own: an open window is given up."""
        self._foreign.add(id(profiler))
        self.abandon()

    def is_done(self, profiler: Any) -> None:
        """The job's profiler has stopped."""
        self._foreign.discard(id(profiler))

    def abandon(self) -> None:
        """Close an open window without a trace."""
        own, self._own = self._own, None
        if own is not None:
            with suppress(Exception):
                _stop()

    def _is_taken(self) -> bool:
        import torch

        is_running = torch._C._autograd._profiler_enabled()
        return bool(self._foreign) or bool(is_running) or _is_capturing(torch)

    def _open(self, step: int) -> None:
        self._own = _start()
        self._steps = [[step, now_ns(), 0]]

    def _end_step(self, step: int) -> None:
        now = now_ns()
        self._steps[-1][2] = now
        if step == self._steps[0][0] + len(self._steps) and len(self._steps) < self.num_steps:
            self._steps.append([step, now, 0])
            return
        self._own = None
        offset = time.monotonic_ns() - time.time_ns()
        result = _stop()
        path = os.path.join(tempfile.mkdtemp(prefix="rankscope-kernels-"), "trace.json")
        result.save(path)
        row = {"path": path, "offset_ns": offset, "steps": self._steps}
        self._recorder.journal("row", table=ROW, row=row)
        self._guard.count_row()


def install(recorder: Recorder, undo: ExitStack) -> None:
    """See `base.Hook`. Without the setting there is nothing to do."""
    wanted = window()
    if wanted is None or not claim("kernel_windows", undo):
        return
    from torch.autograd.profiler import profile

    windows, clock = KernelWindows(recorder, *wanted), clock_for(recorder)
    undo.callback(windows.abandon)
    for name in ("_prepare_trace", "_start_trace"):
        patch(profile, name, lambda original: _before(original, windows), undo)
    patch(profile, "__exit__", lambda original: _after(original, windows), undo)
    listener = windows.boundary
    clock.listeners.append(listener)
    undo.callback(clock.listeners.remove, listener)


def window() -> tuple[int, int] | None:
    """(every, steps) of the setting; None where it is not set or wrong (the tracer has said so)."""
    every, _, steps = os.environ.get(VARIABLE, "").strip().partition(":")
    if every.isdecimal() and steps.isdecimal() and 0 < int(steps) <= int(every):
        return int(every), int(steps)
    return None


def _before(original: Any, windows: KernelWindows) -> Any:
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        with suppress(Exception):
            windows.give_way(self)
        return original(self, *arguments, **named)

    return wrapper


def _after(original: Any, windows: KernelWindows) -> Any:
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return original(self, *arguments, **named)
        finally:
            windows.is_done(self)

    return wrapper


def _start() -> Any:
    """The profiler's own object gives the configuration of this version; it is never entered."""
    import torch
    from torch.autograd.profiler import profile

    device = "cuda" if torch.cuda.is_available() and torch.cuda.is_initialized() else None
    own = profile(use_device=device, use_kineto=True)
    config = own.config()
    torch._C._autograd._prepare_profiler(config, own.kineto_activities)
    torch._C._autograd._enable_profiler(config, own.kineto_activities)
    return own


def _stop() -> Any:
    import torch

    return torch._C._autograd._disable_profiler()


def _is_capturing(torch: Any) -> bool:
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
