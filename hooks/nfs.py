"""The counters of NFS mounts, from the text of /proc/self/mountstats.

Per mount `bytes:` holds eight numbers, the fifth and sixth of which are bytes read from and written to the server; each
operation's line holds operations, transmissions, timeouts, bytes sent, bytes received, and the milliseconds in the
queue, at the server, and altogether ("execute").
Source: fs/nfs/super.c nfs_show_stats, net/sunrpc/stats.c rpc_clnt_show_stats (statvers 1.0, 1.1).
"""

import re
from collections.abc import Iterator
from typing import Final

from .storage_counts import Counts

_DEVICE: Final = re.compile(r"^device (.+) mounted on (.+) with fstype (\S+)", re.MULTILINE)
_OPERATION: Final = re.compile(r"^\s+([A-Z_]+): (\d+(?: \d+){7,})$", re.MULTILINE)
_BYTES: Final = re.compile(r"^\s+bytes:\s+(\d+(?: \d+){7})", re.MULTILINE)
_MS_NS: Final = 1_000_000


def read_mountstats(text: str) -> Iterator[tuple[str, Counts]]:
    """Mount point and counters of every NFS mount in `text`."""
    devices = list(_DEVICE.finditer(text))
    ends = [*(device.start() for device in devices[1:]), len(text)]
    for device, end in zip(devices, ends, strict=False):
        if device[3] in ("nfs", "nfs4"):
            yield device[2], _counts(text[device.end() : end])


def _counts(part: str) -> Counts:
    found = _BYTES.search(part)
    sizes = [int(word) for word in found[1].split()] if found else None
    operations = [[int(word) for word in match[2].split()] for match in _OPERATION.finditer(part)]
    return Counts(
        sizes[4] if sizes else None, sizes[5] if sizes else None,
        sum(numbers[0] for numbers in operations) if operations else None,
        sum(numbers[7] for numbers in operations) * _MS_NS if operations else None,
    )  # fmt: skip
