"""Which steps are looked at operation by operation: of a large run blocks of consecutive ones, drawn evenly.

Everything that compares single operations (who was late, whose waits, which dimension) takes the same steps, and their
rows are read out of the large table once. A block's first step shows what the next one inherits.
"""

from dataclasses import dataclass, replace
from typing import Final

from .partials import Given, Partial, gather
from .run import Run
from .sampled_part import CHOICE

MAX_ROWS: Final = 2_500_000
"""Rows of collectives that are compared; more cost time (5 us each) without making a finding surer."""
MIN_BLOCKS: Final = 8
"""Blocks that are read however many rows they have, up to MOST_ROWS: a rank is called late by 20 steps or more."""
MOST_ROWS: Final = 16_000_000
"""Beyond these fewer blocks are read, down to one."""
BLOCK: Final = 4
"""Steps in a row that are read together where not all are."""
NUMBERS: Final = 64
"""The same of sequence numbers, in a run without steps."""
_CHOICE: Final = Given(CHOICE, "FROM _sample_choice")
ROWS: Final = Partial("sampled", "rows", relations=("part_sampled",), given=(_CHOICE,))
"""partial_sampled_rows: the sample of a run that is not taken whole."""


@dataclass(frozen=True, slots=True)
class Sample:
    """table: the collectives that are taken. stride: one block in how many is taken; 1: every row is.

    column: blocks are of so many consecutive values of it: steps, or sequence numbers in a run that has no steps.
    """

    table: str
    stride: int
    column: str
    block: int

    @property
    def is_told(self) -> str:
        """The condition on rows of `table` that are not there only for what the next one inherits."""
        return "true" if self.stride == 1 else f"{self.column} % {self.block} > 0"

    @property
    def chosen(self) -> str:
        """The condition on the rows of table collective that `table` has."""
        return "true" if self.stride == 1 else f"({self.column} // {self.block}) % {self.stride} = 0"

    @property
    def of_steps(self) -> "Sample":
        """The same for conditions on table step; in a run that has no steps it does not matter what they say."""
        return replace(self, column="step", block=BLOCK)

    @property
    def window(self) -> str:
        """What was taken, in words."""
        what = "steps" if self.column == "step" else "sequence numbers"
        return "" if self.stride == 1 else f"blocks of {self.block} {what}, one in {self.stride}, evenly over the run"


def num_sampled(run: Run) -> int:
    """About how many rows the sample has: more than a few MAX_ROWS only where single steps have very many."""
    return run.size("collective").num_rows // _stride(run)


def sampled(run: Run) -> Sample:
    """The sample of `run`, read once for each reading of the run: its rows stay in the connection."""
    gather(run, partials(run))
    return _chosen(run)


def partials(run: Run) -> tuple[Partial, ...]:
    """What `sampled` gathers, for who reads the run for more than that."""
    found = _chosen(run)
    if found.stride == 1:
        return ()
    run.rows(f"CREATE OR REPLACE TEMP TABLE _sample_choice AS "
             f"SELECT '{found.column}' AS named, {found.block} AS block, {found.stride} AS stride")  # fmt: skip
    return (ROWS,)


def _chosen(run: Run) -> Sample:
    stride = _stride(run)
    column, block = ("step", BLOCK) if run.size("step").num_rows else ("seq", NUMBERS)
    return Sample("collective" if stride == 1 else ROWS.table, stride, column, block)


def _stride(run: Run) -> int:
    known = run.kept.get("stride of the sample")
    if not isinstance(known, int):
        known = run.kept["stride of the sample"] = _fitting_stride(run)
    return known


def _fitting_stride(run: Run) -> int:
    num_rows = run.size("collective").num_rows
    if num_rows <= MAX_ROWS:
        return 1
    if not run.size("step").num_rows:
        return -(-num_rows // MAX_ROWS)
    ((num_steps,),) = run.rows("SELECT count(*) FROM (SELECT DISTINCT incarnation, step FROM step)")
    enough = max(1, (-(-int(num_steps) // BLOCK) - 1) // (MIN_BLOCKS - 1))
    return max(min(-(-num_rows // MAX_ROWS), enough), -(-num_rows // MOST_ROWS))
