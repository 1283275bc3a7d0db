"""The first report: the run in brief, what to know first, communication, phases and the quality of the capture."""

from dataclasses import dataclass
from typing import Any

from rankscope.schema.measurement import Measurement, Verdict

from .brief import Brief, brief
from .checkpoints import Checkpoints, checkpoints
from .communication import Communication, communication
from .coverage import Coverage, coverage
from .device_headlines import device_headlines
from .devices import Devices, devices
from .headline import Headline, worst_first
from .headlines import headlines, verdicts
from .host import Hosts, hosts
from .host_headlines import host_headlines
from .input_headlines import input_headlines
from .loading import Loading, loading
from .memory import Memory, memory
from .network import Network, network
from .numerics import Numerics, numerics
from .numerics_headlines import numerics_headlines
from .phases import Phases, phases
from .run import Run
from .storage import Storage, storage


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
    headlines: tuple[Headline, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """Every number of the report."""
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
        }


def report(run: Run) -> Report:
    """The report over `run`. Done anew if a file proves unreadable on the way, so that all numbers are of the same
    files.
    """
    before = run.faults
    found = _report(run)
    return found if run.faults == before else _report(run)


def _report(run: Run) -> Report:
    quality = coverage(run)
    share = None if quality.coverage.value is None else float(quality.coverage.value)
    short, talk, where = brief(run, share), communication(run, share), phases(run, share)
    held, gpus = memory(run, share), devices(run, share)
    nics, machines, mounts = network(run, share), hosts(run, share), storage(run, share)
    batches, saved = loading(run, share), checkpoints(run, share)
    numbers = numerics(run, share)
    said = [
        *headlines(short, quality, talk, where), *host_headlines(machines, nics), *device_headlines(gpus, held),
        *numerics_headlines(numbers), *input_headlines(batches, saved),
    ]  # fmt: skip
    return Report(
        run.place.address, run.digest, short, quality, talk, where, held, gpus, nics, machines, mounts, batches, saved,
        numbers,
        worst_first(said), verdicts(short, quality),
    )  # fmt: skip
