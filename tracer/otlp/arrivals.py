"""Who comes late, live: operations of groups all of whose members are on this node, matched by sequence number.

arrival = the later of its issue and the end of the group's operation before it on that rank, as the analyzers have it;
skew = last minus first arrival; a rank's lag = its mean time after the first, over the operations matched since the
last reading. Only operations after which all members go on together. Groups that span nodes are left to the analysis.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rankscope.schema.enums import code
from rankscope.schema.process_state import ProcessState
from rankscope.schema.raw_records import body_dtype
from rankscope.schema.ring_rows import Part

from .records import COLLECTIVE, group_kind

MAX_WAITING: Final = 20_000
"""Arrivals of one group that wait for the other members; the oldest are given up."""
_TOGETHER: Final = np.isin(np.arange(256), [
    code("op", name)
    for name in (
        "all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor", "all_to_all",
        "all_to_all_single", "barrier", "all_reduce_coalesced", "all_gather_coalesced",
        "all_gather_into_tensor_coalesced", "reduce_scatter_coalesced", "reduce_scatter_tensor_coalesced",
    )
])  # fmt: skip
_PEER_TO_PEER: Final = np.isin(np.arange(256), [code("op", "send"), code("op", "recv")])
Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class _Group:
    """waiting: rows of (sequence number, rank, arrival). fresh: ranks whose rows came since they were last matched."""

    size: int
    kind: str
    last: dict[int, tuple[int, int]] = field(default_factory=dict)
    fresh: set[int] = field(default_factory=set)
    waiting: list[Ints] = field(default_factory=list)


class Arrivals:
    """The groups of one run on this node."""

    def __init__(self) -> None:
        self._groups: dict[tuple[int, str], _Group] = {}
        self._lags: dict[int, list[int]] = {}

    def saw(self, state: ProcessState, rank: int, incarnation: int, part: Part) -> Iterator[tuple[str, Ints]]:
        """Records of operations of one rank. Gives what they complete: kind of group, skews in ns."""
        body = part.records.view(body_dtype(COLLECTIVE))
        numbers, done = body["group_id"], (body["completed_ns"] > 0) & ~_PEER_TO_PEER[body["op"]]
        for number in np.flatnonzero(np.bincount(numbers[done])).tolist():
            told = state.groups.get(number)
            if told is None or int(told.get("size") or 0) < 2:
                continue
            key = (incarnation, str(told["group_id"]))
            group = self._groups.setdefault(key, _Group(int(told["size"]), group_kind(state, number)))
            group.kind = group_kind(state, number)
            self._add(group, rank, body, np.flatnonzero(done & (numbers == number)))
            if len(group.fresh) == group.size:
                yield group.kind, self._match(group)
            elif sum(map(len, group.waiting)) > MAX_WAITING:
                group.waiting = [np.concatenate(group.waiting)[-MAX_WAITING // 2 :]]

    def lags(self) -> dict[int, float]:
        """Mean lag in ns by rank, over what was matched since the last call."""
        found = {rank: sum(lags) / len(lags) for rank, lags in self._lags.items() if lags}
        self._lags.clear()
        return found

    def _add(self, group: _Group, rank: int, body: npt.NDArray[Any], chosen: Ints) -> None:
        """The chosen records, in order of their numbers, which is that of their issue and so of their sequence."""
        seqs, issued, completed = (body[name][chosen].astype(np.int64) for name in ("seq", "issued_ns", "completed_ns"))
        before = group.last.get(rank, (-2, 0))
        previous_seq, previous_end = np.r_[before[0], seqs[:-1]], np.r_[before[1], completed[:-1]]
        arrivals = np.where(previous_seq == seqs - 1, np.maximum(issued, previous_end), issued)
        group.last[rank] = (int(seqs[-1]), int(completed[-1]))
        group.fresh.add(rank)
        rows = np.empty((len(seqs), 3), np.int64)
        rows[:, 0], rows[:, 1], rows[:, 2] = seqs, rank, arrivals
        together = _TOGETHER[body["op"][chosen]]
        group.waiting.append(rows if together.all() else rows[together])

    def _match(self, group: _Group) -> Ints:
        """Skews of the operations that all members have reached; they are forgotten."""
        group.fresh.clear()
        rows = np.concatenate(group.waiting)
        rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
        again = np.r_[False, (rows[1:, :2] == rows[:-1, :2]).all(axis=1)] if len(rows) else np.empty(0, np.bool_)
        rows = rows[~again] if again.any() else rows  # a row that was handed out twice
        edges = np.flatnonzero(np.diff(rows[:, 0], prepend=-1, append=-1))
        counts = np.diff(edges)
        whole = counts == group.size
        is_whole = np.repeat(whole, counts)
        group.waiting = [rows[~is_whole]]
        if not whole.any():
            return np.empty(0, np.int64)
        table = rows[is_whole].reshape(-1, group.size, 3)
        first = table[:, :, 2].min(axis=1)
        for rank in np.unique(table[:, :, 1]).tolist():
            mine = table[:, :, 2][table[:, :, 1] == rank] - first
            self._lags.setdefault(rank, []).extend(mine.tolist())
        skews: Ints = table[:, :, 2].max(axis=1) - first
        return skews
