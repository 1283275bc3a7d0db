"""Whether a hook may still write rows in this step: a hook that costs too much writes fewer, and says so.

Judged every WINDOW_STEPS steps: entries a step x what an entry takes, against what a step takes. Both times are
medians, so that an entry that lost the processor, a checkpoint or a slow first step decides nothing. Over the budget
(RANKSCOPE_COST_BUDGET, a ratio of step time; 0: no limit) the hook writes in one step of two, of four, ... (by step
number: ranks that thin by different powers of two still share steps); sequence numbers are counted all the same. It
goes back to more rows when the cost has fallen well below. Either way by a factor of two a window at most.

Counting without a row costs too, and thinning cannot save that: what is left of the budget, at least LEAST_ROOM of it,
is for the rows. Example: steps of 1 ms, 4 entries of 20 us with a row and 1 us without: 10 us - 4 us leave 6 us for
rows that cost 4 x 19 us in every step, so 1 step in 16. Shadow steps (`shadow`) have no rows either.

Costs the hook 0.3 us per entry. Cannot see: what it takes to enter the hook.
"""

import os
from collections import deque
from typing import Final

from .base import Guard, Recorder, now_ns

VARIABLE: Final = "RANKSCOPE_COST_BUDGET"
DEFAULT: Final = 0.01
"""Of step time (1-architecture: 1 % of step time over 100 steps)."""
WINDOW_STEPS: Final = 100
MAX_ONE_IN: Final = 64
LEAST_ROOM: Final = 0.25
"""Share of the budget that is always for rows: a hook that is dear to enter would else write nearly none, in vain."""
CALM: Final = 0.7
"""Rows come back only if they would then take less than this share of their room, so that noise does not flip it."""
MIN_TIMES: Final = 20
"""Entries below which nothing is decided: fewer are noise."""
_KEPT_TIMES: Final = 255


class Budget:
    """`allows()` at each entry; one comparison unless the step has changed. `spent` tells it what an entry took."""

    __slots__ = (
        "_bare", "_began_ns", "_calls", "_first_step", "_guard", "_is_allowed", "_recorder", "_share", "_step",
        "_steps", "_written", "one_in",
    )  # fmt: skip

    def __init__(self, recorder: Recorder, guard: Guard) -> None:
        self._recorder, self._guard, self.one_in, self._share = recorder, guard, 1, chosen()
        self._step, self._is_allowed = recorder.step, True
        self._first_step, self._began_ns, self._calls = recorder.step, now_ns(), guard.calls
        self._written: deque[int] = deque(maxlen=_KEPT_TIMES)
        self._bare: deque[int] = deque(maxlen=_KEPT_TIMES)
        self._steps: deque[int] = deque(maxlen=WINDOW_STEPS)

    def allows(self) -> bool:
        """Whether rows are written in the current step."""
        step = self._recorder.step
        if step != self._step:
            self._turn(step)
            self._is_allowed = step % self.one_in == 0 and not self._recorder.is_shadow
        return self._is_allowed

    def spent(self, time_ns: int, has_row: bool) -> None:
        """What one entry took, the job's own time left out."""
        (self._written if has_row else self._bare).append(time_ns)

    def _turn(self, step: int) -> None:
        now, before = now_ns(), self._step
        if step > before:
            self._steps.append((now - self._began_ns) // (step - before))
        self._step, self._began_ns = step, now
        if not 0 <= step - self._first_step < WINDOW_STEPS:
            self._judge(step)

    def _judge(self, step: int) -> None:
        calls, num_steps = self._guard.calls - self._calls, step - self._first_step
        self._first_step, self._calls = step, self._guard.calls
        if self._share <= 0 or num_steps <= 0 or len(self._written) < MIN_TIMES or not self._steps:
            return
        step_ns, a_step = max(1, _median(self._steps)), calls / num_steps
        bare_ns = _median(self._bare) if self._bare else 0
        rows_ns = a_step * max(0, _median(self._written) - bare_ns)
        room_ns = max(self._share * step_ns - a_step * bare_ns, LEAST_ROOM * self._share * step_ns)
        one_in = self._next(rows_ns, room_ns)
        if one_in != self.one_in:
            self._tell(one_in, step, (rows_ns + a_step * bare_ns) / step_ns)

    def _next(self, rows_ns: float, room_ns: float) -> int:
        """rows_ns: what rows in every step take, per step; room_ns: what they may take."""
        needed = 1
        while rows_ns / needed > room_ns and needed < MAX_ONE_IN:
            needed *= 2
        if needed < self.one_in:
            return self.one_in // 2 if rows_ns / (self.one_in // 2) <= CALM * room_ns else self.one_in
        return min(needed, 2 * self.one_in)

    def _tell(self, one_in: int, step: int, share: float) -> None:
        self.one_in = one_in
        rows = f"rows in 1 step of {one_in}" if one_in > 1 else "rows in every step again"
        cost = f"rows in every step would cost {share:.1%} of step time, the budget is {self._share:.2g}"
        self._recorder.journal("hook", hook=self._guard.hook, is_on=True, why=f"{cost}: {rows} from step {step}")


def _median(values: deque[int]) -> int:
    return sorted(values)[len(values) // 2]


def chosen() -> float:
    """Ratio of the job's time that a hook may take, as the environment has it. A wrong setting counts as none (the
    tracer has said so).
    """
    try:
        ratio = float(os.environ.get(VARIABLE, "").strip() or DEFAULT)
    except ValueError:
        return DEFAULT
    return ratio if 0 <= ratio <= 1 else DEFAULT
