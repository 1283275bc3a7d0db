"""What the host, or the container's cgroup where it is limited, has left: CPU, memory, disk, pressure.

Utilisation of the CPUs is against the cgroup's quota where there is one, else against the host's CPUs; memory against
the tightest limit; both say in `reason` what they are not. Shares are over the time since the last reading, so the
first row has none. Costs seven small files, about 0.3 ms, and one line of /proc/stat per CPU.

Sources: proc(5) stat, meminfo, vmstat, loadavg; Documentation/accounting/psi.rst.
"""

import re
from pathlib import Path
from typing import Final, NamedTuple

from rankscope.schema.errors import HookUnavailable

from .cgroup import Cgroup, Cpu, find_cgroup
from .disks import read_disks
from .kernel_files import read_or_why, read_text
from .sampling import Row, Rows, Surroundings, with_reasons

_FIRST: Final = "a share needs two readings, this is the first"
_NOT_TOLD: Final = "the kernel does not say"
_KIB: Final = 1024
_AVERAGE: Final = re.compile(r"^some avg10=([\d.]+)", re.MULTILINE)
_RESOURCES: Final = ("cpu", "memory", "io")


class _Times(NamedTuple):
    """Clock ticks of one line of /proc/stat so far."""

    busy: int
    iowait: int
    total: int


class _Before(NamedTuple):
    """The last reading. limited: the cgroup's CPU time at time_ns."""

    time_ns: int
    cpus: dict[str, _Times]
    limited: Cpu | None


def make(surroundings: Surroundings) -> "HostSampler":
    """The sampler. Raises HookUnavailable where /proc tells nothing of the host."""
    if read_text(surroundings.proc / "stat") is None and read_text(surroundings.proc / "meminfo") is None:
        raise HookUnavailable(f"{surroundings.proc} has neither stat nor meminfo")
    return HostSampler(surroundings)


class HostSampler:
    """One row per reading."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._node, self._proc, self._sysfs = surroundings.node, surroundings.proc, surroundings.sysfs
        self._before: _Before | None = None

    def sample(self, now_ns: int) -> Rows:
        """One reading."""
        row: Row = {"node": self._node, "time_ns": now_ns}
        reasons: dict[str, str] = {}
        cgroup = find_cgroup(self._sysfs, self._proc)
        stat = read_text(self._proc / "stat") or ""
        now = _Before(now_ns, _cpu_times(stat), cgroup.limited_cpu())
        _add_cpu(row, reasons, self._before, now)
        _add_memory(row, reasons, self._proc, cgroup)
        _add_disks(row, reasons, self._proc, self._sysfs)
        _add_counters(row, reasons, self._proc, stat)
        for resource in _RESOURCES:
            column = f"{resource}_pressure_ratio"
            row[column], reasons[column] = _pressure(self._proc, cgroup, resource)
        self._before = now
        return {"host_sample": [with_reasons(row, reasons)]}


def _cpu_times(stat: str) -> dict[str, _Times]:
    """The lines "cpu" (all) and "cpu0", "cpu1", ...; guest time is already in user time."""
    found = {}
    for line in stat.splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and len(fields) >= 8:
            user, nice, system, idle, iowait, interrupts, soft, steal = map(int, fields[:8])
            busy = user + nice + system + interrupts + soft + steal
            found[name] = _Times(busy, iowait, busy + idle + iowait)
    return found


def _add_cpu(row: Row, reasons: dict[str, str], before: _Before | None, now: _Before) -> None:
    row["cpu_limit_cores"] = now.limited.limit if now.limited else None
    reasons["cpu_limit_cores"] = "no limit is set: the host's CPUs count"
    missing = _FIRST if before is None else _NOT_TOLD
    reasons |= dict.fromkeys(("cpu_utilisation_ratio", "cpu_core_utilisation_ratio", "iowait_ratio"), missing)
    if before is None:
        return
    row["cpu_utilisation_ratio"] = _share(before.cpus.get("cpu"), now.cpus.get("cpu"))
    row["iowait_ratio"] = _share(before.cpus.get("cpu"), now.cpus.get("cpu"), is_iowait=True)
    cores = sorted((name for name in now.cpus if name != "cpu"), key=lambda name: int(name[3:]))
    shares = [_share(before.cpus.get(name), now.cpus[name]) for name in cores]
    row["cpu_core_utilisation_ratio"] = shares or None
    if now.limited and before.limited and now.time_ns > before.time_ns:
        spent = now.limited.used_ns - before.limited.used_ns
        row["cpu_utilisation_ratio"] = max(0.0, spent / (now.time_ns - before.time_ns) / now.limited.limit)


def _share(before: _Times | None, now: _Times | None, is_iowait: bool = False) -> float | None:
    if before is None or now is None or now.total <= before.total:
        return None
    part = now.iowait - before.iowait if is_iowait else now.busy - before.busy
    return min(1.0, max(0.0, part / (now.total - before.total)))


def _add_memory(row: Row, reasons: dict[str, str], proc: Path, cgroup: Cgroup) -> None:
    text, why = read_or_why(proc / "meminfo")
    host = {name: int(value.split()[0]) * _KIB for name, _, value in
            (line.partition(":") for line in (text or "").splitlines()) if value.split()}  # fmt: skip
    limited = cgroup.limited_memory()
    if limited is not None and limited.limit <= host.get("MemTotal", limited.limit):
        row |= {"memory_used_bytes": limited.used, "memory_limit_bytes": limited.limit,
                "swap_used_bytes": limited.swap}  # fmt: skip
        reasons["swap_used_bytes"] = "the cgroup does not account swap"
        return
    row["memory_limit_bytes"] = host.get("MemTotal")
    row["memory_used_bytes"] = _difference(host, "MemTotal", "MemAvailable")
    row["swap_used_bytes"] = _difference(host, "SwapTotal", "SwapFree")
    reasons |= dict.fromkeys(("memory_limit_bytes", "memory_used_bytes", "swap_used_bytes"), why or _NOT_TOLD)


def _difference(values: dict[str, int], whole: str, free: str) -> int | None:
    return values[whole] - values[free] if whole in values and free in values else None


def _add_disks(row: Row, reasons: dict[str, str], proc: Path, sysfs: Path) -> None:
    disks, why = read_disks(proc, sysfs)
    columns = ("disk_read_bytes", "disk_write_bytes")
    reasons |= dict.fromkeys(columns, why or "the host shows no disk")
    if disks:
        row["disk_read_bytes"] = sum(disk.read_bytes for disk in disks.values() if disk.is_whole)
        row["disk_write_bytes"] = sum(disk.write_bytes for disk in disks.values() if disk.is_whole)


def _add_counters(row: Row, reasons: dict[str, str], proc: Path, stat: str) -> None:
    vmstat, why = read_or_why(proc / "vmstat")
    row["num_page_faults"] = _number(vmstat or "", "pgmajfault")
    reasons["num_page_faults"] = why or _NOT_TOLD
    row["num_context_switches"] = _number(stat, "ctxt")
    reasons["num_context_switches"] = _NOT_TOLD
    load, why = read_or_why(proc / "loadavg")
    row["load_1m"] = float(load.split()[0]) if load else None
    reasons["load_1m"] = why


def _number(text: str, name: str) -> int | None:
    match = re.search(rf"^{name} (\d+)$", text, re.MULTILINE)
    return int(match[1]) if match else None


def _pressure(proc: Path, cgroup: Cgroup, resource: str) -> tuple[float | None, str]:
    """The share of the last 10 s in which some task waited: the cgroup's, else the host's."""
    text = cgroup.pressure(resource)
    why = ""
    if text is None:
        text, why = read_or_why(proc / "pressure" / resource)
    match = _AVERAGE.search(text or "")
    if match is None:
        return None, why or "the kernel keeps no pressure stall information (boot it with psi=1)"
    return float(match[1]) / 100, ""
