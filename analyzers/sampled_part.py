"""The sample's rows of a part: its collectives of the chosen steps, or sequence numbers (`sampled.py`)."""

from typing import Final

import numpy as np
import pyarrow as pa

from .columns import NULL
from .intervals import heads
from .part import Part

CHOICE: Final = "sample_choice"
"""The small table that says which: one row. named: step or seq; block, stride, first: of blocks of so many one in
`stride`, from the one numbered `first`."""
COLUMNS: Final = (
    "proc", "rank", "record", "step", "group_id", "op", "seq", "src", "dst", "tag", "root", "bytes_in",
    "bytes_out", "issued_ns", "returned_ns", "wait_begin_ns", "wait_end_ns", "completed_ns", "device_start_ns",
    "device_end_ns", "wait_device_start_ns", "wait_device_end_ns", "stage", "timing_source",
)  # fmt: skip
"""What is kept of each, beside its incarnation."""


def offer_sampled(part: Part) -> None:
    """part_sampled: the collectives of the part that the sample has."""
    [choice] = part.task.given[CHOICE].to_pylist()
    rows = part.columns("collective", COLUMNS)
    values = rows.numbers[choice["named"]]
    first = heads(values)  # they come in runs
    of_heads = values[first]
    is_chosen = (of_heads != NULL) & (of_heads // choice["block"] % choice["stride"] == choice["first"])
    kept = np.flatnonzero(np.repeat(is_chosen, np.diff(np.append(first, len(values)))))
    part.offer("part_sampled", pa.table(rows.taken(kept, ("incarnation", *COLUMNS))))
