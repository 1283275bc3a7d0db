"""The first report: the run in brief, what to know first, communication, phases and the quality of the capture."""

import re
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from rankscope.schema.measurement import Measurement, Verdict

from . import clock_rows, sampled
from .brief import Brief, brief
from .checkpoints import Checkpoints, checkpoints
from .communication import Communication, communication
from .coverage import Coverage, coverage
from .device_headlines import device_headlines
from .devices import Devices, devices
from .headline import INFO, NOTHING, UNDECIDED, Headline, worst_first
from .headlines import headlines, verdicts
from .host import Hosts, hosts
from .host_headlines import host_headlines
from .input_headlines import input_headlines
from .loading import Loading, loading
from .memory import Memory, memory
from .network import Network, network
from .numerics import Numerics, numerics
from .numerics_headlines import numerics_headlines
from .pairs import PAIRS
from .partials import gather
from .phases import Phases, phases
from .questions import FINDINGS, Finding
from .run import Run
from .storage import Storage, storage

_COST: Final = re.compile(r"; costs \d+ % of the time\.$")
"""How `stragglers` ends a sentence."""
_SOMEBODY: Final = frozenset({"straggler", "straggler_set", "stage"})
_NOBODY: Final = f"{NOTHING.capitalize()}: "
"""How one analyzer says that it found nobody; left away where another one did."""
_SAY_ALL: Final = frozenset({"hang"})
"""Commands whose own headlines say what the sections' headlines that name them would say."""


@dataclass(frozen=True, slots=True)
class Report:
    """All answers over one run."""

    address: str
    digest: str
    brief: Brief
    coverage: Coverage
    communication: Communication
    phases: Phases
    memory: Memory
    devices: Devices
    network: Network
    hosts: Hosts
    storage: Storage
    loading: Loading
    checkpoints: Checkpoints
    numerics: Numerics
    findings: tuple[Finding, ...]
    headlines: tuple[Headline, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """Every number of the report, each once: some are told by two analyzers."""
        every = (*self._of_sections, *(item for finding in self.findings for item in finding.measurements))
        return tuple({(item.name, repr(item.scope)): item for item in reversed(every)}.values())[::-1]

    @property
    def _of_sections(self) -> tuple[Measurement, ...]:
        return (
            *self.brief.measurements,
            *self.phases.measurements,
            *self.communication.measurements,
            *self.memory.measurements,
            *self.devices.measurements,
            *self.network.measurements,
            *self.hosts.measurements,
            *self.storage.measurements,
            *self.loading.measurements,
            *self.checkpoints.measurements,
            *self.numerics.measurements,
            *self.coverage.measurements,
        )

    def as_json(self) -> dict[str, Any]:
        """The form of every `--json`: run, measurements, verdicts."""
        about = self.brief.about
        run = {
            "run_id": about.run_id,
            "job_id": about.job_id,
            "address": self.address,
            "world_size": about.world_size,
            "incarnations": list(about.incarnations),
            "is_running": about.is_running,
            "dataset_digest": self.digest,
        }
        return {
            "run": run,
            "measurements": [item.as_json() for item in self.measurements],
            "verdicts": [item.as_json() for item in self.verdicts],
            "headlines": [asdict(item) for item in self.headlines],
        }


def report(run: Run) -> Report:
    """The report over `run`. Done anew if a file proves unreadable on the way, so that all numbers are of the same
    files.
    """
    return run.anew(lambda: _report(run))


def _report(run: Run) -> Report:
    gather(run, (*(item for pair in PAIRS for item in pair.partials), *sampled.partials(run),
                 *clock_rows.partials(run)))  # fmt: skip
    run.hold("step")  # most questions ask for the steps that count
    quality = coverage(run)
    share = None if quality.coverage.value is None else float(quality.coverage.value)
    short, talk, where = brief(run, share), communication(run, share), phases(run, share)
    held, gpus = memory(run, share), devices(run, share)
    nics, machines, mounts = network(run, share), hosts(run, share), storage(run, share)
    batches, saved = loading(run, share), checkpoints(run, share)
    numbers = numerics(run, share)
    asked = [question.ask(run, share) for question in FINDINGS if question.arises(run) and not question.is_slow(run)]
    findings = tuple(finding for finding in asked if finding is not None)
    said = [
        *headlines(short, quality, talk, where), *host_headlines(machines, nics), *device_headlines(gpus, held),
        *numerics_headlines(numbers), *input_headlines(batches, saved), *_not_asked(run),
    ]  # fmt: skip
    return Report(
        run.place.address, run.digest, short, quality, talk, where, held, gpus, nics, machines, mounts, batches, saved,
        numbers, findings, _gathered(said, findings), _concluded(verdicts(short, quality), findings),
    )  # fmt: skip


def _not_asked(run: Run) -> list[Headline]:
    """What the report leaves to a command, so that it stays quick."""
    slow = [question for question in FINDINGS if question.is_slow(run)]
    return [Headline(INFO, f"So large a run is not asked for its {item.name} here.", item.command or item.name)
            for item in slow]  # fmt: skip


def _gathered(said: list[Headline], findings: tuple[Finding, ...]) -> tuple[Headline, ...]:
    """All headlines, the worst first. What an analyzer looked at closely, and decided, is not said a second time, nor
    what a straggler costs where ranks meet, if a replay says what it costs the whole pipeline.
    """
    found = [item for finding in findings for item in finding.headlines]
    if any("slowdown" in part for finding in findings for item in finding.verdicts for part in item.evidence):
        found = [replace(item, text=_COST.sub(".", item.text)) for item in found]
    if any(item.kind in _SOMEBODY for finding in findings for item in finding.verdicts):
        found = [item for item in found if not item.text.startswith(_NOBODY)]
    closer = {item.command for item in found if item.confidence is None or item.confidence > UNDECIDED}
    closer &= _SAY_ALL
    return worst_first([*found, *(item for item in said if not item.command or item.command not in closer)])


def _concluded(own: tuple[Verdict, ...], findings: tuple[Finding, ...]) -> tuple[Verdict, ...]:
    """All verdicts; of two about the same ranks the one that rests on more."""
    found = [item for finding in findings for item in finding.verdicts]
    known = {(item.kind, item.ranks) for item in found}
    return (*(item for item in own if (item.kind, item.ranks) not in known), *found)
