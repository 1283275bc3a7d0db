"""The rows of a part that tell of its hosts' clocks: what `rows` of `clocks.sql` defines, over numpy arrays."""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from .columns import NULL, joined
from .intervals import Ints
from .part import Part

CHOSEN: Final = "clock_chosen"
"""The small table of the processes that are looked at: proc, host."""
GROUP: Final = "clock_group"
"""That of the groups that tie hosts together: group_id, most: operations of each on a process, about."""
COLUMNS: Final = (
    "proc", "rank", "group_id", "op", "seq", "src", "dst", "tag", "root", "state", "timing_source", "bytes_in",
    "bytes_out", "issued_ns", "completed_ns", "wait_begin_ns", "wait_end_ns", "device_end_ns",
)  # fmt: skip
_ALL: Final = 1 << 32
_FACTOR: Final = 2654435761


def offer_clock_rows(part: Part) -> None:
    """clock_row: the rows, with their host."""
    rows = part.columns("collective", COLUMNS)
    hosts, most = (_by_first(part.task.given[name]) for name in (CHOSEN, GROUP))
    limits = np.array([most.get(text, 0) for text in rows.texts["group_id"]] + [0], np.int64)
    kept, host = list[Ints](), list[Ints]()
    for (_, proc), (low, high) in rows.places.items():
        if proc in hosts:
            group, seq = rows.codes["group_id"][low:high], rows.numbers["seq"][low:high]
            limit, num = limits[group], np.bincount(group + 1)[group + 1]
            chosen = (limit > 0) & (seq != NULL) & (seq * _FACTOR % _ALL < _ALL * limit // num)
            kept.append(low + np.flatnonzero(chosen))
            host.append(np.full(len(kept[-1]), hosts[proc]))
    found = rows.taken(joined(kept), ("incarnation", *COLUMNS))
    part.offer("clock_row", pa.table({**found, "host": pa.array(joined(host), pa.int32())}))


def _by_first(rows: pa.Table) -> dict[Any, int]:
    """The second column by the first."""
    keys, values = (column.to_pylist() for column in rows.columns)
    return dict(zip(keys, values, strict=True))
