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
_TOGETHER: Final = tuple(
    code("op", name)
    for name in (
        "all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor", "all_to_all",
        "all_to_all_single", "barrier", "all_reduce_coalesced", "all_gather_coalesced",
        "all_gather_into_tensor_coalesced", "reduce_scatter_coalesced", "reduce_scatter_tensor_coalesced",
    )
)  # fmt: skip
_PEER_TO_PEER: Final = (code("op", "send"), code("op", "recv"))
Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class _Group:
    """waiting: rows of (sequence number, rank, arrival)."""

    size: int
    kind: str
    last: dict[int, tuple[int, int]] = field(default_factory=dict)
    waiting: Ints = field(default_factory=lambda: np.empty((0, 3), np.int64))


class Arrivals:
    """The groups of one run on this node."""

    def __init__(self) -> None:
        self._groups: dict[tuple[int, str], _Group] = {}
        self._lags: dict[int, list[int]] = {}

    def saw(self, state: ProcessState, rank: int, incarnation: int, part: Part) -> Iterator[tuple[str, Ints]]:
        """Records of operations of one rank. Gives what they complete: kind of group, skews in ns."""
        body = part.records.view(body_dtype(COLLECTIVE))
        done = body[(body["completed_ns"] > 0) & ~np.isin(body["op"], _PEER_TO_PEER)]
        for number in np.unique(done["group_id"]).tolist():
            told = state.groups.get(number)
            if told is None or int(told.get("size") or 0) < 2:
                continue
            key = (incarnation, str(told["group_id"]))
            group = self._groups.setdefault(key, _Group(int(told["size"]), group_kind(state, number)))
            group.kind = group_kind(state, number)
            self._add(group, rank, done[done["group_id"] == number])
            if len(group.last) == group.size:
                yield group.kind, self._match(group)
            elif len(group.waiting) > MAX_WAITING:
                group.waiting = group.waiting[-MAX_WAITING:]

    def lags(self) -> dict[int, float]:
        """Mean lag in ns by rank, over what was matched since the last call."""
        found = {rank: sum(lags) / len(lags) for rank, lags in self._lags.items() if lags}
        self._lags.clear()
        return found

    def _add(self, group: _Group, rank: int, body: npt.NDArray[Any]) -> None:
        order = np.argsort(body["seq"], kind="stable")
        seqs, completed = body["seq"][order].astype(np.int64), body["completed_ns"][order].astype(np.int64)
        issued = body["issued_ns"][order].astype(np.int64)
        before = group.last.get(rank, (-2, 0))
        previous_seq, previous_end = np.r_[before[0], seqs[:-1]], np.r_[before[1], completed[:-1]]
        arrivals = np.where(previous_seq == seqs - 1, np.maximum(issued, previous_end), issued)
        group.last[rank] = (int(seqs[-1]), int(completed[-1]))
        together = np.isin(body["op"][order], _TOGETHER)
        rows = np.column_stack([seqs, np.full(len(seqs), rank, np.int64), arrivals])[together]
        group.waiting = np.concatenate([group.waiting, rows])

    def _match(self, group: _Group) -> Ints:
        """Skews of the operations that all members have reached; they are forgotten."""
        rows = group.waiting[np.lexsort((group.waiting[:, 1], group.waiting[:, 0]))]
        again = np.r_[False, (rows[1:, :2] == rows[:-1, :2]).all(axis=1)] if len(rows) else np.empty(0, np.bool_)
        rows = rows[~again]  # a row that was handed out twice
        _, counts = np.unique(rows[:, 0], return_counts=True)
        whole = counts == group.size
        is_whole = np.repeat(whole, counts)
        group.waiting = rows[~is_whole][-MAX_WAITING:]
        if not whole.any():
            return np.empty(0, np.int64)
        table = rows[is_whole].reshape(-1, group.size, 3)
        first = table[:, :, 2].min(axis=1)
        for rank in np.unique(table[:, :, 1]).tolist():
            mine = table[:, :, 2][table[:, :, 1] == rank] - first
            self._lags.setdefault(rank, []).extend(mine.tolist())
        skews: Ints = table[:, :, 2].max(axis=1) - first
        return skews
