"""The limits that this process's cgroup sets, and what is used of them: version 2, version 1, or both mounted.

Where the memory or the CPUs are limited, the host's numbers say nothing about the job. A limit may stand at any level
above; the tightest holds, and usage is read at its level. In a container the path that /proc/self/cgroup tells may be
the host's, which is not visible inside: then the mount's own root is the container's group.
Memory in use is the working set (without inactive page cache, which the kernel gives back before it kills).

Sources: Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/{memory,cpuacct}.rst, scheduler/sched-bwc.rst.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from .kernel_files import read_number, read_text

_NO_LIMIT: Final = 1 << 60
"""Version 1 says "no limit" with a number near 2**63; nobody has an exabyte of memory."""


class Memory(NamedTuple):
    """A limited group's memory, in bytes. swap: None where the kernel does not say."""

    limit: int
    used: int
    swap: int | None


class Cpu(NamedTuple):
    """A limited group's CPU time. limit: in cores; used_ns: CPU time of all its processes so far."""

    limit: float
    used_ns: int


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The folders of this process's group from the leaf to the mount's root, by controller. is_v2: names differ."""

    memory: tuple[Path, ...]
    cpu: tuple[Path, ...]
    cpuacct: tuple[Path, ...]
    unified: tuple[Path, ...]

    def limited_memory(self) -> Memory | None:
        """Memory against the tightest limit; None where there is no limit."""
        found = [item for folder in self.unified if (item := _memory_v2(folder)) is not None]
        found += [item for folder in self.memory if (item := _memory_v1(folder)) is not None]
        return min(found, key=lambda item: item.limit, default=None)

    def limited_cpu(self) -> Cpu | None:
        """CPU time against the tightest limit; None where there is no limit."""
        found = [item for folder in self.unified if (item := _cpu_v2(folder)) is not None]
        found += [item for at, folder in enumerate(self.cpu) if (item := _cpu_v1(folder, self.cpuacct, at)) is not None]
        return min(found, key=lambda item: item.limit, default=None)

    def pressure(self, resource: str) -> str | None:
        """The text of the group's pressure stall information; None where it has none, or is the whole host."""
        return read_text(self.unified[0] / f"{resource}.pressure") if len(self.unified) > 1 else None


def find_cgroup(sysfs: Path, proc: Path) -> Cgroup:
    """The group of this process. Costs one file and a few looks whether a folder is there."""
    root, paths = sysfs / "fs/cgroup", _paths(proc)
    unified = root if (root / "cgroup.controllers").exists() else root / "unified"
    memory, cpu, cpuacct = (
        _levels(root / name, paths[name]) if name in paths else () for name in ("memory", "cpu", "cpuacct")
    )
    return Cgroup(memory, cpu, cpuacct, _levels(unified, paths.get("")))


def _paths(proc: Path) -> dict[str, str]:
    """Controller -> path, from lines "4:cpu,cpuacct:/docker/0123" (version 1) and "0::/" (version 2, key "")."""
    found: dict[str, str] = {}
    for line in (read_text(proc / "self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        found |= dict.fromkeys(controllers.split(","), path)
    return found


def _levels(mount: Path, path: str | None) -> tuple[Path, ...]:
    """The group's folder and those above, up to the mount; the mount alone where the path is not visible."""
    if path is None or not mount.is_dir():
        return ()
    folder = mount / path.lstrip("/")
    if ".." in folder.parts or not folder.is_dir():
        return (mount,)
    levels = [folder]
    while levels[-1] != mount:
        levels.append(levels[-1].parent)
    return tuple(levels)


def _memory_v2(folder: Path) -> Memory | None:
    limit, used = read_number(folder / "memory.max").value, read_number(folder / "memory.current").value
    if limit is None or used is None:  # "max", or the root, which has neither file
        return None
    cache = _field(folder / "memory.stat", "inactive_file") or 0
    return Memory(limit, max(0, used - cache), read_number(folder / "memory.swap.current").value)


def _memory_v1(folder: Path) -> Memory | None:
    limit = read_number(folder / "memory.limit_in_bytes").value
    used = read_number(folder / "memory.usage_in_bytes").value
    if limit is None or used is None or limit >= _NO_LIMIT:
        return None
    cache = _field(folder / "memory.stat", "total_inactive_file") or 0
    return Memory(limit, max(0, used - cache), _field(folder / "memory.stat", "total_swap"))


def _cpu_v2(folder: Path) -> Cpu | None:
    quota, _, period = (read_text(folder / "cpu.max") or "").strip().partition(" ")
    used_us = _field(folder / "cpu.stat", "usage_usec")
    if not quota.isdigit() or not period.isdigit() or used_us is None:
        return None
    return Cpu(int(quota) / int(period), used_us * 1000)


def _cpu_v1(folder: Path, accounting: tuple[Path, ...], level: int) -> Cpu | None:
    quota, period = read_number(folder / "cpu.cfs_quota_us").value, read_number(folder / "cpu.cfs_period_us").value
    if quota is None or period is None or quota <= 0:
        return None
    places = [folder, *accounting[level : level + 1]]  # mounted together (the rule), or each for itself
    used_ns = next(
        (value for place in places if (value := read_number(place / "cpuacct.usage").value) is not None), None
    )
    return None if used_ns is None else Cpu(quota / period, used_ns)


def _field(path: Path, name: str) -> int | None:
    for line in (read_text(path) or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdigit():
            return int(value)
    return None
