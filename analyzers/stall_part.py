"""Waits for data of each process of a part, inside its steps: what `stall` of `loading.sql` defines, over arrays."""

import numpy as np
import pyarrow as pa

from .columns import Columns, Flags, are_told, is_null, nullable
from .intervals import Ints
from .part import Part
from .relations import COLUMNS

_Rows = tuple[Ints, Ints, Ints]
"""Rank, begin, end."""


def offer_stall(part: Part) -> None:
    """part_stall(rank, wait_ns, run_ns, num_waits): by process and rank. run_ns: from its first step to its last."""
    spans = part.columns("span", COLUMNS["part_stall"]["span"])
    batches = part.columns("sample_batch", COLUMNS["part_stall"]["sample_batch"])
    ends, wait = batches.numbers["time_ns"], batches.numbers["wait_ns"]
    waits = [
        (spans, spans.numbers["start_ns"], spans.numbers["end_ns"], spans.is_any("kind", ("data",))),
        (batches, ends - np.maximum(wait, 0), ends, (wait >= 0) & ~is_null(ends)),
    ]
    found = [
        row
        for key, (first, last) in _runs(part).items()
        for row in _of_process(_joined([_within(*told, key) for told in waits]), first, last)
    ]
    told = np.array(found, np.int64).reshape(-1, 4)
    part.offer("part_stall", pa.table({
        "rank": nullable(told[:, 0], pa.int32()),
        **{name: pa.array(told[:, place + 1]) for place, name in enumerate(("wait_ns", "run_ns", "num_waits"))},
    }))  # fmt: skip


def _runs(part: Part) -> dict[tuple[int, int], tuple[int, int]]:
    """Begin of the first step that ended and end of the last, by incarnation and process."""
    steps, found = part.steps, {}
    begins, ends = steps.numbers["start_ns"], steps.numbers["end_ns"]
    is_ended = are_told(begins, ends)
    for low, high in steps.runs:
        chosen = is_ended[low:high]
        if chosen.any():
            found[steps.process(low)] = int(begins[low:high][chosen].min()), int(ends[low:high][chosen].max())
    return found


def _within(rows: Columns, begins: Ints, ends: Ints, chosen: Flags, key: tuple[int, int]) -> _Rows:
    """The intervals of a process."""
    low, high = rows.places.get(key, (0, 0))
    begins, ends = begins[low:high], ends[low:high]
    kept = chosen[low:high] & are_told(begins, ends)
    return rows.numbers["rank"][low:high][kept], begins[kept], ends[kept]


def _joined(parts: list[_Rows]) -> _Rows:
    rank, begins, ends = (np.concatenate(values) for values in zip(*parts, strict=True))
    return rank, begins, ends


def _of_process(waits: _Rows, first: int, last: int) -> list[tuple[int, int, int, int]]:
    """A row for each rank, nearly always one. Each instant counts once, for the wait that came first."""
    rank, begins, ends = waits[0], np.maximum(waits[1], first), np.minimum(waits[2], last)
    order = np.lexsort((ends, begins))
    rank, begins, ends = rank[order], begins[order], ends[order]
    before = np.concatenate([begins[:1], np.maximum.accumulate(ends)[:-1]])
    alone = np.maximum(0, ends - np.maximum(begins, before))
    return [
        (one, int(alone[rank == one].sum()), last - first, int((rank == one).sum())) for one in np.unique(rank).tolist()
    ]
