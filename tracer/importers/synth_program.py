"""What a rank of a synthetic run does in a step, in words: its operations in order, the same in every step.

A step draws data and broadcasts it, computes its micro-batches forward and backward (one forward, one backward; with a
pipeline in the order of 1F1B), exchanges parameters and activations on the way, reduces gradients asynchronously in the
last backward, waits for these, and ends with an operation of all ranks and the optimizer.
"""

from dataclasses import dataclass, field
from typing import Final, Literal

from .synth_plan import Plan

Dimension = Literal["dp", "tp", "pp", "world"]
DIMENSIONS: Final[tuple[Dimension, ...]] = ("tp", "dp", "pp", "world")
FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of operation. transfer_ns: of an undisturbed one; toward: the stage that it sends to or receives from."""

    op: str
    dimension: Dimension
    role: str | None
    phase: str
    bytes_in: int
    bytes_out: int
    transfer_ns: float
    is_async: bool = False
    reduce_op: str | None = None
    toward: int = 0


def _p2p(op: str, role: str, phase: str, toward: int) -> Kind:
    return Kind(op, "pp", role, phase, 2_097_152, 2_097_152, 60_000.0, toward=toward)


BATCH: Final = Kind("broadcast", "dp", None, "data", 65_536, 65_536, 50_000.0)
TENSOR: Final = {
    phase: Kind("all_reduce", "tp", None, phase, 8_388_608, 8_388_608, 80_000.0, reduce_op="sum")
    for phase in (FORWARD, BACKWARD)
}  # fmt: skip
GATHER: Final = Kind("all_gather_into_tensor", "dp", "parameters", FORWARD, 1_048_576, 8_388_608, 250_000.0)
SCATTER: Final = Kind("reduce_scatter_tensor", "dp", "gradients", BACKWARD, 8_388_608, 1_048_576, 250_000.0,
                      is_async=True, reduce_op="avg")  # fmt: skip
NORM: Final = Kind("all_reduce", "world", "other", "optimizer", 4, 4, 100_000.0, reduce_op="sum")
SEND: Final = {FORWARD: _p2p("send", "activations", FORWARD, 1), BACKWARD: _p2p("send", "gradients", BACKWARD, -1)}
RECEIVE: Final = {FORWARD: _p2p("recv", "activations", FORWARD, -1), BACKWARD: _p2p("recv", "gradients", BACKWARD, 1)}


@dataclass(frozen=True, slots=True)
class Task:
    """One micro-batch of one stage, forward or backward. inner: operations inside it, in order."""

    phase: str
    microbatch: int
    inner: tuple[Kind, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A step of every stage. before, after: operations of all stages at the begin and the end of the step."""

    before: tuple[Kind, ...]
    tasks: tuple[tuple[Task, ...], ...]
    after: tuple[Kind, ...]


@dataclass(slots=True)
class Slots:
    """The operations of one stage in the order of issue, as they turned up in the first step."""

    kinds: list[Kind] = field(default_factory=list)
    microbatches: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.kinds)


def program(plan: Plan) -> Program:
    """The program of `plan`, with at most plan.collectives operations of a rank in a step."""
    rest = plan.collectives - (plan.least_collectives - 1)
    after: tuple[Kind, ...] = (NORM,) if rest >= 2 or plan.dp == plan.tp == 1 else ()
    before = (BATCH,) if rest >= 8 and plan.dp > 1 else ()
    rest -= len(after) + len(before)
    num_tensor = 0 if plan.tp == 1 else rest // 2 if plan.dp > 1 else rest
    num_data = rest - num_tensor if plan.dp > 1 else 0
    after = after * (1 + rest - num_tensor - num_data)
    shares = _shared(num_tensor, 2 * plan.microbatches)
    tasks = tuple(tuple(_tasks(plan, stage, shares, num_data)) for stage in range(plan.pp))
    return Program(before, tasks, after)


def one_forward_one_backward(stage: int, num_stages: int, num: int) -> list[tuple[str, int]]:
    """The order of a stage's micro-batches: stage 0 of 2 with three is F0 F1 B0 F2 B1 B2."""
    ahead = min(num_stages - stage - 1, num)
    order = [(FORWARD, i) for i in range(ahead)]
    for i in range(num - ahead):
        order += [(FORWARD, ahead + i), (BACKWARD, i)]
    return order + [(BACKWARD, i) for i in range(num - ahead, num)]


def _tasks(plan: Plan, stage: int, shares: list[int], num_data: int) -> list[Task]:
    found = []
    for phase, microbatch in one_forward_one_backward(stage, plan.pp, plan.microbatches):
        inner = [TENSOR[phase]] * shares[2 * microbatch + (phase == BACKWARD)]
        if phase == FORWARD and microbatch == 0:
            inner = _interleaved(inner, [GATHER] * (num_data // 2))
        if phase == BACKWARD and microbatch == plan.microbatches - 1:
            inner = _interleaved(inner, [SCATTER] * (num_data - num_data // 2))
        found.append(Task(phase, microbatch, tuple(inner)))
    return found


def _shared(number: int, parts: int) -> list[int]:
    return [number // parts + (i < number % parts) for i in range(parts)]


def _interleaved(first: list[Kind], second: list[Kind]) -> list[Kind]:
    at = [((i + 0.5) / len(items), order, kind) for order, items in enumerate((first, second))
          for i, kind in enumerate(items)]  # fmt: skip
    return [kind for _, _, kind in sorted(at, key=lambda item: item[:2])]
