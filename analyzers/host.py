"""What the hosts had left, and which ranks had to wait for a CPU.

A node's CPUs and memory are against its cgroup's limits where it has some, else against the host. Pressure is the
kernel's own: share of time in which some task waited for the resource. A rank's run-queue wait is the time in which its
threads could have run but had no CPU, added up over threads, over the time it was seen. Example: seen for 10 s, one
thread that ran 4 s and waited 4 s: 0.4 of the time, and half of the time it was runnable: it is contended. Only
readings inside the counted steps are taken, so that the start of the job is not in them.

A node with too much to do makes all its ranks wait; then those are named that wait much longer than the others there,
and all of them only where none does.
"""

from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import Final

from rankscope.schema.measurement import Measurement

from .evidence import Evidence
from .run import Row, Run
from .statements import statement

ANALYZER: Final = "host"
CONTENDED_TIME: Final = 0.1
"""Run-queue wait / time from which a rank counts as contended: it loses a tenth of its time to others."""
CONTENDED_SHARE: Final = 0.25
"""And of its runnable time: sharing its CPU evenly with one other for half of that time, it would wait so much."""
STANDS_OUT: Final = 2.0
"""Times the median wait of the other ranks of its node from which a rank waits for a reason of its own."""
_RESOURCES: Final = ("cpu", "memory", "io")
_NO_SHARE: Final = "no two readings: a share needs both"


@dataclass(frozen=True, slots=True)
class HostUse:
    """One node. cpu: mean and max; pressure: mean and max per resource, in the order cpu, memory, io.

    Series are thousandths in equal parts of the sampled time.
    """

    node: str
    cpu: tuple[Measurement, ...]
    cpu_limit_cores: float | None
    iowait_ratio: float | None
    memory_used: Measurement
    memory_share: Measurement
    memory_limit_bytes: int | None
    swap_bytes: int | None
    pressure: tuple[Measurement, ...]
    cpu_series: tuple[int, ...]
    memory_series: tuple[int, ...]

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        return (*self.cpu, self.memory_used, self.memory_share, *self.pressure)


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """One rank. wait: run-queue wait / time seen; runnable_share: of the time in which it wanted to run."""

    rank: int | None
    node: str | None
    wait: Measurement
    cpu: Measurement
    runnable_share: float | None
    num_involuntary: int | None
    num_major_faults: int | None
    rss_bytes: int | None
    num_threads: int | None
    read_bytes: int | None
    write_bytes: int | None

    @property
    def is_contended(self) -> bool:
        """Others take the CPU from it, by both thresholds."""
        waited, share = self.wait.value, self.runnable_share
        return waited is not None and float(waited) >= CONTENDED_TIME and (share or 0) >= CONTENDED_SHARE


@dataclass(frozen=True, slots=True)
class Hosts:
    """The answer; both empty where nothing was sampled.

    covered_ns: how long readings were taken, of how long steps were made, on the node where that is least.
    """

    hosts: tuple[HostUse, ...]
    processes: tuple[ProcessUse, ...]
    covered_ns: tuple[int, int] | None = None

    @property
    def contended(self) -> tuple[int, ...]:
        """Ranks from which others take the CPU: of each node those that stand out, or all where none does."""
        waiting = [use for use in self.processes if use.is_contended and use.rank is not None]
        apart = [use for use in waiting if self._stands_out(use)]
        crowded = {use.node for use in waiting} - {use.node for use in apart}
        named = (*apart, *(use for use in waiting if use.node in crowded))
        return tuple(sorted(use.rank for use in named if use.rank is not None))

    def _stands_out(self, use: ProcessUse) -> bool:
        others = [
            float(other.wait.value)
            for other in self.processes
            if other.node == use.node and other is not use and other.wait.value is not None
        ]
        return bool(others) and float(use.wait.value or 0) >= STANDS_OUT * median(others)

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        by_host = [item for use in self.hosts for item in use.measurements]
        return (*by_host, *(item for use in self.processes for item in (use.wait, use.cpu)))


def hosts(run: Run, coverage: float | None = None) -> Hosts:
    """The nodes and the ranks' processes of `run`."""
    told = Evidence(run, ANALYZER, statement(ANALYZER, "hosts"), ("host_sample",), coverage)
    series: dict[str, list[Row]] = defaultdict(list)
    for row in run.rows(statement(ANALYZER, "series")):
        series[row[0]].append(row)
    by_rank = Evidence(run, ANALYZER, statement(ANALYZER, "processes"), ("process_sample", "step"), coverage,
                       window="counted steps",
                       caveats=("threads added up, so it may exceed 1",))  # fmt: skip
    return Hosts(
        tuple(_host(told, row, series[row[0]]) for row in run.rows(statement(ANALYZER, "hosts"))),
        tuple(_process(by_rank, row) for row in run.rows(statement(ANALYZER, "processes"))),
        next(((int(row[0]), int(row[1])) for row in run.rows(statement(ANALYZER, "covered"))), None),
    )


def _host(told: Evidence, row: Row, series: list[Row]) -> HostUse:
    node, num, mean_cpu, most_cpu, num_cpu, limit, iowait, memory, memory_limit, share, swap, *pressures = row
    scope = {"node": node}
    cpu = tuple(
        told.measurement("host.cpu_utilisation", value, {**scope, "statistic": statistic}, num_cpu,
                         caveats=("of the cgroup's CPU limit",) if limit is not None else (),
                         reason="" if value is not None else _NO_SHARE)
        for statistic, value in (("mean", mean_cpu), ("max", most_cpu))
    )  # fmt: skip
    no_pressure, no_memory = pressures[-2] or "the kernel does not say", pressures[-1] or "the kernel does not say"
    pressure = tuple(
        told.measurement("host.pressure", value, {**scope, "resource": resource, "statistic": statistic}, num,
                         reason="" if value is not None else no_pressure)
        for resource, pair in zip(_RESOURCES, (pressures[0:2], pressures[2:4], pressures[4:6]), strict=True)
        for statistic, value in zip(("mean", "max"), pair, strict=True)
    )  # fmt: skip
    used, of_limit = (
        told.measurement(name, value, scope, num, reason="" if value is not None else no_memory)
        for name, value in (("host.memory_used", memory), ("host.memory_share", share))
    )
    return HostUse(node, cpu, limit, iowait, used, of_limit, memory_limit, swap, pressure, _column(series, 2),
                   _column(series, 3))  # fmt: skip


def _process(told: Evidence, row: Row) -> ProcessUse:
    rank, num, seen_ns, waited_ns, cpu_ns, involuntary, faults, rss, threads, read, written, why, node = row
    wait = waited_ns / seen_ns if seen_ns and waited_ns is not None else None
    cpu = cpu_ns / seen_ns if seen_ns and cpu_ns is not None else None
    runnable = (waited_ns or 0) + (cpu_ns or 0)
    reason, scope = why or _NO_SHARE, {"rank": rank}
    return ProcessUse(
        rank, node,
        told.measurement("process.run_queue_wait", wait, scope, num, reason="" if wait is not None else reason),
        told.measurement("process.cpu", cpu, scope, num, reason="" if cpu is not None else reason),
        waited_ns / runnable if runnable and waited_ns is not None else None,
        involuntary, faults, rss, threads, read, written,
    )  # fmt: skip


def _column(series: list[Row], index: int) -> tuple[int, ...]:
    return tuple(row[index] for row in series if row[index] is not None)
