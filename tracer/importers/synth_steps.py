"""The steps of a synthetic run, simulated in true time: who issues what when, and when it is over.

A synchronous operation ends for all members at the arrival of the last one plus its transfer, behind the operation of
its group before it; a root of a broadcast, and a sender, go on at once. Each rank sees an end a few microseconds
late. All ranks of a stage are simulated at once, as arrays of shape (data ranks, tensor ranks); times are float64
nanoseconds since the begin of the run (exact to a nanosecond for 100 days).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from .synth_plan import Plan, Straggler
from .synth_planted import AXES, Floats, delays, slow_links, stage_of
from .synth_program import BACKWARD, FORWARD, RECEIVE, SEND, Kind, Slots, Task, program

ISSUE_NS: Final = 4_000.0
"""The host's own time for issuing an operation, or coming back from one."""
SEEN_NS: Final = 3_000.0
"""Mean delay after which a rank sees an end."""
HICCUP_SHARE, HICCUP_NS = 0.002, 300_000.0
"""Share of the operations whose end one rank sees that much later, on average."""
DATA_SHARE, OPTIMIZER_SHARE = 0.04, 0.06
"""Of a step's computation; forward and backward share the rest 1 to 2."""
FIRST_STEP: Final = 3.0
"""The first step takes so many times as long: warm-up."""
TRANSFER_JITTER: Final = 0.05
_HOST_CAUSES: Final = ("compute", "gc", "checkpoint", "cpu_contention", "throttle")
NOT_THERE: Final = np.nan


@dataclass(slots=True)
class StepTimes:
    """One step; every array has the shape (stages, operations or spans, data ranks, tensor ranks).

    waits: when each rank began to wait for its asynchronous operations; what did not happen is NaN.
    """

    step: int
    issued: Floats
    completed: Floats
    waits: Floats
    span_start: Floats
    span_end: Floats
    start: Floats
    end: Floats


@dataclass(frozen=True, slots=True)
class SpanKind:
    """A span of every step of one stage. is_planted: only stragglers have it."""

    kind: str
    microbatch: int | None
    is_planted: bool = False


@dataclass(slots=True)
class _Recorded:
    """What was recorded of one step: by stage, arrays (data ranks, tensor ranks)."""

    issued: list[list[Floats]]
    completed: list[list[Floats]]
    spans: list[list[tuple[Floats, Floats]]]
    pending: list[list[Floats]] = field(default_factory=list)


class Simulation:
    """The run of a plan, step by step. slots, span_kinds: by stage, known after the first step."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.program = plan, program(plan)
        self.slots = [Slots() for _ in range(plan.pp)]
        self.span_kinds: list[list[SpanKind]] = [[] for _ in range(plan.pp)]
        self.transfers: list[float] = []
        """Transfer times of the operations of all ranks' groups, a sample."""
        self._rng = np.random.default_rng([plan.seed, 0])
        self._shape = (plan.pp, plan.dp, plan.tp)
        self._now, self._start = np.zeros(self._shape), np.zeros(self._shape)
        self._free = {"tp": np.zeros((plan.pp, plan.dp, 1)), "dp": np.zeros((plan.pp, 1, plan.tp)),
                      "world": np.zeros((1, 1, 1))}  # fmt: skip
        self._slow = slow_links(plan)
        self._stage_factor = np.ones(plan.pp)
        for item in plan.slow_stages:
            self._stage_factor[item.stage] = item.factor
        self._told = _Recorded([], [], [])

    def steps(self) -> Iterator[StepTimes]:
        """Every step in turn."""
        for step in range(self.plan.steps):
            yield self._step(step)

    def _step(self, step: int) -> StepTimes:
        stages = range(self.plan.pp)
        self._told = _Recorded([[] for _ in stages], [[] for _ in stages], [[] for _ in stages], [[] for _ in stages])
        work = self.plan.step_ns * (FIRST_STEP if step == 0 else 1.0)
        on = [item for item in self.plan.stragglers if item.is_on(step)]
        network = delays(self.plan, on, "network") / self.plan.collectives
        start = self._now.copy()
        self._load(work * DATA_SHARE, on)
        for kind in self.program.before:
            for stage in stages:
                self._broadcast(stage, kind, step)
        self._compute_tasks(work, on, network, step == 0)
        waits = self._wait()
        for kind in self.program.after:
            self._of_all(kind, network, step == 0)
        self._optimizer(work * OPTIMIZER_SHARE)
        return self._times(step, start, waits)

    def _load(self, work: float, on: list[Straggler]) -> None:
        delay = delays(self.plan, on, "data")
        for stage in range(self.plan.pp):
            begin = self._now[stage].copy()
            self._now[stage] += self._worked(stage, work, is_compute=False) + delay[stage]
            self._span(stage, "data", begin)

    def _compute_tasks(self, work: float, on: list[Straggler], network: Floats, is_first: bool) -> None:
        """All micro-batches of all stages, each as soon as what it needs has been sent."""
        share = (1 - DATA_SHARE - OPTIMIZER_SHARE) * work / self.plan.microbatches / 3
        held = {cause: delays(self.plan, on, cause) for cause in _HOST_CAUSES}
        sent: dict[tuple[str, int, int], Floats] = {}
        positions, num_left = [0] * self.plan.pp, sum(map(len, self.program.tasks))
        while num_left:
            for stage, tasks in enumerate(self.program.tasks):
                while positions[stage] < len(tasks) and self._may_run(tasks[positions[stage]], stage, sent):
                    task = tasks[positions[stage]]
                    is_begin = positions[stage] == 0
                    self._task(stage, task, share * (1 + (task.phase == BACKWARD)), sent, held if is_begin else {},
                               network, is_first)  # fmt: skip
                    positions[stage] += 1
                    num_left -= 1

    def _may_run(self, task: Task, stage: int, sent: dict[tuple[str, int, int], Floats]) -> bool:
        source = _source(task.phase, stage, self.plan.pp)
        return source is None or (task.phase, source, task.microbatch) in sent

    def _task(
        self, stage: int, task: Task, work: float, sent: dict[tuple[str, int, int], Floats],
        held: dict[str, Floats], network: Floats, is_first: bool,
    ) -> None:  # fmt: skip
        source, target = _source(task.phase, stage, self.plan.pp), _target(task.phase, stage, self.plan.pp)
        if source is not None:
            came = sent[task.phase, source, task.microbatch]
            self._receive(stage, min(stage, source), RECEIVE[task.phase], task.microbatch, came)
        begin = self._now[stage].copy()
        self._hold_up(stage, held)
        pieces = len(task.inner) + 1
        for kind in task.inner:
            self._now[stage] += self._worked(stage, work / pieces)
            self._operation(stage, kind, network, is_first, task.microbatch)
        self._now[stage] += self._worked(stage, work / pieces)
        self._span(stage, self._name(task.phase), begin, task.microbatch if self.plan.pp > 1 else None)
        if target is not None:
            sent[task.phase, stage, task.microbatch] = self._send(stage, SEND[task.phase], task.microbatch)

    def _name(self, phase: str) -> str:
        return "microbatch_forward" if phase == FORWARD and self.plan.pp > 1 else phase

    def _hold_up(self, stage: int, held: dict[str, Floats]) -> None:
        """What stragglers lose on their host, at the begin of their step's first micro-batch."""
        for cause, delay in held.items():
            planted = [item for item in self.plan.stragglers if item.cause == cause]
            if cause in ("gc", "checkpoint") and any(stage_of(self.plan, item.rank) == stage for item in planted):
                late = delay[stage] > 0
                begin = np.where(late, self._now[stage], NOT_THERE)
                self._told.spans[stage].append((begin, begin + delay[stage]))
                self._know(stage, SpanKind(cause, None, is_planted=True))
            self._now[stage] += delay[stage]

    def _operation(self, stage: int, kind: Kind, network: Floats, is_first: bool, microbatch: int = -1) -> None:
        """An operation on which all members depend, in each group of one stage."""
        arrival = self._now[stage].copy()
        axis = AXES[kind.dimension]
        transfer = self._transfer(kind, arrival.max(axis=axis, keepdims=True).shape)
        transfer = transfer * self._slow[kind.dimension][stage] + network[stage].max(axis=axis, keepdims=True)
        end = np.maximum(arrival.max(axis=axis, keepdims=True), self._free[kind.dimension][stage]) + transfer
        self._free[kind.dimension][stage] = end
        completed = end + self._seen(arrival.shape)
        self._emit(stage, kind, arrival, completed, microbatch)
        if kind.is_async:
            self._told.pending[stage].append(completed)
            self._now[stage] += ISSUE_NS
        else:
            self._now[stage] = completed + ISSUE_NS
        if is_first:
            self.transfers += transfer.ravel()[:4].tolist()

    def _of_all(self, kind: Kind, network: Floats, is_first: bool) -> None:
        arrival = self._now.copy()
        transfer = float(self._transfer(kind, (1,))[0]) * float(self._slow["world"].max()) + float(network.max())
        end = max(float(arrival.max()), float(self._free["world"].max())) + transfer
        self._free["world"][:] = end
        completed = end + self._seen(arrival.shape)
        for stage in range(self.plan.pp):
            self._emit(stage, kind, arrival[stage], completed[stage], -1)
        self._now = completed + ISSUE_NS
        if is_first:
            self.transfers.append(transfer)

    def _broadcast(self, stage: int, kind: Kind, step: int) -> None:
        """The root goes on at once: it may be done before others have begun."""
        arrival, root = self._now[stage].copy(), step % self.plan.dp
        sent = np.maximum(arrival[root : root + 1], self._free["dp"][stage])
        transfer = self._transfer(kind, sent.shape) * self._slow["dp"][stage]
        completed = np.maximum(arrival, sent) + transfer
        completed[root : root + 1] = sent + ISSUE_NS
        completed = completed + self._seen(arrival.shape)
        self._free["dp"][stage] = sent
        self._emit(stage, kind, arrival, completed, -1)
        self._now[stage] = completed + ISSUE_NS

    def _send(self, stage: int, kind: Kind, microbatch: int) -> Floats:
        begin: Floats = self._now[stage].copy()
        self._now[stage] = begin + ISSUE_NS + self._seen(begin.shape)
        self._emit(stage, kind, begin, self._now[stage].copy(), microbatch)
        return begin

    def _receive(self, stage: int, first: int, kind: Kind, microbatch: int, sent: Floats) -> None:
        """first: of the two stages."""
        begin = self._now[stage].copy()
        transfer = self._transfer(kind, begin.shape) * self._slow["pp"][first]
        completed = np.maximum(begin, sent) + transfer + self._seen(begin.shape)
        self._emit(stage, kind, begin, completed, microbatch)
        self._now[stage] = completed + ISSUE_NS

    def _wait(self) -> Floats:
        """Every rank waits for its asynchronous operations; when each began to."""
        begin = self._now.copy()
        for stage, pending in enumerate(self._told.pending):
            for completed in pending:
                self._now[stage] = np.maximum(self._now[stage], completed)
        return begin

    def _optimizer(self, work: float) -> None:
        for stage in range(self.plan.pp):
            begin = self._now[stage].copy()
            self._now[stage] += self._worked(stage, work, is_compute=False)
            self._span(stage, "optimizer", begin)

    def _worked(self, stage: int, work: float, *, is_compute: bool = True) -> Floats:
        noise = self._rng.standard_normal(self._shape[1:]) * self.plan.jitter
        factor = float(self._stage_factor[stage]) if is_compute else 1.0
        taken: Floats = work * factor * np.maximum(0.2, 1 + noise)
        return taken

    def _transfer(self, kind: Kind, shape: tuple[int, ...]) -> Floats:
        base = self.plan.transfer_ns or kind.transfer_ns
        taken: Floats = base * (1 + TRANSFER_JITTER * np.abs(self._rng.standard_normal(shape)))
        return taken

    def _seen(self, shape: tuple[int, ...]) -> Floats:
        late: Floats = self._rng.standard_exponential(shape) * SEEN_NS
        if self._rng.random() < HICCUP_SHARE:
            late.flat[self._rng.integers(late.size)] += self._rng.standard_exponential() * HICCUP_NS
        return late

    def _emit(self, stage: int, kind: Kind, issued: Floats, completed: Floats, microbatch: int) -> None:
        at = len(self._told.issued[stage])
        self._told.issued[stage].append(issued)
        self._told.completed[stage].append(completed)
        if at == len(self.slots[stage]):
            self.slots[stage].kinds.append(kind)
            self.slots[stage].microbatches.append(microbatch)

    def _span(self, stage: int, kind: str, begin: Floats, microbatch: int | None = None) -> None:
        self._told.spans[stage].append((begin, self._now[stage].copy()))
        self._know(stage, SpanKind(kind, microbatch))

    def _know(self, stage: int, kind: SpanKind) -> None:
        if len(self.span_kinds[stage]) < len(self._told.spans[stage]):
            self.span_kinds[stage].append(kind)

    def _times(self, step: int, start: Floats, waits: Floats) -> StepTimes:
        spans = self._told.spans
        return StepTimes(
            step, self._stacked(self._told.issued), self._stacked(self._told.completed), waits,
            self._stacked([[begin for begin, _ in stage] for stage in spans]),
            self._stacked([[end for _, end in stage] for stage in spans]), start, self._now.copy(),
        )  # fmt: skip

    def _stacked(self, stages: list[list[Floats]]) -> Floats:
        most = max(map(len, stages))
        found = np.full((self.plan.pp, most, *self._shape[1:]), NOT_THERE)
        for stage, arrays in enumerate(stages):
            found[stage, : len(arrays)] = arrays
        return found


def _source(phase: str, stage: int, num_stages: int) -> int | None:
    source = stage - 1 if phase == FORWARD else stage + 1
    return source if 0 <= source < num_stages else None


def _target(phase: str, stage: int, num_stages: int) -> int | None:
    target = stage + 1 if phase == FORWARD else stage - 1
    return target if 0 <= target < num_stages else None
