"""Pauses of the garbage collector: a span of kind gc for each long one, two running totals for the rest.

How: `gc.callbacks`, which the interpreter calls at the begin and the end of every collection. A callback may run in the
middle of any Python code, ours included (with the journal's lock held, say): so it only reads the clock and puts a
pause of at least `THRESHOLD_NS` on a list, which is written out at the next step boundary and at the end. A rank that
is killed loses the pauses of its last step.

Totals: metric `gc.collections` (how many) and `gc.short_pauses_ns` (time in those below the threshold), both since the
attach, every `TOTALS_EVERY` steps and at the end. Cost: 0.7 us a collection. Source: `gc.callbacks`, Python 3.3.
Cannot see: collections inside other interpreters; frees by reference counting, however long they take.
"""

import gc
from collections import deque
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

from rankscope.schema.ring import COMPLETED, layout_of

from .base import Guard, Recorder, claim, now_ns
from .spans import KINDS, SPAN_LAYOUT
from .steps import clock_for

THRESHOLD_NS: Final = 1_000_000
"""A pause from which a collection is a row of its own."""
MAX_PENDING: Final = 4096
"""Pauses kept until they are written; later ones are counted as dropped."""
TOTALS_EVERY: Final = 256
COLLECTIONS: Final = "gc.collections"
SHORT_PAUSES: Final = "gc.short_pauses_ns"

_METRIC_LAYOUT: Final = layout_of("metric")
_NO_STAGE: Final = -1


class _Pause(NamedTuple):
    start_ns: int
    end_ns: int
    step: int
    generation: int


class PauseLog:
    """The pauses of one process; `callback` is what the interpreter calls."""

    __slots__ = (
        "_error", "_names", "_num_boundaries", "_pending", "_recorder", "_start_ns", "guard", "num_collections",
        "num_dropped", "short_ns", "threshold_ns",
    )  # fmt: skip

    def __init__(self, recorder: Recorder, threshold_ns: int | None = None) -> None:
        self._recorder, self.guard = recorder, Guard(recorder, "gc_pauses")
        self.threshold_ns = THRESHOLD_NS if threshold_ns is None else threshold_ns
        self._start_ns = 0  # collections of one interpreter do not overlap
        self._pending: deque[_Pause] = deque()
        self._names = [recorder.intern(f"generation {number}") for number in range(3)]
        self._num_boundaries = self.num_collections = self.short_ns = self.num_dropped = 0
        self._error: BaseException | None = None

    def callback(self, phase: str, info: dict[str, Any]) -> None:
        """A collection begins or ends. Takes no lock and writes nothing: see the module's text."""
        if phase == "start":
            self._start_ns = now_ns()
            return
        start, self._start_ns = self._start_ns, 0
        if not start or self.guard.is_off or not self._recorder.is_on:
            return
        try:
            self._ended(start, now_ns(), int(info["generation"]))
        except Exception as error:  # noqa: BLE001
            self._failed(error)

    def boundary(self) -> None:
        """A step ended: write what has come up, and now and then the totals."""
        self._num_boundaries += 1
        self._guarded(is_total_due=self._num_boundaries % TOTALS_EVERY == 0)

    def finish(self) -> None:
        """The recording ends: write what is left, and the totals if there is anything to tell.

        In a process that recorded nothing else (a launcher, a script that imports torch) there is not.
        """
        if getattr(self._recorder, "is_awake", True):
            self._guarded(is_total_due=self.num_collections > 0)

    def _ended(self, start_ns: int, end_ns: int, generation: int) -> None:
        self.guard.calls += 1
        self.num_collections += 1
        if end_ns - start_ns < self.threshold_ns:
            self.short_ns += end_ns - start_ns
        elif len(self._pending) >= MAX_PENDING:
            self.num_dropped += 1
        else:
            self._pending.append(_Pause(start_ns, end_ns, self._recorder.step, min(generation, 2)))

    def _guarded(self, is_total_due: bool) -> None:
        if not self._recorder.is_on:
            return
        try:
            error, self._error = self._error, None
            if error is not None:
                self.guard.failed(error)
            elif not self.guard.is_off:
                self._flush()
                if is_total_due:
                    self._write_totals()
        except Exception as failure:  # noqa: BLE001
            self.guard.failed(failure)

    def _flush(self) -> None:
        self.guard.flush()
        if self.num_dropped:
            self.guard.count_dropped(self.num_dropped)
            self.num_dropped = 0
        while self._pending:
            pause = self._pending.popleft()
            name = self._names[pause.generation]
            # In the order of the layout: start_ns, step, name, stage, chunk, microbatch, kind.
            record = self._recorder.open(
                SPAN_LAYOUT, pause.start_ns, pause.step, name, _NO_STAGE, _NO_STAGE, _NO_STAGE, KINDS["gc"]
            )
            self._recorder.close(SPAN_LAYOUT, record, COMPLETED, 0, pause.end_ns)
            self.guard.count_row()

    def _write_totals(self) -> None:
        recorder = self._recorder
        for text, value in ((COLLECTIONS, self.num_collections), (SHORT_PAUSES, self.short_ns)):
            # In the order of the layout: global_step, time_ns, value, step, name, is_replicated.
            name = recorder.intern(text)
            recorder.write(_METRIC_LAYOUT, recorder.global_step, now_ns(), float(value), recorder.step, name, False)
            self.guard.count_row()

    def _failed(self, error: BaseException) -> None:
        """Like `Guard.failed`, without the journal, whose lock may be held by the code that was interrupted."""
        self.guard.is_off, self._error = True, error


def install(recorder: Recorder, undo: ExitStack) -> None:
    """See `base.Hook`."""
    if not claim("gc_pauses", undo):
        return
    log, clock = PauseLog(recorder), clock_for(recorder)
    undo.callback(log.finish)
    clock.listeners.append(log.boundary)
    undo.callback(clock.listeners.remove, log.boundary)
    callback = log.callback  # one object: a bound method is made anew at every access
    gc.callbacks.append(callback)
    undo.callback(_remove, callback)


def _remove(callback: Any) -> None:
    if callback in gc.callbacks:  # somebody may have emptied the list
        gc.callbacks.remove(callback)
