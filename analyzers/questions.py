"""Every question that can be asked of a run, and which measurements answer it: what `report` and `explain` go through.

A question is a function (run, coverage) -> its answer, or None where there is none. `FINDINGS` are asked by the report
beside its own sections: they tell verdicts and headlines, and each has a command that looks closer; one whose tables
have no row is not asked, so it costs nothing. A new analyzer is one line here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from rankscope.schema.errors import NoEvidence
from rankscope.schema.measurement import Measurement, Verdict

from .brief import brief
from .checkpoints import checkpoints
from .collectives import collectives
from .communication import communication
from .coverage import coverage
from .devices import devices
from .exposure import exposure
from .exposure_parts import WHOLES
from .hang import hang
from .headline import Headline
from .host import hosts
from .loading import loading
from .memory import memory
from .network import network
from .numerics import numerics
from .phases import phases
from .pipeline import pipeline
from .run import Run
from .sampled import num_sampled
from .storage import storage
from .time import times


class Answer(Protocol):
    """What every analyzer returns."""

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order in which they are printed."""
        ...


class Finding(Answer, Protocol):
    """What an analyzer returns that concludes something."""

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Its conclusions."""
        ...

    @property
    def headlines(self) -> tuple[Headline, ...]:
        """What a person should know of it first, in few sentences."""
        ...


_AnswerT_co = TypeVar("_AnswerT_co", bound=Answer, covariant=True)


@dataclass(frozen=True, slots=True)
class Question(Generic[_AnswerT_co]):
    """One analyzer. answers: its measurements' names, or what they begin with. tables: without a row in each of them
    it does not arise. most_rows: of a larger sample of the collectives the report leaves it to its command; 0: it is
    always quick. command: if that has another name.
    """

    name: str
    function: Callable[[Run, float | None], _AnswerT_co | None]
    answers: tuple[str, ...]
    tables: tuple[str, ...] = ()
    most_rows: int = 0
    command: str = ""

    def arises(self, run: Run) -> bool:
        """Every table that it needs has rows: if not, the answer is that there is nothing to tell."""
        return all(run.size(table).num_rows for table in self.tables)

    def is_slow(self, run: Run) -> bool:
        """The run is too large to ask this beside everything else."""
        return bool(self.most_rows) and num_sampled(run) > self.most_rows

    def ask(self, run: Run, share: float | None) -> _AnswerT_co | None:
        """The answer; None where the rows do not suffice for one."""
        try:
            return self.function(run, share)
        except NoEvidence:
            return None

    def may_answer(self, measurement: str) -> bool:
        """It gives measurements of that name."""
        return measurement.startswith(self.answers)


def _coverage(run: Run, _: float | None) -> Answer:
    return coverage(run)


def _clocks(run: Run, share: float | None) -> Finding | None:
    from .clocks import clocks  # loads numpy

    return clocks(run, share)


def _stragglers(run: Run, share: float | None) -> Finding | None:
    from .stragglers import stragglers  # loads numpy

    return stragglers(run, share)


def _what_if(run: Run, share: float | None) -> Finding | None:
    from .what_if import what_if  # loads numpy

    return what_if(run, share)


def _efficiency(run: Run, share: float | None) -> Answer:
    from .efficiency import efficiency  # loads numpy

    return efficiency(run, share)


SECTIONS: Final[tuple[Question[Answer], ...]] = (
    Question("coverage", _coverage, ("capture.",)),
    Question("brief", brief, ("step.", "numerics.skipped_steps")),
    Question("phases", phases, ("time.phase",)),
    Question("communication", communication, ("collective.", "time.host_wait", "ratio.host_wait")),
    Question("memory", memory, ("memory.",)),
    Question("devices", devices, ("device.", "energy.")),
    Question("network", network, ("network.",)),
    Question("host", hosts, ("host.", "process.")),
    Question("storage", storage, ("storage.",)),
    Question("loading", loading, ("data.",)),
    Question("checkpoints", checkpoints, ("checkpoint.", "recovery.")),
    Question("numerics", numerics, ("numerics.",)),
)
"""What the report has a section for."""

MANY_ROWS: Final = 5_000_000
"""Rows of the sample that comparing operation by operation takes a quarter of a minute for (5 us of CPU each): only
where single steps have more than a few hundred thousand rows."""

FINDINGS: Final[tuple[Question[Finding], ...]] = (
    Question("hang", hang, ("collective.unfinished",), ("collective", "process")),
    Question("stragglers", _stragglers, ("straggler.",), ("collective", "step")),
    Question("what_if", _what_if, ("straggler.",), ("collective", "span", "step")),
    Question(
        "collectives", collectives, ("collective.", "network.", "placement."), ("collective", "process"), MANY_ROWS
    ),
    Question("clocks", _clocks, ("clock.",), ("collective", "process")),
    Question("pipeline", pipeline, ("pipeline.",), ("span",)),
    Question("time", times, ("time.", "ratio.")),
    Question("exposure", exposure, tuple(WHOLES), ("collective",), MANY_ROWS, "time"),
)
"""What the report asks beside."""

OTHERS: Final[tuple[Question[Answer], ...]] = (
    Question("efficiency", _efficiency, ("throughput.", "efficiency.", "cost.", "energy.sample")),
)
"""What has a command of its own and no place in the report."""

QUESTIONS: Final[tuple[Question[Answer], ...]] = (*SECTIONS, *FINDINGS, *OTHERS)
