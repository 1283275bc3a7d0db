"""Did the ranks of a group call different things at one sequence number? Decided by majority, or said to be undecided.

Compared are the operation, the element type, the root, and the bytes that the operation needs to be equal on all
ranks: the input's of all_reduce, broadcast, reduce and all_gather, the output's of reduce_scatter and scatter. Splits
of all_to_all differ by design. Only operations that somebody has not finished are looked at.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any, Final

from .run import Row

_EQUAL_INPUT: Final = (
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "gather", "all_reduce_sparse",
)  # fmt: skip
_EQUAL_OUTPUT: Final = ("reduce_scatter", "reduce_scatter_tensor", "scatter")


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One group at one sequence number. said: value -> ranks; usual: the majority's value, None where there is none."""

    group_id: str
    seq: int
    what: str
    said: dict[Any, tuple[int, ...]]
    usual: Any

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that differ from the majority; none where it is undecided."""
        if self.usual is None:
            return ()
        return tuple(sorted(rank for value, ranks in self.said.items() if value != self.usual for rank in ranks))


def mismatches(rows: list[Row]) -> tuple[Mismatch, ...]:
    """The first mismatch of each group, in the order of the groups. rows: of statement `calls` of `hang.sql`."""
    calls: dict[tuple[str, int], list[tuple[Any, ...]]] = defaultdict(list)
    for group_id, seq, *call in rows:
        calls[group_id, seq].append(tuple(call))
    found: dict[str, Mismatch] = {}
    for (group_id, seq), ranks in calls.items():
        if group_id not in found and (mismatch := _compared(group_id, seq, ranks)) is not None:
            found[group_id] = mismatch
    return tuple(found.values())


def _compared(group_id: str, seq: int, calls: list[tuple[Any, ...]]) -> Mismatch | None:
    by_op = _said([(rank, op) for rank, op, *_ in calls])
    if len(by_op) > 1:
        return Mismatch(group_id, seq, "operation", by_op, _majority(by_op))
    op = calls[0][1]
    sizes = [(rank, num_in if op in _EQUAL_INPUT else num_out) for rank, _, _, num_in, num_out, _ in calls]
    is_sized = op in _EQUAL_INPUT or op in _EQUAL_OUTPUT
    for what, values in (
        ("dtype", [(call[0], call[2]) for call in calls]),
        ("bytes", sizes if is_sized else []),
        ("root", [(call[0], call[5]) for call in calls]),
    ):
        said = _said(values)
        if len(said) > 1:
            return Mismatch(group_id, seq, what, said, _majority(said))
    return None


def _said(values: list[tuple[int, Any]]) -> dict[Any, tuple[int, ...]]:
    """Ranks by what they said; those that said nothing are left out."""
    found: dict[Any, list[int]] = defaultdict(list)
    for rank, value in values:
        if value is not None:
            found[value].append(rank)
    return {value: tuple(sorted(set(ranks))) for value, ranks in found.items()}


def _majority(said: dict[Any, tuple[int, ...]]) -> Any:
    """The value of more than half of the ranks; None where there is none."""
    [(value, num)] = Counter({value: len(ranks) for value, ranks in said.items()}).most_common(1)
    return value if 2 * num > sum(map(len, said.values())) else None
