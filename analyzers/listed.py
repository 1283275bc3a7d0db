"""Single operations, rank by rank: when each arrived, how long it waited, when it was done."""

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

from .bandwidth import bus_factor
from .groups import Group, read_groups
from .matched import Matching
from .run import Row


@dataclass(frozen=True, slots=True)
class Member:
    """One rank. arrival_ns, done_ns: on the clock of rank 0's host; done_ns None where nobody had to see the end."""

    rank: int
    arrival_ns: int
    done_ns: int | None
    wait_ns: int


@dataclass(frozen=True, slots=True)
class Operation:
    """One matched operation. size_bytes: S. last_rank: the one that the others waited for, where that is beyond doubt.

    wait_ns: over all ranks. end_skew_ns: None where the members do not end together. algbw, busbw: bytes/s.
    """

    incarnation: int
    group: Group
    op: str
    seq: int
    src: int | None
    dst: int | None
    tag: int | None
    root: int | None
    step: int | None
    size_bytes: int | None
    first_arrival_ns: int
    last_arrival_ns: int
    last_rank: int | None
    transfer_ns: int
    wait_ns: int
    end_skew_ns: int | None
    algbw: int | None
    busbw: int | None
    timing_source: str
    members: tuple[Member, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain values; the group by label, id and kind."""
        document = asdict(self)
        document |= {"group": self.group.label, "group_id": self.group.group_id, "group_kind": self.group.kind}
        return document


def listed(matching: Matching, limit: int) -> tuple[Operation, ...]:
    """The `limit` operations during which most was waited, in the order of time."""
    groups = read_groups(matching.run)
    members: dict[Row, list[Member]] = defaultdict(list)
    for *key, rank, arrival, done, wait in matching.rows("listed_members", limit=limit):
        members[tuple(key)].append(Member(rank, arrival, done, wait))
    return tuple(_operation(row, groups, members[row[:5]]) for row in matching.rows("listed", limit=limit))


def _operation(row: Row, groups: dict[str | None, Group], members: list[Member]) -> Operation:
    incarnation, group_id, op, seq, _, src, dst, tag, root, step, size, moved, first, last, *rest = row
    last_rank, transfer, wait, skew, algbw, is_device = rest
    factor = bus_factor(op, size)
    busbw = None if algbw is None or factor is None else int(algbw * factor)
    return Operation(
        incarnation, groups.get(group_id) or Group.unknown(group_id), op, seq, src, dst, tag, root, step, moved, first,
        last, last_rank, transfer, wait, skew, algbw, busbw, "device" if is_device else "host", tuple(members),
    )  # fmt: skip
