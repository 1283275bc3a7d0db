"""The counters of Lustre clients, from the text of `llite.*.stats`.

A line is `name count samples [unit]` and, for what is measured, `min max sum` (and the sum of squares): bytes for
read_bytes and write_bytes, microseconds for operations in versions that time them (2.13 and later).
Source: Lustre operations manual, "Monitoring client activity"; lustre/obdclass/lprocfs_counters.c.
"""

from typing import Final

from .storage_counts import Counts

LLITE_FOLDERS: Final = (("proc", "fs/lustre/llite"), ("sys", "kernel/debug/lustre/llite"), ("sys", "fs/lustre/llite"))
"""Where versions keep them: below the root of /proc or of /sys."""
_US_NS: Final = 1_000


def read_stats(text: str) -> Counts:
    """The counters of one mount. A client that never read or wrote has no such line: nothing was, so 0."""
    sums: dict[str, int] = {}
    num_operations, busy_us, is_timed = 0, 0, False
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 4 or fields[2] != "samples":
            continue
        total = int(fields[6]) if len(fields) > 6 else 0
        if fields[3] == "[bytes]":
            sums[fields[0]] = total
        elif fields[0] != "snapshot_time":
            num_operations += int(fields[1])
            if fields[3] in ("[usec]", "[usecs]"):
                busy_us, is_timed = busy_us + total, True
    if "snapshot_time" not in text:
        return Counts(None, None, None, None)
    return Counts(
        sums.get("read_bytes", 0), sums.get("write_bytes", 0), num_operations, busy_us * _US_NS if is_timed else None
    )
