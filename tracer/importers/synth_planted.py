"""What is planted in a synthetic run, as arrays of shape (stages, data ranks, tensor ranks)."""

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from .synth_plan import Plan, Straggler
from .synth_program import Dimension

Floats = npt.NDArray[np.float64]

AXES: Final[dict[Dimension, int | tuple[int, ...]]] = {"tp": -1, "dp": -2, "world": (-3, -2, -1)}
"""Along which a group of that dimension lies."""


def places(plan: Plan) -> npt.NDArray[np.int64]:
    """The global rank at (stage, data rank, tensor rank)."""
    return np.arange(plan.ranks).reshape(plan.pp, plan.dp, plan.tp)


def stage_of(plan: Plan, rank: int) -> int:
    """The pipeline stage of a rank."""
    return rank // (plan.dp * plan.tp)


def delays(plan: Plan, stragglers: Iterable[Straggler], cause: str) -> Floats:
    """Nanoseconds that each rank loses by `cause`."""
    found = np.zeros(plan.ranks)
    for item in stragglers:
        found[item.rank] += item.delay_ns * (item.cause == cause)
    return found.reshape(plan.pp, plan.dp, plan.tp)


def slow_links(plan: Plan) -> dict[Dimension, Floats]:
    """How many times as long a transfer takes, by dimension; more than once where its group leaves a slow node. Of "pp"
    by the first of two neighbouring stages.
    """
    node = places(plan) // plan.ranks_per_node
    factors = np.ones(plan.num_nodes)
    for link in plan.slow_links:
        factors[link.node] = max(factors[link.node], link.factor)
    own = factors[node]
    between = np.where(node[:-1] != node[1:], np.maximum(own[:-1], own[1:]), 1.0)
    found: dict[Dimension, Floats] = {"pp": between}
    for dimension, axis in AXES.items():
        leaves = node.max(axis=axis, keepdims=True) != node.min(axis=axis, keepdims=True)
        found[dimension] = np.where(leaves, own.max(axis=axis, keepdims=True), 1.0)
    return found
