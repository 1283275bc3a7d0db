"""What the mounted file systems did: NFS and Lustre by their own counters, local ones by their block device's.

Only counters are read, nothing of the file systems themselves: a dead file server cannot stall the agent. NFS: bytes
that went over the wire, all operations, and the client's time from issue to completion; Lustre: bytes and operations of
the client's llite layer; local: the device below the first place where it is mounted. Costs one file per kind.

Latency is the mean over the operations since the last reading; null where there were none.
Sources: nfs mountstats(8), net/sunrpc/stats.c; Lustre manual, "llite.*.stats"; Documentation/admin-guide/iostats.rst.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from rankscope.schema.errors import HookUnavailable

from .disks import read_disks
from .kernel_files import names_in, read_text
from .lustre import LLITE_FOLDERS, read_stats
from .nfs import read_mountstats
from .sampling import Row, Rows, Surroundings, with_reasons
from .storage_counts import Counts

MAX_MOUNTS: Final = 64
"""Of one kind; hosts of containers mount hundreds."""


class _Mount(NamedTuple):
    point: str
    kind: str
    counts: Counts


@dataclass(frozen=True, slots=True)
class _MountLine:
    """One line of /proc/self/mountinfo. device: "major:minor"."""

    device: str
    point: str
    kind: str
    source: str


def make(surroundings: Surroundings) -> "MountSampler":
    """The sampler. Raises HookUnavailable where /proc shows no mounts."""
    if (
        read_text(surroundings.proc / "self/mountinfo") is None
        and read_text(surroundings.proc / "self/mountstats") is None
    ):
        raise HookUnavailable(f"{surroundings.proc}/self has neither mountinfo nor mountstats")
    return MountSampler(surroundings)


class MountSampler:
    """One row per mount and reading."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._node, self._proc, self._sysfs = surroundings.node, surroundings.proc, surroundings.sysfs
        self._before: dict[str, Counts] = {}

    def sample(self, now_ns: int) -> Rows:
        """One reading of every mount that has counters."""
        lines = list(_mount_lines(self._proc))
        mounts = [*self._nfs(), *self._lustre(lines), *self._local(lines)]
        rows = [
            {"node": self._node, "time_ns": now_ns, **_row(mount, self._before.get(mount.point))} for mount in mounts
        ]
        self._before = {mount.point: mount.counts for mount in mounts}
        return {"mount_sample": rows}

    def _nfs(self) -> list[_Mount]:
        text = read_text(self._proc / "self/mountstats") or ""
        return [_Mount(point, "nfs", counts) for point, counts in read_mountstats(text)][:MAX_MOUNTS]

    def _lustre(self, lines: list[_MountLine]) -> list[_Mount]:
        found: dict[str, _Mount] = {}
        roots = {"proc": self._proc, "sys": self._sysfs}
        for root, folder in LLITE_FOLDERS:
            place = roots[root] / folder
            for name in names_in(place):
                text = read_text(place / name / "stats")
                if text is not None and name not in found:
                    found[name] = _Mount(_lustre_point(name, lines), "lustre", read_stats(text))
        return list(found.values())[:MAX_MOUNTS]

    def _local(self, lines: list[_MountLine]) -> list[_Mount]:
        disks, _ = read_disks(self._proc, self._sysfs)
        found: dict[str, _Mount] = {}
        for line in lines:
            disk = disks.get(line.device)
            if disk is not None and line.device not in found and "/loop" not in line.source:
                counts = Counts(disk.read_bytes, disk.write_bytes, disk.num_operations, disk.busy_ns)
                found[line.device] = _Mount(line.point, "local", counts)
        return list(found.values())[:MAX_MOUNTS]


def _mount_lines(proc: Path) -> Iterator[_MountLine]:
    for line in (read_text(proc / "self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) >= 5 and len(rest) >= 2:
            yield _MountLine(fields[2], _unescaped(fields[4]), rest[0], rest[1])


def _unescaped(text: str) -> str:
    r"""The kernel writes a blank as \040, a tab as \011, a newline as \012, a backslash as \134."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def _lustre_point(name: str, lines: list[_MountLine]) -> str:
    """llite folders are called <file system>-<address>; the mount's source ends with :/<file system>."""
    file_system = name.rpartition("-")[0] or name
    points = [line.point for line in lines if line.kind == "lustre" and line.source.endswith(f":/{file_system}")]
    return points[0] if points else name


def _row(mount: _Mount, before: Counts | None) -> Row:
    counts = mount.counts
    row: Row = {"mount": mount.point, "kind": mount.kind, "read_bytes": counts.read_bytes,
                "write_bytes": counts.write_bytes, "num_operations": counts.num_operations}  # fmt: skip
    row["latency_ns"], why = _latency(counts, before)
    return with_reasons(row, {
        "read_bytes": "the file system does not count it", "write_bytes": "the file system does not count it",
        "num_operations": "the file system does not count it", "latency_ns": why,
    })  # fmt: skip


def _latency(now: Counts, before: Counts | None) -> tuple[int | None, str]:
    if now.busy_ns is None or now.num_operations is None:
        return None, "the file system does not time its operations"
    if before is None or before.busy_ns is None or before.num_operations is None:
        return None, "a mean needs two readings, this is the first"
    operations = now.num_operations - before.num_operations
    if operations <= 0 or now.busy_ns < before.busy_ns:
        return None, "no operation since the last reading"
    return (now.busy_ns - before.busy_ns) // operations, ""
