"""The operations of a node's ranks in a window of steps, as rows of table `collective`.

A group's sequence numbers count from 0 over the whole run, those of sends and receives for each pair of ranks.
"""

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .synth_columns import known, spread, table, words
from .synth_layout import Ints, Part, group_id
from .synth_planted import places
from .synth_program import Dimension, Kind

if TYPE_CHECKING:
    from .synth_rows import NodeRows

_OVERHEAD_NS: Final = 2_000
"""From the issue of an operation until the call came back."""
_SAME: Final = {"dtype": "bfloat16", "state": "completed", "tier": "native", "timing_source": "wait"}


def operations(rows: "NodeRows", part: Part, begin: int, end: int) -> pa.Table:
    """Those of the ranks of `part` in the steps from `begin` until `end`."""
    return _Operations(rows, part, begin, end).table()


class _Operations:
    """One part and window of steps; arrays have the shape (ranks, steps, operations)."""

    def __init__(self, rows: "NodeRows", part: Part, begin: int, end: int) -> None:
        self._rows, self._part, self._begin, self._end = rows, part, begin, end
        self._plan, self._slots = rows.layout.plan, rows.layout.slots[part.stage]
        self._shape = (len(part.ranks), end - begin, len(self._slots))

    def table(self) -> pa.Table:
        columns = self._rows.key(self._part, self._begin, self._end, np.arange(self._shape[2]))
        columns |= self._identity() | self._told() | self._times()
        return table("collective", columns, int(np.prod(self._shape)))

    def _told(self) -> dict[str, Any]:
        kinds = self._slots.kinds
        found = {name: words([getattr(kind, name) for kind in kinds], self._shape)
                 for name in ("op", "reduce_op", "phase")}  # fmt: skip
        for name in ("bytes_in", "bytes_out"):
            found[name] = spread(np.array([getattr(kind, name) for kind in kinds], np.int64)[None, None], self._shape)
        found |= {name: words([word], self._shape) for name, word in _SAME.items()}
        found["is_async"] = spread(np.array([kind.is_async for kind in kinds])[None, None], self._shape)
        if self._plan.pp > 1:
            staged = [kind.role is not None for kind in kinds]
            microbatches = [i if kind.dimension == "pp" else -1
                            for kind, i in zip(kinds, self._slots.microbatches, strict=True)]  # fmt: skip
            found["role"] = words([kind.role for kind in kinds], self._shape)
            stages = [self._part.stage if is_told else -1 for is_told in staged]
            chunks = [is_told - 1 for is_told in staged]
            for name, values in (("stage", stages), ("microbatch", microbatches), ("chunk", chunks)):
                found[name] = known(spread(np.array(values, np.int32)[None, None], self._shape))
        return found

    def _identity(self) -> dict[str, Any]:
        """group_id, seq, and the ends or root of those that have any."""
        seen: Counter[tuple[str, int, bool]] = Counter()
        first = []
        for kind in self._slots.kinds:
            first.append(seen[_counter(kind)])
            seen[_counter(kind)] += 1
        per_step = [seen[_counter(kind)] for kind in self._slots.kinds]
        toward = [kind.toward for kind in self._slots.kinds]
        roots = [kind.op == "broadcast" for kind in self._slots.kinds]
        steps = np.arange(self._begin, self._end, dtype=np.int64)
        seq = steps[:, None] * np.array(per_step, np.int64) + np.array(first, np.int64)
        found = {"group_id": self._groups(), "seq": spread(seq[None], self._shape)}
        found |= self._peers(np.array(toward)) if any(toward) else {}
        return found | (self._roots(np.array(roots), steps) if any(roots) else {})

    def _groups(self) -> pa.Array:
        dimensions = [kind.dimension for kind in self._slots.kinds]
        ids: dict[str, int] = {}
        indices = np.zeros((self._shape[0], 1, self._shape[2]), np.int32)
        grid = places(self._plan)
        for i, rank in enumerate(self._part.ranks.tolist()):
            stage, data, tensor = np.unravel_index(rank, grid.shape)
            members: dict[Dimension, Ints] = {"tp": grid[stage, data], "dp": grid[stage, :, tensor],
                                              "pp": grid[:, data, tensor], "world": grid.ravel()}  # fmt: skip
            numbers = {dimension: ids.setdefault(group_id(self._plan, dimension, members[dimension]), len(ids))
                       for dimension in sorted(set(dimensions))}  # fmt: skip
            indices[i, 0] = [numbers[name] for name in dimensions]
        return pa.DictionaryArray.from_arrays(spread(indices, self._shape), pa.array(list(ids), pa.string()))

    def _peers(self, toward: Ints) -> dict[str, Any]:
        own = self._part.ranks[:, None, None]
        peer = own + toward[None, None] * (self._plan.dp * self._plan.tp)
        is_send = np.array([kind.op == "send" for kind in self._slots.kinds])[None, None]
        absent, ends = (
            toward[None, None] == 0,
            {"src": np.where(is_send, own, peer), "dst": np.where(is_send, peer, own)},
        )
        found: dict[str, Any] = {
            name: known(spread(np.where(absent, -1, values).astype(np.int32), self._shape))
            for name, values in ends.items()
        }
        found["tag"] = known(spread(np.where(absent, -1, 0).astype(np.int32), self._shape))
        return found

    def _roots(self, is_rooted: "npt.NDArray[np.bool_]", steps: Ints) -> dict[str, Any]:
        data, tensor = steps % self._plan.dp, self._part.ranks % self._plan.tp
        base = self._part.stage * self._plan.dp * self._plan.tp
        roots = base + data[None, :, None] * self._plan.tp + tensor[:, None, None]
        return {"root": known(spread(np.where(is_rooted[None, None], roots, -1).astype(np.int32), self._shape))}

    def _times(self) -> dict[str, Any]:
        """Asynchronous operations are waited for one after the other, once the backward is over."""
        store, ranks, num = self._rows.store, self._part.ranks, self._shape[2]
        issued = self._rows.stamps(store.issued[ranks, self._begin : self._end, :num]).reshape(self._shape)
        completed = self._rows.stamps(store.completed[ranks, self._begin : self._end, :num]).reshape(self._shape)
        wait_begin, wait_end = issued + _OVERHEAD_NS, completed
        is_async = np.array([kind.is_async for kind in self._slots.kinds])
        if is_async.any():
            waits = self._rows.stamps(store.waits[ranks, self._begin : self._end]).reshape(*self._shape[:2], 1)
            done = np.maximum.accumulate(completed[:, :, is_async], axis=2)
            before = np.concatenate([waits, np.maximum(waits, done[:, :, :-1])], axis=2)
            wait_begin, wait_end = wait_begin.copy(), wait_end.copy()
            wait_begin[:, :, is_async] = before
            wait_end[:, :, is_async] = np.maximum(before, completed[:, :, is_async])
        seen = wait_end if self._plan.sees_late else completed
        named = {"issued_ns": issued, "returned_ns": issued + _OVERHEAD_NS, "wait_begin_ns": wait_begin,
                 "wait_end_ns": wait_end, "completed_ns": seen}  # fmt: skip
        return {name: values.ravel() for name, values in named.items()}


def _counter(kind: Kind) -> tuple[str, int, bool]:
    """What counts its operations: the group; of sends and receives each pair of ranks and direction."""
    return kind.dimension, kind.toward, kind.op == "send"
