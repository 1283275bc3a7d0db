"""The sampled steps of one rank as spans, with their phases, from the records that the agent's passes give.

A step's spans are made one pass after its own row came, so that phases which were handed out later are there as well;
those of a rank's last step when it is over. At most MAX_PHASES a step, and MAX_WAITING steps: the rest is counted.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from rankscope.schema.enums import ENUMS
from rankscope.schema.raw_records import body_dtype
from rankscope.schema.ring_rows import Part

from . import ids
from .records import SPAN, STEP
from .span import Span, StepKey, Values, child_span, phase_name, phase_values, rank_span, root_span
from .wall import WallClock
from .wanted import Parent, Sampler

MAX_PHASES: Final = 256
MAX_WAITING: Final = 64
"""Sampled steps whose phases wait for the step's own row."""


class _Phase(NamedTuple):
    kind: int
    name: str
    start_ns: int
    end_ns: int


class _Step(NamedTuple):
    rank: int
    start_ns: int
    end_ns: int
    global_step: int


class StepSpans:
    """The spans of one process. clock: its own; times leave as ns since 1970."""

    def __init__(self, run_id: str, proc: int, sampler: Sampler, parent: Parent | None, clock: WallClock) -> None:
        self.num_dropped = 0
        self._run_id, self._proc, self._sampler, self._parent, self._clock = run_id, proc, sampler, parent, clock
        self._phases: dict[StepKey, dict[int, _Phase]] = {}
        self._ended: dict[StepKey, _Step] = {}
        self._fresh: dict[StepKey, _Step] = {}

    def digest(self, kind: int, incarnation: int, part: Part) -> None:
        """Take note of records of steps and spans."""
        if kind not in (STEP, SPAN) or not len(part.records):
            return
        body = part.records.view(body_dtype(kind))
        over = np.flatnonzero((body["end_ns"] > 0) & (body["step"] >= 0))
        for place in over[self._sampled(body["step"][over], incarnation)].tolist():
            key = StepKey(self._run_id, incarnation, int(body["step"][place]))
            if kind == STEP:
                self._take_step(key, body[place], part.rank)
            else:
                self._take_phase(key, int(part.numbers[place]), body[place], part)

    def take(self, is_last: bool) -> list[Span]:
        """The spans that are complete since the last call; of what ended in this very pass only with is_last."""
        if is_last:
            self._ended |= self._fresh
            self._fresh = {}
        made: list[Span] = []
        if self._clock.is_known:
            made = [span for key, step in self._ended.items() for span in self._spans(key, step)]
            self._ended = {}
        self._ended |= self._fresh
        self._fresh = {}
        return made

    def _sampled(self, steps: Any, incarnation: int) -> Any:
        known = np.unique(steps).tolist()
        takes = [step for step in known
                 if self._sampler.takes(step, StepKey(self._run_id, incarnation, step).trace_id)]  # fmt: skip
        return np.isin(steps, takes)

    def _take_step(self, key: StepKey, row: Any, rank: int | None) -> None:
        if rank is not None:
            self._fresh[key] = _Step(rank, int(row["start_ns"]), int(row["end_ns"]), int(row["global_step"]))

    def _take_phase(self, key: StepKey, number: int, row: Any, part: Part) -> None:
        if key not in self._phases and len(self._phases) >= MAX_WAITING:
            self._phases.pop(next(iter(self._phases)))
        phases = self._phases.setdefault(key, {})
        if number not in phases and len(phases) >= MAX_PHASES:
            self.num_dropped += 1
            return
        name = part.names.names.get(int(row["name"]), "")
        phases[number] = _Phase(int(row["kind"]), name, int(row["start_ns"]), int(row["end_ns"]))

    def _spans(self, key: StepKey, step: _Step) -> Iterator[Span]:
        start_ns, end_ns = self._clock.wall_ns(step.start_ns), self._clock.wall_ns(step.end_ns)
        told: Values = (("training.global_step", step.global_step),) if step.global_step >= 0 else ()
        if step.rank == 0:
            yield root_span(key, start_ns, end_ns, told, self._parent)
        yield rank_span(key, step.rank, start_ns, end_ns, told)
        for number, phase in self._phases.pop(key, {}).items():
            span_id = ids.row_id(self._run_id, "span", self._proc, number)
            yield child_span(key, step.rank, span_id, *self._phase(phase))

    def _phase(self, phase: _Phase) -> tuple[str, int, int, Values]:
        kinds = ENUMS["span_kind"]
        kind = kinds[phase.kind - 1] if 0 < phase.kind <= len(kinds) else None
        return (phase_name(kind, phase.name), self._clock.wall_ns(phase.start_ns), self._clock.wall_ns(phase.end_ns),
                phase_values(kind, phase.name))  # fmt: skip
