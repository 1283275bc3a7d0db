"""A run that nears its budget of bytes on this node keeps fewer steps in its large tables, and says which.

Up to half of the budget every step is kept; then 1 in 2, until half of the rest is used, then 1 in 4, and so on: the
budget is approached, the record never stops. Whole steps, by their number, so that all ranks keep the same ones and
every node's are a subset or superset of another's. A decision holds for steps that have not begun yet: the rows of one
step share it, whenever they come. Tables `step` and `metric`, and rows outside of steps, are kept always.

Without a budget (RANKSCOPE_BUDGET_BYTES) it costs one comparison per batch; with one, a filter over its rows.
"""

import math
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rankscope.schema.process_state import Row

HOOK: Final = "budget"
"""Its name in table `capture`."""
THINNED: Final = frozenset({"collective", "span", "memory", "sample_batch", "kernel"})
MAX_ONE_IN: Final = 1024


class Thinning:
    """The budget of one run on one node, in bytes; None: no limit."""

    def __init__(self, budget_bytes: int | None) -> None:
        self._budget_bytes = budget_bytes
        self.one_in, self.num_dropped = 1, 0
        self._used_bytes = 0
        self._last_step: dict[int, int] = {}
        self._schedule: dict[int, tuple[list[int], list[int]]] = {}
        self._has_news = False

    @property
    def is_limited(self) -> bool:
        """There is a budget."""
        return self._budget_bytes is not None

    @property
    def incarnation(self) -> int:
        """The latest one that has rows; 0 before."""
        return max(self._last_step, default=0)

    def weigh(self, used_bytes: int) -> None:
        """So many bytes lie on the disk now: decide how many of the steps to come are kept."""
        if self._budget_bytes is None:
            return
        self._used_bytes, one_in = used_bytes, one_in_of(used_bytes / self._budget_bytes)
        if one_in == self.one_in:
            return
        self.one_in, self._has_news = one_in, True
        for incarnation, last in self._last_step.items():
            firsts, kept = self._schedule[incarnation]
            firsts.append(last + 1)
            kept.append(one_in)

    def thin(self, table: str, incarnation: int, rows: pa.Table) -> pa.Table:
        """`rows` without those of steps that are not kept."""
        if self._budget_bytes is None or "step" not in rows.column_names or not rows.num_rows:
            return rows
        steps = rows.column("step").fill_null(-1).to_numpy()
        kept = self._kept(incarnation, steps)
        if table not in THINNED or kept.all():
            return rows
        self.num_dropped += int((~kept).sum())
        return rows.filter(pa.array(kept))

    def row(self, proc: int, now_ns: int, is_last: bool = False) -> Row | None:
        """A row for table `capture`, where there is something new to tell. proc: the agent's number."""
        if not (self._has_news or (is_last and self.num_dropped)):
            return None
        self._has_news = False
        first = self._last_step.get(self.incarnation, -1) + 1
        what = f"rows in 1 step of {self.one_in}" if self.one_in > 1 else "rows in every step again"
        share = f"{self._used_bytes:,} of {self._budget_bytes:,} bytes used"
        return {"proc": proc, "time_ns": now_ns, "hook": HOOK, "is_on": True, "num_dropped": self.num_dropped,
                "why": f"RANKSCOPE_BUDGET_BYTES: {share}: {what} from step {first}"}  # fmt: skip

    def _kept(self, incarnation: int, steps: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        if incarnation not in self._schedule:
            self._schedule[incarnation] = ([0], [self.one_in])
        self._last_step[incarnation] = max(self._last_step.get(incarnation, -1), int(steps.max()))
        firsts, one_in = self._schedule[incarnation]
        place = np.searchsorted(np.asarray(firsts), steps, side="right") - 1
        kept: npt.NDArray[np.bool_] = (steps < 0) | (steps % np.asarray(one_in)[np.maximum(place, 0)] == 0)
        return kept


def one_in_of(share: float) -> int:
    """1 step in how many is kept while `share` of the budget is used: 0.4 -> 1, 0.6 -> 2, 0.8 -> 4, 1 -> MAX_ONE_IN."""
    if share >= 1.0:
        return MAX_ONE_IN
    return int(min(2 ** math.floor(-math.log2(1.0 - share)), MAX_ONE_IN))
