"""What the block devices did, from /proc/diskstats: bytes, operations, time in operations, since boot.

Source: Documentation/admin-guide/iostats.rst. Sectors there are 512 bytes, whatever the device's own are.
"""

from pathlib import Path
from typing import Final, NamedTuple

from .kernel_files import names_in, read_or_why

SECTOR_BYTES: Final = 512
_MS_NS: Final = 1_000_000
_STACKED: Final = ("loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd")
"""Devices that lie on others, whose bytes would count twice, or on no disk."""


class Disk(NamedTuple):
    """One device or partition. busy_ns: time of all reads and writes added up; is_whole: a disk, not a part of one."""

    read_bytes: int
    write_bytes: int
    num_operations: int
    busy_ns: int
    is_whole: bool


def read_disks(proc: Path, sysfs: Path) -> tuple[dict[str, Disk], str]:
    """The devices by their number "major:minor"; or none and why."""
    text, why = read_or_why(proc / "diskstats")
    whole = {name for name in names_in(sysfs / "block") if not name.startswith(_STACKED)}
    found = {}
    for line in (text or "").splitlines():
        fields = line.split()
        if len(fields) < 14:
            continue
        reads, _, read_sectors, read_ms, writes, _, write_sectors, write_ms = map(int, fields[3:11])
        found[f"{fields[0]}:{fields[1]}"] = Disk(
            read_sectors * SECTOR_BYTES, write_sectors * SECTOR_BYTES, reads + writes, (read_ms + write_ms) * _MS_NS,
            fields[2] in whole,
        )  # fmt: skip
    return found, why
