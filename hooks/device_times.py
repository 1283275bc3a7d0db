"""When operations ran on the device: sampled timing events, found complete by query, anchored to the host clock.

In one step of RANKSCOPE_DEVICE_TIMES (default 20, by the step counter, 0 never) events are recorded around the issuing
call on the stream that issues it, and around the wait on the current stream, whose stall is the exposed communication.
The first of a sampled step also records an anchor on a stream of its own, which is idle, so that the anchor happens
when it is recorded; elapsed times are float32 milliseconds and only good over short spans. Nothing is ever waited for:
events are asked at later hooks, and reused.

Never under CUDA_DEVICE_MAX_CONNECTIONS=1, where timing events destroy overlap (pytorch issue 143890), and nothing while
any stream captures a graph. An asynchronous NCCL operation runs on a stream of its own: its end is the wait's end.
Cost per sampled operation: 4 event records (about 1 us each on the host); unsampled: one comparison.
"""

import os
from collections import deque
from contextlib import ExitStack
from typing import Any, Final, NamedTuple, Protocol

from rankscope.schema.ring import OFFSET_UNIT_NS

from .base import Recorder, now_ns, patch
from .completion import LAYOUT

DEFAULT_ONE_IN: Final = 20
MAX_OPEN: Final = 2048
"""Event pairs that are not yet found complete; beyond it nothing more is sampled."""
MAX_QUERIES: Final = 4
NEVER_WITH: Final = ("CUDA_DEVICE_MAX_CONNECTIONS", "1")


class EventBackend(Protocol):
    """The device's events. Each call is non-blocking."""

    def is_capturing(self) -> bool: ...
    def record(self, on_idle_stream: bool) -> Any: ...
    def is_done(self, event: Any) -> bool: ...
    def elapsed_ns(self, earlier: Any, later: Any) -> int: ...
    def release(self, event: Any) -> None: ...


class Anchor(NamedTuple):
    """An event whose time is known on the host clock (CLOCK_MONOTONIC ns)."""

    event: Any
    host_ns: int


class _Pair(NamedTuple):
    record: int
    base_ns: int
    columns: tuple[str, str]
    begin: Any
    end: Any
    anchor: Anchor


class DeviceTimes:
    """Samples device times. `is_active` False: nothing of this is ever called."""

    __slots__ = ("_anchor", "_anchor_step", "_backend", "_one_in", "_open", "_recorder", "is_active")

    def __init__(self, recorder: Recorder, backend: EventBackend | None, one_in: int) -> None:
        self.is_active = backend is not None and one_in > 0
        self._recorder, self._backend, self._one_in = recorder, backend, one_in
        self._open: deque[_Pair] = deque()
        self._anchor, self._anchor_step = Anchor(None, 0), -1

    def begin(self) -> Any:
        """Before the issuing call or the wait: an event on the current stream, or None if this one is not sampled."""
        step, backend = self._recorder.step, self._backend
        if step % self._one_in or backend is None:
            return None
        if len(self._open) >= MAX_OPEN or backend.is_capturing():
            return None
        if self._anchor_step != step:
            self._anchor, self._anchor_step = Anchor(backend.record(True), now_ns()), step
        return backend.record(False)

    def end(self, begin: Any, record: int, base_ns: int, *, is_wait: bool) -> None:
        """After it. base_ns: the record's issued_ns. The times are written when the events are found complete."""
        if begin is None or self._backend is None or self._backend.is_capturing():
            return
        columns = ("wait_device_start_ns", "wait_device_end_ns") if is_wait else ("device_start_ns", "device_end_ns")
        self._open.append(_Pair(record, base_ns, columns, begin, self._backend.record(False), self._anchor))

    def resolve(self, most: int = MAX_QUERIES) -> None:
        """Write what is complete, oldest first; stops at the first pair that is not."""
        backend = self._backend
        if backend is None or not self._open or backend.is_capturing():
            return
        for _ in range(most):
            if not self._open or not backend.is_done(self._open[0].end):
                return
            self._write(backend, self._open.popleft())

    def _write(self, backend: EventBackend, pair: _Pair) -> None:
        for column, event in zip(pair.columns, (pair.begin, pair.end), strict=True):
            time_ns = pair.anchor.host_ns + backend.elapsed_ns(pair.anchor.event, event)
            # 0 means null, and the host issues before the device begins
            offset = max(1, (time_ns - pair.base_ns) // OFFSET_UNIT_NS)
            self._recorder.poke(LAYOUT, pair.record, column, offset)
            backend.release(event)


class CudaEvents:
    """Events of `torch.cuda` (torch 2.6+)."""

    def __init__(self, undo: ExitStack) -> None:
        import torch

        self._cuda, self._idle = torch.cuda, torch.cuda.Stream()
        self._free: list[Any] = []
        self._captures = 0
        patch(torch.cuda.CUDAGraph, "capture_begin", self._counted(1), undo)
        patch(torch.cuda.CUDAGraph, "capture_end", self._counted(-1), undo)

    def is_capturing(self) -> bool:
        """Whether this stream, or any graph of this process, is being captured: a query would break the capture."""
        return self._captures > 0 or bool(self._cuda.is_current_stream_capturing())

    def record(self, on_idle_stream: bool) -> Any:
        """A timing event on the current stream, or on one where nothing else runs."""
        event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
        event.record(self._idle if on_idle_stream else self._cuda.current_stream())
        return event

    def is_done(self, event: Any) -> bool:
        """Asks, never waits."""
        return bool(event.query())

    def elapsed_ns(self, earlier: Any, later: Any) -> int:
        """Nanoseconds between two complete events of one device; negative if later was first."""
        return round(float(earlier.elapsed_time(later)) * 1e6)

    def release(self, event: Any) -> None:
        """The event may be recorded anew."""
        self._free.append(event)

    def _counted(self, change: int) -> Any:
        def make(original: Any) -> Any:
            def counted(*args: Any, **kwargs: Any) -> Any:
                if change > 0:
                    self._captures += 1
                try:
                    return original(*args, **kwargs)
                finally:
                    if change < 0:
                        self._captures -= 1

            return counted

        return make


def make_device_times(recorder: Recorder, undo: ExitStack) -> DeviceTimes:
    """Device times as the environment wants them; inactive without CUDA. A wrong setting counts as the default."""
    import torch

    text = os.environ.get("RANKSCOPE_DEVICE_TIMES", "")
    one_in = int(text) if text.isdecimal() else DEFAULT_ONE_IN
    name, value = NEVER_WITH
    if one_in == 0 or os.environ.get(name) == value or not torch.cuda.is_available():
        return DeviceTimes(recorder, None, 0)
    return DeviceTimes(recorder, _LazyCuda(undo), one_in)


class _LazyCuda:
    """`CudaEvents` made at the first sampled operation: install must not create a CUDA context in the wrong device."""

    def __init__(self, undo: ExitStack) -> None:
        self._undo = undo
        self._made: CudaEvents | None = None

    def __getattr__(self, name: str) -> Any:
        if self._made is None:
            self._made = CudaEvents(self._undo)
        return getattr(self._made, name)

    def is_capturing(self) -> bool:
        """See `CudaEvents`; before it is made, only the current stream is asked."""
        import torch

        return bool(torch.cuda.is_current_stream_capturing()) if self._made is None else self._made.is_capturing()
