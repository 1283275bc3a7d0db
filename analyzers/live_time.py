"""Where the time of each process of a part went, for live runs: what `live` of `time.sql` defines, without its sweep.

Unions of steps, work, operations and waits are intersected pairwise: most of them are few intervals, so that the many
operations are only looked up at their edges. About 50 ns an operation.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from .columns import NULL, joined, nullable
from .intervals import Ints, both, union
from .part import Part
from .relations import COLUMNS
from .timelines import Line, Told, lines

WORK: Final = ("forward", "backward", "optimizer")
_INTERVALS: Final = {
    "operation": ("issued_ns", "completed_ns"), "wait": ("wait_begin_ns", "wait_end_ns"),
    "stall": ("wait_device_start_ns", "wait_device_end_ns"), "device": ("device_start_ns", "device_end_ns"),
}  # fmt: skip
_TIMES: Final = (
    "span_ns",
    "compute_ns",
    "communication_ns",
    "wait_ns",
    "overlap_ns",
    "other_ns",
    "stall_ns",
    "device_ns",
)


def offer_live(part: Part) -> None:
    """part_live(incarnation, proc, rank, num_steps, span_ns, ...): one row for each process with steps that count."""
    steps = part.counted_steps
    spans = part.columns("span", COLUMNS["part_live"]["span"])
    rows = part.columns("collective", COLUMNS["part_live"]["collective"])
    told = {
        "step": Told(steps.places, steps.numbers["start_ns"], steps.numbers["end_ns"]),
        "work": Told(spans.places, spans.numbers["start_ns"], spans.numbers["end_ns"], spans.is_any("kind", WORK)),
        **{
            kind: Told(rows.places, rows.numbers[begin], rows.numbers[end]) for kind, (begin, end) in _INTERVALS.items()
        },
    }
    found = [_times(line) for line in lines(list(steps.places), told)]
    first = steps.heads
    part.offer("part_live", pa.table({
        **{name: nullable(steps.numbers[name][first]) for name in ("incarnation", "proc")},
        "rank": nullable(steps.numbers["rank"][first], pa.int32()),
        "num_steps": pa.array([high - low for low, high in steps.runs], pa.int64()),
        **{name: nullable(joined([times[name] for times in found])) for name in _TIMES},
    }))  # fmt: skip


def _times(line: Line) -> dict[str, Ints]:
    """By name, of each process. Waits are part of neither compute nor overlap; what is not there at all is NULL."""
    step, work, operation, wait, stall, device = (line.union(kind) for kind in ("step", "work", *_INTERVALS))
    working = both(step, work)
    waiting, worked_in_waits, worked_in_operations = (
        line.within(wait, step), line.within(wait, working), line.within(operation, working)
    )  # fmt: skip
    talking_in_waits = np.zeros(len(line.keys), np.int64)
    if worked_in_waits.any() and worked_in_operations.any():
        either = union(np.concatenate([operation.begins, wait.begins]), np.concatenate([operation.ends, wait.ends]))
        talking_in_waits = worked_in_operations + worked_in_waits - line.within(either, working)
    length, worked = line.lengths(step), line.lengths(working)
    return {
        "span_ns": _or_null(length), "compute_ns": worked - worked_in_waits,
        "communication_ns": line.within(operation, step), "wait_ns": waiting,
        "overlap_ns": worked_in_operations - talking_in_waits,
        "other_ns": length - worked - (waiting - worked_in_waits),
        "stall_ns": _or_null(line.within(stall, step)), "device_ns": _or_null(line.within(device, step)),
    }  # fmt: skip


def _or_null(values: Ints) -> Ints:
    return np.where(values == 0, NULL, values)
