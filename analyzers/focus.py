"""Whose operations are compared to find who is late: everybody's, or, in a run of giant steps, those of a few groups.

A verdict takes 20 steps. Where these have too many rows (16,384 ranks: 1.6 million a step), more steps of fewer groups
are read: the groups of the ranks that waited least for others, since whoever makes others wait does not wait. All
groups of such a rank are taken, so what it inherits is seen, too. What their other members inherit is not, so only the
suspects themselves can be called late.
"""

from dataclasses import dataclass
from typing import Final

from .communication import waited
from .groups import Group, read_groups
from .partials import Given, Partial, gather
from .profile import COLLECTIVES
from .run import Run
from .sampled import MAX_ROWS, Sample, leave_choice, most_steps, sampled, stride_of_blocks
from .sampled_part import CHOICE

MOST_SUSPECTS: Final = 16
"""Ranks that are looked at, as far as MAX_ROWS goes; the first in any case, up to MOST_TIMES as many rows."""
MOST_TIMES: Final = 4
BLOCK: Final = 7
"""Steps in a row, of which the first only shows what the next one inherits."""
MIN_BLOCKS: Final = 4
_GROUPS: Final = "sample_group"
_PROCESSES: Final = "sample_process"
"""Small tables for each part: group_id of the groups; proc of the processes that have rows of these."""
_GIVEN: Final = (
    Given(CHOICE, "FROM _focus_choice"), Given(_GROUPS, "FROM _focus_group"), Given(_PROCESSES, "FROM _focus_process"),
)  # fmt: skip
ROWS: Final = Partial("sampled", "focus", given=_GIVEN, only=_PROCESSES)
"""partial_sampled_focus: the rows of these groups in the chosen steps, what lateness reads of them."""


@dataclass(frozen=True, slots=True)
class Focus:
    """What is compared. suspects: the ranks that may be called late; None: everybody. num_groups: theirs."""

    sample: Sample
    suspects: tuple[int, ...] | None = None
    num_groups: int = 0

    @property
    def window(self) -> str:
        """What was taken, in words."""
        if self.suspects is None:
            return self.sample.window
        num = len(self.suspects)
        who = f"the {num} ranks that waited least" if num > 1 else f"rank {self.suspects[0]}, which waited least"
        return ", ".join(filter(None, [self.sample.window, f"of the {self.num_groups} groups of {who}"]))


def focus(run: Run) -> Focus:
    """The operations of `run` that are compared, read once for each reading of the run."""
    known = run.kept.get("focus")
    if not isinstance(known, Focus):
        sample = sampled(run)
        known = run.kept["focus"] = (_focused(run) if sample.is_short else None) or Focus(sample)
    return known


def forget(run: Run, compared: Focus) -> None:
    """Give back the memory of rows that were read for this alone, once they have been used."""
    if compared.suspects is not None:
        run.rows(f"DROP TABLE {ROWS.table}")


def _focused(run: Run) -> Focus | None:
    """None where no rank stands out, or none whose groups can be read."""
    stride = stride_of_blocks(most_steps(run), BLOCK, MIN_BLOCKS)
    suspects, groups = _suspects(run, stride)
    if not suspects:
        return None
    sample = Sample(ROWS.table, stride, "step", BLOCK, stride // 2)
    leave_choice(run, "_focus_choice", sample)
    run.rows("CREATE OR REPLACE TEMP TABLE _focus_group AS SELECT unnest(?::VARCHAR[]) AS group_id",
             [[group.group_id for group in groups]])  # fmt: skip
    run.rows("CREATE OR REPLACE TEMP TABLE _focus_process AS SELECT DISTINCT proc FROM process "
             "SEMI JOIN (SELECT unnest(?::INTEGER[]) AS rank) USING (rank)",
             [sorted({rank for group in groups for rank in group.members})])  # fmt: skip
    gather(run, (ROWS,))
    return Focus(sample, suspects, len(groups))


def _suspects(run: Run, stride: int) -> tuple[tuple[int, ...], list[Group]]:
    """Those who waited least by step, and their groups, as many as can be read."""
    waits = sorted((item.wait_ns / item.num_steps, item.rank) for item in waited(run)
                   if item.num_waits and item.rank is not None)  # fmt: skip
    gather(run, (COLLECTIVES,))
    sizes: dict[str, int] = dict(run.rows(f"SELECT group_id, CAST(sum(num_operations) AS BIGINT) // {stride} "
                                          f"FROM {COLLECTIVES.table} GROUP BY group_id"))  # fmt: skip
    groups = [group for group in read_groups(run).values() if len(group.members) > 1 and group.group_id in sizes]
    suspects, chosen, total = list[int](), list[Group](), 0
    for _, rank in waits[:MOST_SUSPECTS]:
        more = [group for group in groups if rank in group.members and group not in chosen]
        total += sum(sizes[group.group_id] for group in more)
        if total > (MAX_ROWS if suspects else MOST_TIMES * MAX_ROWS):
            break
        suspects.append(rank)
        chosen += more
    return tuple(suspects), chosen
