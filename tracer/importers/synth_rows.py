"""The rows of one node of a synthetic run, as Arrow tables in the order in which an agent would have sealed them.

Times leave true time here: every stamp is of the node's own clock.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..sealed_file import ROW_GROUP_ROWS
from .synth_clock import HostClock
from .synth_columns import joined, known, spread, table, words
from .synth_layout import Ints, Layout, Part, parts, proc_of
from .synth_operations import operations
from .synth_store import Store


class NodeRows:
    """The large tables of one node. layout, store: what all nodes have in common."""

    def __init__(self, layout: Layout, store: Store, node: int, clock: HostClock) -> None:
        self.layout, self.store, self._plan, self._clock = layout, store, layout.plan, clock
        self._parts = parts(layout.plan, node)
        self._num_ranks = sum(len(part.ranks) for part in self._parts)
        self._procs = {int(rank): proc_of(self._plan, int(rank)) for part in self._parts for rank in part.ranks}

    def collectives(self) -> Iterator[pa.Table]:
        """Row groups of table `collective`."""
        most = max(len(slots) for slots in self.layout.slots)
        for begin, end in self._windows(most):
            yield joined([operations(self, part, begin, end) for part in self._parts])

    def spans(self) -> Iterator[pa.Table]:
        """Row groups of table `span`."""
        most = max(len(kinds) for kinds in self.layout.span_kinds)
        for begin, end in self._windows(most):
            yield joined([self._spans(part, begin, end) for part in self._parts])

    def steps(self) -> Iterator[pa.Table]:
        """Row groups of table `step`."""
        for begin, end in self._windows(1):
            yield joined([self._steps(part, begin, end) for part in self._parts])

    def _windows(self, rows_per_step: int) -> Iterator[tuple[int, int]]:
        """Steps that fill a row group of all ranks of the node."""
        width = max(1, ROW_GROUP_ROWS // max(1, rows_per_step * self._num_ranks))
        for begin in range(0, self._plan.steps, width):
            yield begin, min(self._plan.steps, begin + width)

    def key(self, part: Part, begin: int, end: int, within: Ints) -> dict[str, Any]:
        """proc, rank, record and step of some rows a rank and step. within: their records since the begin of the step,
        of a shape that fits (ranks, steps, rows).
        """
        shape = (len(part.ranks), end - begin, within.shape[-1])
        procs = np.array([self._procs[int(rank)] for rank in part.ranks], np.int64)
        steps = np.arange(begin, end, dtype=np.int64)
        records = self.layout.records[part.ranks, begin:end, None] + within
        return {
            "proc": spread(procs[:, None, None], shape), "step": spread(steps[None, :, None], shape),
            "rank": spread(part.ranks.astype(np.int32)[:, None, None], shape), "record": spread(records, shape),
        }  # fmt: skip

    def stamps(self, times: npt.NDArray[np.float64]) -> Ints:
        """True time to this node's clock, flattened; NaN may turn into anything."""
        return self._clock.stamps(np.nan_to_num(times.ravel()))

    def _spans(self, part: Part, begin: int, end: int) -> pa.Table:
        kinds = self.layout.span_kinds[part.stage]
        start = self.store.span_start[part.ranks, begin:end, : len(kinds)]
        stop = self.store.span_end[part.ranks, begin:end, : len(kinds)]
        is_there = ~np.isnan(start)
        within = len(self.layout.slots[part.stage]) + np.cumsum(is_there, axis=2) - 1
        columns = self.key(part, begin, end, within) | {
            "kind": words([kind.kind for kind in kinds], start.shape),
            "start_ns": self.stamps(start), "end_ns": self.stamps(stop),
        }  # fmt: skip
        if self._plan.pp > 1:
            microbatches = np.array([-1 if kind.microbatch is None else kind.microbatch for kind in kinds], np.int32)
            columns |= {"microbatch": known(spread(microbatches[None, None], start.shape)),
                        "stage": spread(np.full((1, 1, 1), part.stage, np.int32), start.shape),
                        "chunk": spread(np.zeros((1, 1, 1), np.int32), start.shape)}  # fmt: skip
        found = table("span", columns, start.size)
        return found if is_there.all() else found.filter(pa.array(is_there.ravel()))

    def _steps(self, part: Part, begin: int, end: int) -> pa.Table:
        shape = (len(part.ranks), end - begin, 1)
        last = np.diff(self.layout.records[part.ranks, begin : end + 1], axis=1)[:, :, None] - 1
        columns = self.key(part, begin, end, last) | {
            "start_ns": self.stamps(self.store.starts[part.ranks, begin:end]),
            "end_ns": self.stamps(self.store.ends[part.ranks, begin:end]),
            "boundary": words(["optimizer"], shape), "is_skipped": np.zeros(len(part.ranks) * (end - begin), np.bool_),
        }  # fmt: skip
        return table("step", columns, len(part.ranks) * (end - begin))
