"""Who is who in a synthetic run: processes, groups, and the ranks of a node."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rankscope.schema.paths import hash63

from .synth_plan import Plan
from .synth_planted import places, stage_of
from .synth_program import Dimension, Slots
from .synth_steps import SpanKind

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Layout:
    """What all nodes' rows have in common. slots, span_kinds: by stage."""

    plan: Plan
    slots: tuple[Slots, ...]
    span_kinds: tuple[tuple[SpanKind, ...], ...]

    @property
    def records_per_step(self) -> int:
        """Ring records that a rank takes in a step: operations, spans, the step itself."""
        return max(map(len, self.slots)) + max(map(len, self.span_kinds)) + 1


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
