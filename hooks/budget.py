"""Whether a hook may still write rows in this step: a hook that costs too much writes fewer, and says so.

Judged every WINDOW_STEPS steps from the guard's own sampled times against the time that passed. Over the budget the
hook writes in one step of two, then of four, ... (by step number, so all ranks thin the same steps if they are equally
slow); sequence numbers are counted all the same. Shadow steps (`shadow`) have no rows either.
"""

from typing import Final

from .base import Guard, Recorder, now_ns

WINDOW_STEPS: Final = 100
MAX_SHARE: Final = 0.01
"""Of the time that passed (1-architecture: 1 % of step time over 100 steps)."""
MAX_ONE_IN: Final = 64


class Budget:
    """`allows()` at each entry; one comparison unless the step has changed."""

    __slots__ = ("_began_ns", "_calls", "_first_step", "_guard", "_is_allowed", "_recorder", "_step", "one_in")

    def __init__(self, recorder: Recorder, guard: Guard) -> None:
        self._recorder, self._guard, self.one_in = recorder, guard, 1
        self._step, self._is_allowed = recorder.step, True
        self._first_step, self._began_ns, self._calls = recorder.step, now_ns(), guard.calls

    def allows(self) -> bool:
        """Whether rows are written in the current step."""
        step = self._recorder.step
        if step != self._step:
            self._step = step
            if not 0 <= step - self._first_step < WINDOW_STEPS:
                self._judge(step)
            self._is_allowed = step % self.one_in == 0 and not self._recorder.is_shadow
        return self._is_allowed

    def _judge(self, step: int) -> None:
        now, calls = now_ns(), self._guard.calls
        elapsed, spent = now - self._began_ns, (calls - self._calls) * self._guard.mean_ns()
        self._first_step, self._began_ns, self._calls = step, now, calls
        if spent > MAX_SHARE * elapsed and self.one_in < MAX_ONE_IN:
            self.one_in *= 2
            share = f"{spent / max(1, elapsed):.1%} of the time of {WINDOW_STEPS} steps"
            why = f"took {share}: rows in 1 step of {self.one_in} from step {step}"
            self._recorder.journal("hook", hook=self._guard.hook, is_on=True, why=why)
