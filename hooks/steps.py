"""Step boundaries: one row in table `step` per training step of this process.

A step runs from the end of the previous boundary to the end of this one, so waiting for data belongs to it. The
boundary is an explicit `rankscope.step()`, else the framework's, else the step of the leading optimizer (`optimizers`).
Once a stronger source has spoken, weaker ones are ignored.

A script that calls `rankscope.step()` has usually stepped its optimizer just before: the first explicit boundary
belongs to the step that the optimizer has just ended. So the row of step 0 is held back until the next step's work
begins, and the first explicit call replaces it. One that comes later still only takes over, without a row.

Step 0 runs from the attach (or the joining of the incarnation) and is left out as warm-up. A step in which more than
twice as many forwards without gradients ran as in the step before is left out as evaluation: a validation between
epochs is, a teacher model in every step is not. Shadow steps: see `shadow`.

Cost: told with `optimizers`. Cannot see: the steps of an optimizer outside torch.optim; call `rankscope.step()` there.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, Literal, NamedTuple

from rankscope.schema.enums import code
from rankscope.schema.ring import layout_of

from . import shadow
from .base import Guard, Recorder, claim, now_ns

Source = Literal["explicit", "framework", "optimizer"]
LeftOut = Literal["warmup", "checkpoint", "eval", "shadow"]

EVAL_FACTOR: Final = 2
"""A step is left out as evaluation if its forwards without gradients exceed so many times those of the step before."""

_LAYOUT: Final = layout_of("step")
_STRENGTH: Final[dict[Source, int]] = {"optimizer": 1, "framework": 2, "explicit": 3}
_CODES: Final[dict[Source, int]] = {source: code("boundary", source) for source in _STRENGTH}
_WARMUP, _EVAL, _SHADOW = (code("left_out", why) for why in ("warmup", "eval", "shadow"))
_ROWS: Final = 4


class _Row(NamedTuple):
    """The values of one record, in the order of the layout's open columns; -1: not told."""

    global_step: int
    start_ns: int
    end_ns: int
    samples: int
    tokens: int
    step: int
    boundary: int
    is_skipped: int
    left_out: int


class StepClock:
    """Counts the steps of one process and writes their rows; one per recorder (`clock_for`)."""

    __slots__ = (
        "_held", "_last_evals", "_left_out", "_poll_guard", "_start_ns", "_step", "_strength", "guard", "listeners",
        "num_evals", "recorder", "shadow_one_in",
    )  # fmt: skip

    def __init__(self, recorder: Recorder) -> None:
        self.recorder, self.guard = recorder, Guard(recorder, "steps")
        self._poll_guard = Guard(recorder, "process_groups.poll")
        self.num_evals = 0
        """Forwards without gradients in the current step; the phases hook counts them."""
        self.listeners: list[Callable[[], None]] = []
        """Called at the end of every step, of all hooks that have something to do then; each guards itself."""
        self.shadow_one_in = shadow.one_in()
        """One step in so many is a shadow step; 0 none."""
        self._strength = 0
        self._held: _Row | None = None
        self.restart()

    def restart(self) -> None:
        """A new incarnation begins: its steps count from 0, from now on."""
        self.work_begins()
        self.recorder.step, self.recorder.is_shadow = 0, False
        self._step = 0
        self._start_ns, self._left_out, self._last_evals, self.num_evals = now_ns(), _WARMUP, 0, 0

    def boundary(
        self,
        source: Source,
        samples: int | None = None,
        tokens: int | None = None,
        global_step: int | None = None,
        *,
        is_skipped: bool = False,
    ) -> None:
        """The current step ends now. samples and tokens are those of this process; global_step is that of this step."""
        guard = self.guard
        if guard.is_off or not self.recorder.is_on or _STRENGTH[source] < self._strength:
            return
        self.poll()
        entered = guard.enter()
        try:
            self._end_step(source, samples, tokens, global_step, is_skipped)
            self.recorder.boundary()
            for listener in self.listeners:
                listener()
        except Exception as error:  # noqa: BLE001
            guard.failed(error)
        if entered:
            guard.leave(entered)

    def poll(self, *, is_doubtful: bool = False) -> None:
        """Ask open operations whether they are complete: at the end of a backward and of a step.

        is_doubtful: an exception ended it, so an operation may be what failed.
        """
        if self._poll_guard.is_off:
            return
        try:
            from . import process_groups  # not above: steps are counted also where that hook cannot be loaded

            process_groups.poll(is_doubtful=is_doubtful)
        except Exception as error:  # noqa: BLE001
            self._poll_guard.failed(error)

    def leave_out(self, why: LeftOut) -> None:
        """Analyzers shall leave the current step out."""
        self._left_out = self._left_out or code("left_out", why)

    def work_begins(self) -> None:
        """The next step's work has begun (or the job ends): a row held back is final."""
        held, self._held = self._held, None
        if held is not None:
            self._write(held)

    @property
    def is_holding(self) -> bool:
        """A row is held back: tell `work_begins` when training work starts."""
        return self._held is not None

    def _end_step(
        self, source: Source, samples: int | None, tokens: int | None, global_step: int | None, skipped: bool
    ) -> None:
        recorder, end_ns = self.recorder, now_ns()
        if recorder.step != self._step:  # somebody else began to count anew: a child that joined a group
            self._step, self._left_out, self._held = recorder.step, _WARMUP, None
        takes_over, self._strength = 0 < self._strength < _STRENGTH[source], _STRENGTH[source]
        if takes_over and self._held is None:
            recorder.journal("note", text=f"step boundaries: {source} from step {self._step} on")
            return
        begun = self._begun(takes_over)
        row = begun._replace(
            global_step=begun.global_step if global_step is None else int(global_step), end_ns=end_ns,
            samples=_or_none(samples), tokens=_or_none(tokens), boundary=_CODES[source], is_skipped=int(skipped),
        )  # fmt: skip
        self._begin_next(row)
        if row.step == 0 and source != "explicit":
            self._held = row
        else:
            self._write(row)

    def _begun(self, takes_over: bool) -> _Row:
        """What is known of the step that ends: the row held back if that is taken over, else a new one."""
        if takes_over and self._held is not None:
            held, self._held = self._held, None
            return held
        self.work_begins()
        return _Row(self.recorder.global_step, self._start_ns, 0, -1, -1, self._step, 0, 0, self._why_left_out())

    def _begin_next(self, ended: _Row) -> None:
        recorder = self.recorder
        recorder.step = self._step = ended.step + 1
        recorder.global_step = ended.global_step + 1 if ended.global_step >= 0 else -1
        recorder.phase = 0
        if not recorder.is_shadow:  # nobody counted forwards in a shadow step
            self._last_evals = self.num_evals
        recorder.is_shadow = shadow.is_shadow(self._step, self.shadow_one_in)
        self._start_ns, self._left_out = ended.end_ns, _SHADOW if recorder.is_shadow else 0
        self.num_evals = 0

    def _why_left_out(self) -> int:
        if not self._left_out and self.num_evals > EVAL_FACTOR * self._last_evals:
            return _EVAL
        return self._left_out

    def _write(self, row: _Row) -> None:
        self.recorder.write(_LAYOUT, *row)
        self.guard.count_row()


def clock_for(recorder: Recorder) -> StepClock:
    """The clock of `recorder`: the steps hook, the phases hook and the session share one."""
    global _clock
    if _clock is None or _clock.recorder is not recorder:
        _clock = StepClock(recorder)
    return _clock


def install(recorder: Recorder, undo: ExitStack) -> None:
    """See `base.Hook`. Raises HookUnavailable without torch."""
    from .dynamo import hide_our_code
    from .optimizers import OptimizerWatch

    if not claim("steps", undo):
        return
    clock = clock_for(recorder)
    undo.callback(_finish, clock)
    OptimizerWatch(clock).install(undo)
    hide_our_code()


def _finish(clock: StepClock) -> None:
    global _clock
    clock.recorder.is_shadow = False
    try:
        clock.work_begins()
    except Exception as error:  # noqa: BLE001
        clock.guard.failed(error)
    if _clock is clock:
        _clock = None


def _or_none(count: int | None) -> int:
    return -1 if count is None else int(count)


_clock: StepClock | None = None
