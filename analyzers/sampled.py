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
"""Rows of collectives that are taken; more cost time (5 us each) without making a finding surer."""
FEW_ROWS: Final = 1_000_000
"""Enough of them where only their distribution is asked for."""
MIN_BLOCKS: Final = 8
"""Blocks that are read however many rows they have, up to MOST_ROWS: a rank is called late by 20 steps or more."""
MOST_ROWS: Final = 5_000_000
"""Where so many blocks have more rows, they are too few for that (`focus`): about MAX_ROWS are read, one block at
least."""
BLOCK: Final = 4
"""Steps in a row that are read together where not all are."""
SHORT_BLOCK: Final = 2
"""The same where only a few steps are read at all."""
NUMBERS: Final = 64
"""The same of sequence numbers, in a run without steps."""
_CHOICE: Final = Given(CHOICE, "FROM _sample_choice")
ROWS: Final = Partial("sampled", "rows", relations=("part_sampled",), given=(_CHOICE,))
"""partial_sampled_rows: the sample of a run that is not taken whole."""


@dataclass(frozen=True, slots=True)
class Sample:
    """table: has the collectives that are taken. stride: one block in how many is taken, from the one numbered `first`;
    1: every row is.

    column: blocks are of so many consecutive values of it: steps, or sequence numbers in a run that has no steps.
    is_short: the steps are too few to say who is late again and again.
    """

    table: str
    stride: int
    column: str
    block: int
    first: int = 0
    is_short: bool = False

    @property
    def is_told(self) -> str:
        """The condition on rows of `table` that are not there only for what the next one inherits."""
        return "true" if self.stride == 1 else f"{self.column} % {self.block} > 0"

    @property
    def chosen(self) -> str:
        """The condition on the rows of table collective that are taken."""
        return "true" if self.stride == 1 else f"({self.column} // {self.block}) % {self.stride} = {self.first}"

    @property
    def source(self) -> str:
        """What a statement reads them from."""
        return self.table if self.stride == 1 else f"(FROM {self.table} WHERE {self.chosen})"

    @property
    def of_steps(self) -> "Sample":
        """The same for conditions on table step; in a run that has no steps it does not matter what they say."""
        return self if self.column == "step" else replace(self, column="step", block=BLOCK)

    @property
    def window(self) -> str:
        """What was taken, in words."""
        what = "steps" if self.column == "step" else "sequence numbers"
        return "" if self.stride == 1 else f"blocks of {self.block} {what}, one in {self.stride}, evenly over the run"


def num_sampled(run: Run) -> int:
    """About how many rows the sample has: more than a few MAX_ROWS only where single steps have very many."""
    return run.size("collective").num_rows // _choice(run).stride


def sampled(run: Run) -> Sample:
    """The sample of `run`, read once for each reading of the run: its rows stay in the connection."""
    gather(run, partials(run))
    return _choice(run)


def few_sampled(run: Run) -> Sample:
    """Some of the blocks of the sample, about FEW_ROWS; of a run that is taken whole, everything."""
    whole = sampled(run)
    if whole.stride == 1 or whole.is_short:
        return whole
    times = max(1, run.size("collective").num_rows // whole.stride // FEW_ROWS)
    return replace(whole, stride=whole.stride * times, first=whole.first + whole.stride * (times // 2))


def partials(run: Run) -> tuple[Partial, ...]:
    """What `sampled` gathers, for who reads the run for more than that."""
    found = _choice(run)
    if found.stride == 1:
        return ()
    leave_choice(run, "_sample_choice", found)
    return (ROWS,)


def leave_choice(run: Run, name: str, sample: Sample) -> None:
    """Make the small table that tells a part which rows to take."""
    run.rows(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT '{sample.column}' AS named, {sample.block} AS block, "
             f"{sample.stride} AS stride, {sample.first} AS first")  # fmt: skip


def _choice(run: Run) -> Sample:
    known = run.kept.get("sample")
    if not isinstance(known, Sample):
        known = run.kept["sample"] = _chosen(run)
    return known


def _chosen(run: Run) -> Sample:
    num_rows = run.size("collective").num_rows
    wanted = max(1, -(-num_rows // MAX_ROWS))
    if not run.size("step").num_rows:
        return _every(wanted, "seq", NUMBERS)
    if wanted == 1:
        return _every(1, "step", BLOCK)
    num_steps = most_steps(run)
    stride = min(wanted, stride_of_blocks(num_steps, BLOCK, MIN_BLOCKS))
    if num_rows // stride <= MOST_ROWS:
        return replace(_every(stride, "step", BLOCK), first=stride // 2)
    stride = max(1, min(wanted, num_steps // SHORT_BLOCK))
    return replace(_every(stride, "step", SHORT_BLOCK), first=stride // 2, is_short=True)


def _every(stride: int, column: str, block: int) -> Sample:
    return Sample("collective" if stride == 1 else ROWS.table, stride, column, block)


def most_steps(run: Run) -> int:
    """Steps of the incarnation that has most."""
    [[found]] = run.rows("SELECT max(num) FROM (SELECT count(DISTINCT step) AS num FROM step GROUP BY incarnation)")
    return int(found or 0)


def stride_of_blocks(num_steps: int, block: int, least: int) -> int:
    """One block in how many leaves `least` of them, or a few more."""
    return max(1, -(-num_steps // block) // least)
