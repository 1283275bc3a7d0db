"""What the mounted file systems did while the run was sampled: bytes, operations, latency as the kernel saw it.

NFS: what went over the wire, and the client's time per operation; Lustre: the client's counters; local: those of the
block device, so everything on it counts, and not the job alone. What the page cache answered is in none of them.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from rankscope.schema.measurement import Measurement

from .evidence import Evidence
from .run import Row, Run
from .statements import statement

ANALYZER: Final = "storage"
_ONE_READING: Final = "only one reading: a difference needs two"


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount of one node. latency: mean over all operations; most_latency_ns: the highest mean between readings.

    series: bytes a second in equal parts of the sampled time.
    """

    node: str
    mount: str
    kind: str
    read: Measurement
    written: Measurement
    latency: Measurement
    num_operations: int | None
    most_latency_ns: int | None
    series: tuple[int, ...]

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        return (self.read, self.written, self.latency)


@dataclass(frozen=True, slots=True)
class Storage:
    """The answer, by node and most bytes first. Empty where no mount was sampled."""

    mounts: tuple[Mount, ...]

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        return tuple(item for mount in self.mounts for item in mount.measurements)


def storage(run: Run, coverage: float | None = None) -> Storage:
    """The mounts of all nodes of `run`."""
    told = Evidence(run, ANALYZER, statement(ANALYZER, "mounts"), ("mount_sample",), coverage)
    series: dict[tuple[str, str], list[int]] = defaultdict(list)
    for node, mount, _, speed in run.rows(statement(ANALYZER, "series")):
        series[node, mount].append(speed)
    found = [_mount(told, row, tuple(series[row[:2]])) for row in run.rows(statement(ANALYZER, "mounts"))]
    found.sort(key=lambda item: (item.node, -int(item.read.value or 0) - int(item.written.value or 0), item.mount))
    return Storage(tuple(found))


def _mount(told: Evidence, row: Row, series: tuple[int, ...]) -> Mount:
    node, mount, kind, num, read, written, operations, latency, most, why, why_no_latency = row
    scope = {"node": node, "mount": mount}
    given, taken = (
        told.measurement("storage.bytes", value, {**scope, "direction": direction}, num,
                         reason="" if value is not None else (why or _ONE_READING))
        for direction, value in (("read", read), ("written", written))
    )  # fmt: skip
    slow = told.measurement(
        "storage.latency", latency, scope, operations or 0,
        reason="" if latency is not None else (why_no_latency or _ONE_READING),
    )  # fmt: skip
    return Mount(node, mount, kind or "", given, taken, slow, operations, most, series)
