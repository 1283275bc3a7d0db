"""Whether every batch of a data loader is observed: where that costs too much of the time between batches, one in n is.

Judged every WINDOW batches: what observing one takes (median of those that were timed) against the time from batch to
batch, which is the training's step, or the loader's own time where nothing else is done. Over the budget
(RANKSCOPE_COST_BUDGET; 0: no limit) twice in a row only one batch in n is observed until the epoch ends, and its digest
is given up: that needs every batch. The next epoch begins with all of them. Example: a loop that only reads a
TensorDataset in batches of 32, 115 us each, of which observing takes 21: one in 32.

In training this hardly ever happens: 25 us are 1 % of a step of 2.5 ms. Costs one comparison a batch, and a median of a
few numbers in WINDOW.
"""

from typing import Final

from .base import TIMED_ONE_IN, Guard, now_ns
from .budget import chosen

WINDOW: Final = 8 * TIMED_ONE_IN
"""Batches that are judged together."""
STRIKES: Final = 2
"""Windows in a row over the budget: one may have met a moment in which the processor was taken away."""
MOST_ONE_IN: Final = 1024


class LoaderBudget:
    """mask: 0 while every batch is observed, else n - 1 for one in n (n a power of two)."""

    __slots__ = ("_began_ns", "_guard", "_share", "_spent", "_strikes", "mask")

    def __init__(self, guard: Guard) -> None:
        self._guard, self._share, self.mask = guard, chosen(), 0
        self._strikes, self._began_ns = 0, 0
        self._spent: list[int] = []

    def begin(self) -> None:
        """An epoch begins: all batches are observed again, until it proves too dear again."""
        if self.mask:
            self.mask, self._strikes = 0, STRIKES - 1
        self._spent.clear()
        self._began_ns = now_ns()

    def spent(self, time_ns: int) -> bool:
        """What one batch in TIMED_ONE_IN took without the loader's own time. True if from now on fewer are observed."""
        self._spent.append(time_ns)
        if self.mask or len(self._spent) * TIMED_ONE_IN < WINDOW:
            return False
        now, cost_ns = now_ns(), sorted(self._spent)[len(self._spent) // 2]
        batch_ns = max(1, (now - self._began_ns) // WINDOW)
        self._spent.clear()
        self._began_ns = now
        self._strikes = self._strikes + 1 if 0 < self._share * batch_ns < cost_ns else 0
        if self._strikes < STRIKES:
            return False
        self._thin(cost_ns, batch_ns)
        return True

    def _thin(self, cost_ns: int, batch_ns: int) -> None:
        one_in = 2
        while one_in < MOST_ONE_IN and cost_ns > one_in * self._share * (batch_ns - cost_ns) / 4:
            one_in *= 2
        self.mask = one_in - 1
        why = (f"observing every batch would cost {cost_ns / batch_ns:.1%} of the time between batches, the budget is "
               f"{self._share:.2g}: one batch in {one_in} until the epoch ends, without its digest")  # fmt: skip
        self._guard.recorder.journal("hook", hook=self._guard.hook, is_on=True, why=why)
