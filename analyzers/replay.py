"""The dependency graph of one training step, and its replay with any durations, for all steps and data ranks at once.

Operations are named (kind, number in its kind, stage). What an operation waits for: its predecessor on its stream
(compute; each kind of P2P; data-parallel communication), the compute that feeds a send, the receive that feeds a
compute, and after the last compute the chain gc, layernorm gradients, embedding gradients, reduce-scatter (unless it
overlaps with the backward), clipping, optimizer. Communication ends, on each member, one transfer after the last member
began: P2P pairs, embedding (first and last stage), clipping (everybody), data-parallel groups (all data ranks).

Source: Lin et al., Understanding Stragglers in Large Model Training Using What-if Analysis (arXiv 2505.05713), and its
published model of dependencies. Cost: one pass over the operations of a step, vectorised over steps and data ranks.
"""

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rankscope.schema.errors import NoEvidence

Times = npt.NDArray[np.float64]
"""Nanoseconds by (step, data rank)."""
FORWARD, BACKWARD, OPTIMIZER, GC = "forward-compute", "backward-compute", "optimizer", "gc"
GATHER, SCATTER, CLIP = "params-all-gather", "grads-reduce-scatter", "optimizer-clip-main-grad"
EMBEDDING, LAYERNORM = "embedding-grads-all-reduce", "layernorm-grads-all-reduce"
P2P: Final = {"forward-send": 1, "forward-recv": -1, "backward-send": -1, "backward-recv": 1}
"""Kinds, and where the peer stage is."""
OVER_DATA_RANKS: Final = (GATHER, SCATTER, CLIP)


class Op(NamedTuple):
    """One operation of the step."""

    kind: str
    number: int
    stage: int


@dataclass(frozen=True, slots=True)
class Graph:
    """deps: what each operation waits for. groups: communication that ends together. order: a topological order."""

    deps: dict[Op, list[Op]]
    groups: tuple[tuple[Op, ...], ...]
    group_of: dict[Op, int]

    def replay(self, lengths: dict[Op, Times]) -> Times:
        """The time of each step: last end of the optimizers. lengths: duration, of communication the transfer."""
        begin: dict[Op, Times] = {}
        end: dict[Op, Times] = {}
        shape = next(iter(lengths.values())).shape
        for op in self._order():
            waits = [end[before] for before in self.deps[op]]
            begin[op] = np.maximum.reduce(waits) if waits else np.zeros(shape)
            if op not in self.group_of:
                end[op] = begin[op] + lengths[op]
                continue
            group = self.groups[self.group_of[op]]
            if all(member in begin for member in group):
                last = last_begin(op.kind, [begin[member] for member in group])
                end |= {member: last + lengths[member] for member in group}
        steps = np.maximum.reduce([end[op] for op in self.deps if op.kind == OPTIMIZER])
        whole: Times = steps.max(axis=1)
        return whole

    def _order(self) -> list[Op]:
        """Every operation after what it waits for and, with its group, after what the other members wait for."""
        after: dict[Op, list[Op]] = {op: [] for op in self.deps}
        left = {op: len(before) for op, before in self.deps.items()}
        missing = {number: len(group) for number, group in enumerate(self.groups)}
        for op, before in self.deps.items():
            for one in before:
                after[one].append(op)
        ready, order = deque(op for op, num in left.items() if not num), list[Op]()
        while ready:
            op = ready.popleft()
            order.append(op)
            done: tuple[Op, ...] = (op,)
            if (number := self.group_of.get(op)) is not None:
                missing[number] -= 1
                done = () if missing[number] else self.groups[number]
            for finished in done:
                for follower in after[finished]:
                    left[follower] -= 1
                    if not left[follower]:
                        ready.append(follower)
        if len(order) < len(self.deps):
            raise NoEvidence("the operations wait for one another in a circle: the schedule is not understood")
        return order


def last_begin(kind: str, begins: list[Times]) -> Times:
    """When the last member of a group began; for what all data ranks do together, the last of those."""
    last: Times = np.maximum.reduce(begins)
    if kind in OVER_DATA_RANKS:
        last = np.broadcast_to(last.max(axis=1, keepdims=True), last.shape)
    return last


class _Stage:
    """The operations of one stage in the order of their begins, as the step `begin`, `end` shows it."""

    def __init__(self, ops: list[Op], begin: dict[Op, float], end: dict[Op, float]) -> None:
        self.ops, self.begin, self.end = sorted(ops, key=lambda op: (begin[op], op.number, op.kind)), begin, end
        self.compute = self.of(FORWARD, BACKWARD)

    def of(self, *kinds: str) -> list[Op]:
        return [op for op in self.ops if op.kind in kinds]


def build(
    ops: list[Op], chunks: dict[Op, int | None], begin: dict[Op, float], end: dict[Op, float], num_data_ranks: int
) -> Graph:
    """The graph of the step that `begin` and `end` show. Raises NoEvidence where operations do not fit a schedule."""
    stages = {op.stage for op in ops}
    if stages != set(range(len(stages))) or not any(op.kind == OPTIMIZER for op in ops):
        raise NoEvidence("the operations do not tell every stage and its optimizer")
    deps: dict[Op, list[Op]] = {op: [] for op in ops}
    by_stage = [_Stage([op for op in ops if op.stage == stage], begin, end) for stage in range(len(stages))]
    pairs = dict[Op, Op]()
    for number, stage in enumerate(by_stage):
        if not stage.of(FORWARD) or not stage.of(BACKWARD):
            raise NoEvidence(f"stage {number} has no forward or no backward")
        for stream in (stage.compute, *(stage.of(kind) for kind in P2P), stage.of(GATHER, SCATTER)):
            _chain(deps, stream)
        _p2p(deps, stage, number, len(stages), chunks, pairs)
        _first_backward(deps, stage)
        _gather(deps, stage, chunks)
        _after_compute(deps, stage, is_data_parallel=num_data_ranks > 1)
    groups = _groups(ops, pairs)
    return Graph(deps, groups, {op: number for number, group in enumerate(groups) for op in group})


def _chain(deps: dict[Op, list[Op]], ops: list[Op]) -> None:
    for before, op in pairwise(ops):
        deps[op].append(before)


def _p2p(
    deps: dict[Op, list[Op]], stage: _Stage, number: int, num_stages: int, chunks: dict[Op, int | None],
    pairs: dict[Op, Op],
) -> None:  # fmt: skip
    """A send waits for its compute; a compute for its receive, which was posted when the compute before had ended."""
    last_chunk = max((chunks[op] or 0 for op in stage.compute), default=0)
    for kind, toward in P2P.items():
        compute = sorted(stage.of(FORWARD if kind.startswith("forward") else BACKWARD), key=lambda op: op.number)
        place = {op: (chunks[op] or 0) * num_stages + number + toward for op in compute}
        linked = [op for op in compute if 0 <= place[op] < (last_chunk + 1) * num_stages]
        messages = stage.of(kind)
        if len(messages) != len(linked):
            raise NoEvidence(f"stage {number}: {len(messages)} {kind} for {len(linked)} micro-batches")
        for index, (message, op) in enumerate(zip(messages, linked, strict=True)):
            peer = kind.replace("send", "recv") if kind.endswith("send") else kind.replace("recv", "send")
            pairs[message] = Op(peer, index, (number + toward) % num_stages)
            if kind.endswith("send"):
                deps[message].append(op)
                continue
            deps[op].append(message)
            if op.number > 0:
                deps[message].append(compute[op.number - 1])


def _first_backward(deps: dict[Op, list[Op]], stage: _Stage) -> None:
    """The first backward messages are posted while the last forward before the first backward still runs."""
    first = next(index for index, op in enumerate(stage.compute) if op.kind == BACKWARD)
    if first < 2:
        return
    for kind in ("backward-recv", "backward-send"):
        for message in stage.of(kind)[:1]:
            deps[message].append(stage.compute[first - 2])


def _gather(deps: dict[Op, list[Op]], stage: _Stage, chunks: dict[Op, int | None]) -> None:
    """The first forward of a chunk waits for the last gathering of its parameters."""
    gathers = {chunks[op] or 0: op for op in sorted(stage.of(GATHER), key=lambda op: op.number)}
    for chunk, gather in gathers.items():
        forwards = [op for op in stage.of(FORWARD) if (chunks[op] or 0) == chunk]
        if forwards:
            deps[forwards[0]].append(gather)


def _after_compute(deps: dict[Op, list[Op]], stage: _Stage, *, is_data_parallel: bool) -> None:
    last = max(stage.compute, key=lambda op: stage.end[op])
    scatters = sorted(stage.of(SCATTER), key=lambda op: op.number) if is_data_parallel else []
    is_overlapped = bool(scatters) and stage.begin[scatters[0]] < stage.begin[last]
    if is_overlapped:
        deps[scatters[-1]].append(last)
    chain = [last, *stage.of(GC), *stage.of(LAYERNORM), *stage.of(EMBEDDING), *([] if is_overlapped else scatters),
             *stage.of(CLIP), *stage.of(OPTIMIZER)]  # fmt: skip
    _chain(deps, chain)
    if is_overlapped and len(chain) > 1:
        deps[next(op for op in chain if op.kind in (LAYERNORM, EMBEDDING, CLIP, OPTIMIZER))].append(scatters[-1])


def _groups(ops: list[Op], pairs: dict[Op, Op]) -> tuple[tuple[Op, ...], ...]:
    """Communication that ends together. Layernorm gradients stay in tensor-parallel groups, which are not seen."""
    for op, peer in pairs.items():
        if pairs.get(peer) != op:
            raise NoEvidence(f"{op.kind} {op.number} of stage {op.stage} has no other end")
    found = {tuple(sorted((op, peer))) for op, peer in pairs.items()}
    for kind in (EMBEDDING, CLIP):
        numbers = {op.number for op in ops if op.kind == kind}
        found |= {tuple(sorted(op for op in ops if op.kind == kind and op.number == number)) for number in numbers}
    found |= {(op,) for op in ops if op.kind in (GATHER, SCATTER)}
    return tuple(sorted(found))
