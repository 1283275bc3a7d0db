"""How many operations were issued, and how many of them have rows: the sequence numbers tell, for they count all.

A hook over its budget, a shadow step and a full ring leave operations without rows, but not without numbers. Per
process and group (sends and receives: per source, destination and tag) last - first + 1 operations were counted between
the first row and the last. Example: rows with the numbers 0, 1, 64 and 128 are 4 of 129 operations. How many of a kind
are missing is an estimate: the numbers missing before a step's rows are shared out over the kinds of that step.

Cannot see: operations before the first row and after the last, and a group that was made anew with the same members,
whose numbers begin again; both make the count of the missing too small, never too large.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from rankscope.schema.measurement import Measurement

from .evidence import Evidence
from .partials import Pair, Partial
from .profile import COLLECTIVES
from .run import Row, Run

ANALYZER: Final = "counted"
_GAPS: Final = Partial(
    ANALYZER,
    "sequences",
    relations=("part_gaps",),
    instead="collective_with_gaps",
    needs="collective_with_gaps",
)
SEQUENCES: Final = Pair(ANALYZER, "sequences", (_GAPS, COLLECTIVES))
THERE: Final = Pair(ANALYZER, "there", (COLLECTIVES,))
PAIRS: Final = (SEQUENCES, THERE)
"""Everything that this analyzer asks of the large tables."""
CAVEAT: Final = "estimated: operations without a row are taken to be like those of the steps that have rows"


@dataclass(frozen=True, slots=True)
class Counted:
    """Operations by sequence number. missing_by_proc: counted, but without a row.

    totals: (rows, operations) over all. estimates: (group_id, op) -> (operations, bytes or None), where rows miss.
    shares: group_id -> rows / operations, where rows miss.
    """

    share: Measurement
    totals: tuple[int, int]
    missing_by_proc: dict[int, int]
    estimates: dict[tuple[str | None, str | None], tuple[int, int | None]]
    shares: dict[str | None, float]


def counted(run: Run) -> Counted:
    """What the sequence numbers of `run` say."""
    sql, rows = SEQUENCES.definition, SEQUENCES.rows(run)
    by_proc: dict[int, float] = defaultdict(float)
    by_group: dict[str | None, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for proc, group_id, _, num_rows, num_missing, _ in rows:
        by_proc[proc] += num_missing
        by_group[group_id][0] += num_rows
        by_group[group_id][1] += num_missing
    present, missing = sum(row[3] for row in rows), round(sum(by_proc.values()))
    share = present / (present + missing) if present else None
    value = Evidence(run, ANALYZER, sql, ("collective",), share).measurement(
        "capture.operations", share, {}, present, reason="" if present else "no operation has a sequence number of ours"
    )
    return Counted(
        value, (present, present + missing), {proc: round(number) for proc, number in by_proc.items() if number},
        _estimates(run, rows), {group: here / (here + gone) for group, (here, gone) in by_group.items() if gone},
    )  # fmt: skip


def _estimates(run: Run, rows: list[Row]) -> dict[tuple[str | None, str | None], tuple[int, int | None]]:
    missing: dict[tuple[str | None, str | None], list[tuple[float, float | None]]] = defaultdict(list)
    for _, group_id, op, _, num_missing, missing_bytes in rows:
        missing[group_id, op].append((num_missing, missing_bytes))
    there = {
        (group_id, op): (num, size)
        for group_id, op, num, size in THERE.rows(run)
    }  # fmt: skip
    found: dict[tuple[str | None, str | None], tuple[int, int | None]] = {}
    for key, parts in missing.items():
        number = round(sum(part[0] for part in parts))
        if number:
            num, size = there[key]
            sizes = [part[1] for part in parts]
            known = [value for value in sizes if value is not None]
            is_known = size is not None and len(known) == len(sizes)
            found[key] = (num + number, int(size) + round(sum(known)) if is_known else None)
    return found
