"""Who is who in a synthetic run: processes, groups, and the ranks of a node."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rankscope.schema.paths import hash63

from .synth_plan import Plan
from .synth_planted import places, stage_of
from .synth_program import Dimension, Slots
from .synth_steps import SpanKind
from .synth_store import Store

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Layout:
    """What all nodes' rows have in common. slots, span_kinds: by stage. records: by rank, how many ring records it has
    taken before each step, and at the end: one for each operation and span, and for the step itself.
    """

    plan: Plan
    slots: tuple[Slots, ...]
    span_kinds: tuple[tuple[SpanKind, ...], ...]
    records: Ints

    @classmethod
    def of(cls, plan: Plan, slots: Sequence[Slots], span_kinds: Sequence[Sequence[SpanKind]], store: Store) -> "Layout":
        """The layout of what was simulated."""
        num_operations = np.array([len(slots[stage_of(plan, rank)]) for rank in range(plan.ranks)])
        records = np.zeros((plan.ranks, plan.steps + 1), np.int64)
        for rank in range(plan.ranks):
            num_spans = np.count_nonzero(~np.isnan(store.span_start[rank]), axis=1)
            np.cumsum(num_operations[rank] + num_spans + 1, out=records[rank, 1:])
        return cls(plan, tuple(slots), tuple(map(tuple, span_kinds)), records)

    def num_records(self, rank: int) -> int:
        """Of the whole run."""
        return int(self.records[rank, -1])


@dataclass(frozen=True, slots=True)
class Part:
    """Neighbouring ranks of one stage and node."""

    ranks: Ints
    stage: int


def proc_of(plan: Plan, rank: int) -> int:
    """The process of a rank."""
    return hash63("synthetic", plan.seed, plan.ranks, rank)


def group_id(plan: Plan, dimension: Dimension, members: Ints) -> str:
    """The id of a group by its members."""
    return f"{hash63('synthetic', plan.seed, dimension, int(members.min()), len(members)):016x}"


def groups_of(plan: Plan, dimension: Dimension) -> list[Ints]:
    """The members of each group of a dimension, in order of their lowest rank; none where it has one member."""
    size = {"dp": plan.dp, "tp": plan.tp, "pp": plan.pp, "world": plan.ranks}[dimension]
    if size == 1:
        return []
    axis = {"pp": 0, "dp": 1, "tp": 2, "world": None}[dimension]
    grid = places(plan)
    rows = grid.reshape(1, -1) if axis is None else np.moveaxis(grid, axis, -1).reshape(-1, size)
    return [rows[i] for i in np.argsort(rows[:, 0], kind="stable")]


def parts(plan: Plan, node: int) -> list[Part]:
    """The ranks of a node, by stage."""
    ranks = np.arange(node * plan.ranks_per_node, min(plan.ranks, (node + 1) * plan.ranks_per_node))
    stages = np.array([stage_of(plan, int(rank)) for rank in ranks])
    return [Part(ranks[stages == stage], int(stage)) for stage in np.unique(stages)]
