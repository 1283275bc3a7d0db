"""What the machine itself allows: RDMA ports, pressure stall information, cgroup limits, clocks, sandboxes."""

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rankscope.hooks.cgroup import find_cgroup
from rankscope.hooks.rdma import rdma_ports, read_port

from .check import FINE, LIMITED, MISSING, NOTE, Check
from .clock import read_clock
from .settings import Settings

SLOW_CLOCK_NS: Final = 500.0
"""A clock read from user space takes about 30 ns; one by system call from 200 ns on, more under some sandboxes."""
_NUM_READS: Final = 20_000
_SECCOMP: Final = {"0": "no seccomp filter", "1": "strict seccomp", "2": "a seccomp filter"}


def check_host(settings: Settings) -> Iterator[Check]:
    """RDMA, pressure, cgroup, clocks, sandbox."""
    sysfs, proc = Path(settings.sysfs), Path(settings.proc)
    yield _rdma(sysfs)
    yield _pressure(sysfs, proc)
    yield _cgroup(sysfs, proc)
    yield _clock_cost(sysfs)
    yield _clock_state()
    yield _sandbox(proc)


def _rdma(sysfs: Path) -> Check:
    ports = list(rdma_ports(sysfs))
    if not ports:
        return Check("rdma", NOTE, f"no InfiniBand or RoCE port below {sysfs}/class/infiniband",
                     "in a container, mount the host's /sys and set RANKSCOPE_SYSFS, if the host has some")  # fmt: skip
    silent = [str(row.get("nic")) for port in ports if (row := read_port(port)).get("rx_bytes") is None]
    if silent:
        return Check("rdma", LIMITED, f"{len(ports)} ports, no byte counters on {', '.join(silent)}")
    return Check("rdma", FINE, f"{len(ports)} ports, with byte counters")


def _pressure(sysfs: Path, proc: Path) -> Check:
    own = find_cgroup(sysfs, proc).pressure("cpu")
    if own is not None:
        return Check("pressure", FINE, "of this cgroup")
    try:
        (proc / "pressure/cpu").read_text()
    except OSError as error:
        return Check("pressure", MISSING, f"{proc}/pressure cannot be read ({error.strerror})",
                     "boot with psi=1 on a kernel with CONFIG_PSI")  # fmt: skip
    return Check("pressure", FINE, "of the whole host")


def _cgroup(sysfs: Path, proc: Path) -> Check:
    group = find_cgroup(sysfs, proc)
    memory, cpu = group.limited_memory(), group.limited_cpu()
    limits = [f"memory {memory.limit >> 20:,} MiB"] if memory is not None else []
    limits += [f"CPU {cpu.limit:g} cores"] if cpu is not None else []
    if not limits:
        return Check("cgroup", FINE, f"no limit: {os.cpu_count()} cores and the host's memory are what counts")
    return Check("cgroup", FINE, f"reported against the limits: {', '.join(limits)}")


def _clock_cost(sysfs: Path) -> Check:
    try:
        source = (sysfs / "devices/system/clocksource/clocksource0/current_clocksource").read_text().strip()
    except OSError:
        source = "unknown"
    cost = clock_read_ns()
    finding = f"reading it takes {cost:.0f} ns (clock source {source})"
    if cost > SLOW_CLOCK_NS:
        fix = "use a clock source that user space can read, such as tsc"
        return Check("clock", LIMITED, f"{finding}: every record costs more", fix)
    return Check("clock", FINE, finding)


def clock_read_ns() -> float:
    """Nanoseconds of one reading of the monotonic clock, the loop around it included: the best of five rounds."""
    best = float("inf")
    for _ in range(5):
        begun = time.perf_counter_ns()
        for _ in range(_NUM_READS):
            time.monotonic_ns()
        best = min(best, (time.perf_counter_ns() - begun) / _NUM_READS)
    return best


def _clock_state() -> Check:
    reading = read_clock()
    if reading.is_synchronised is None:
        return Check("clock synchronisation", NOTE, "the kernel does not say; hosts are aligned by collectives alone")
    if not reading.is_synchronised:
        return Check("clock synchronisation", LIMITED, "the kernel says that its clock is not synchronised; hosts are "
                     "aligned by collectives alone", "run chrony or another NTP client on the host")  # fmt: skip
    error = (reading.estimated_error_ns or 0) / 1e6
    return Check("clock synchronisation", FINE, f"synchronised, estimated error {error:.3g} ms")


def _sandbox(proc: Path) -> Check:
    """Stacks of a hung rank are written by the rank itself, on a signal: no ptrace is needed for anything."""
    found = [_SECCOMP.get(_status(proc, "Seccomp"), "seccomp unknown")]
    try:
        scope = Path("/proc/sys/kernel/yama/ptrace_scope").read_text().strip()
        found.append(f"ptrace_scope {scope}")
    except OSError:
        found.append("no yama")
    text = f"{', '.join(found)}; nothing here needs ptrace"
    if not hasattr(os, "pidfd_open") or not _can_watch():
        return Check("sandbox", LIMITED, f"{text}; pidfd_open is refused: deaths of ranks are seen by their locks only",
                     "allow pidfd_open in the container's seccomp profile")  # fmt: skip
    if not hasattr(signal, "SIGRTMIN"):
        return Check("sandbox", LIMITED, f"{text}; {sys.platform} has no real-time signals: no stacks of hung ranks")
    return Check("sandbox", FINE, text)


def _can_watch() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def _status(proc: Path, name: str) -> str:
    try:
        found = re.search(rf"^{name}:\s*(\S+)", (proc / "self/status").read_text(), re.MULTILINE)
    except OSError:
        return ""
    return found[1] if found else ""
