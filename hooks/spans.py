"""Intervals of work: the writer that hooks use for table `span`, and the user's `with rankscope.span(...)`.

A span is one record, opened at its begin and closed in place, so one that never ended is visible. Cost: about 2 us a
span. A name outside the vocabulary of kinds is a span of kind `user` with that name. Needs no torch.

Names are interned: at most `MAX_NAMES` different ones a process, later ones become "(other)" (a name made from a
counter must not fill the journal).
"""

from types import TracebackType
from typing import Final

from rankscope.schema.enums import PHASES, SPAN_KINDS, code
from rankscope.schema.ring import COMPLETED, FAILED, layout_of

from .base import Guard, Recorder, now_ns

MAX_NAMES: Final = 1024
OTHER_NAME: Final = "(other)"

KINDS: Final[dict[str, int]] = {kind: code("span_kind", kind) for kind in SPAN_KINDS}
"""Ring code of every kind of span."""
PHASE_OF: Final[dict[str, int]] = {kind: code("phase", kind) for kind in SPAN_KINDS if kind in PHASES}
"""Ring code of the phase that a kind of span means, where it means one."""

SPAN_LAYOUT: Final = layout_of("span")
_NO_STAGE: Final = -1
_ROWS: Final = 4


class SpanWriter:
    """Opens and closes the span records of one hook. Its calls may raise: the caller's guard takes care."""

    __slots__ = ("_close", "_counters", "_names", "_open", "recorder")

    def __init__(self, recorder: Recorder, hook: str) -> None:
        self.recorder, self._open, self._close = recorder, recorder.open, recorder.close
        self._counters = recorder.counters(hook)
        self._names: dict[str, int] = {}

    def begin(self, kind: int, name: int = 0) -> int:
        """Open a span now; kind: from `KINDS`, name: from `name`. Returns its record number."""
        self._counters[_ROWS] += 1
        # In the order of the layout: start_ns, step, name, stage, chunk, microbatch, kind.
        return self._open(SPAN_LAYOUT, now_ns(), self.recorder.step, name, _NO_STAGE, _NO_STAGE, _NO_STAGE, kind)

    def end(self, record: int, is_failed: bool = False) -> None:
        """Close a span now."""
        self._close(SPAN_LAYOUT, record, FAILED if is_failed else COMPLETED, 0, now_ns())

    def name(self, text: str) -> int:
        """The number that stands for `text`."""
        number = self._names.get(text)
        if number is None:
            if len(self._names) >= MAX_NAMES:
                text = OTHER_NAME
            number = self._names[text] = self.recorder.intern(text)
        return number


class SpanLog:
    """Makes the user's spans; one per session."""

    __slots__ = ("guard", "writer")

    def __init__(self, recorder: Recorder) -> None:
        self.writer, self.guard = SpanWriter(recorder, "spans"), Guard(recorder, "spans")

    def span(self, kind_or_name: str) -> "UserSpan":
        """A context manager: a kind of the vocabulary, or a name of the user's own. It lets every exception pass."""
        return UserSpan(self, kind_or_name)


class UserSpan:
    """One use of `rankscope.span`. Not reentrant; make a new one for each `with`."""

    __slots__ = ("_log", "_outer_phase", "_record", "_text")

    def __init__(self, log: SpanLog, text: str) -> None:
        self._log, self._text, self._record, self._outer_phase = log, text, -1, 0

    def __enter__(self) -> "UserSpan":
        guard = self._log.guard
        if guard.recorder.is_on and not guard.is_off:
            entered = guard.enter()
            try:
                self._begin()
            except Exception as error:  # noqa: BLE001
                guard.failed(error)
            if entered:
                guard.leave(entered)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._record < 0:
            return
        guard = self._log.guard
        try:
            self._log.writer.end(self._record, error is not None)
            self._record = -1
            if self._text in PHASE_OF:
                guard.recorder.phase = self._outer_phase
        except Exception as failure:  # noqa: BLE001
            guard.failed(failure)

    def _begin(self) -> None:
        writer, kind = self._log.writer, KINDS.get(self._text)
        if kind is None:
            self._record = writer.begin(KINDS["user"], writer.name(str(self._text)))
            return
        self._record = writer.begin(kind)
        if self._text in PHASE_OF:
            self._outer_phase, writer.recorder.phase = writer.recorder.phase, PHASE_OF[self._text]
