"""Where the time of each process of a part went, for live runs: what `live` of `time.sql` defines, without its sweep.

Unions of steps, work, operations and waits are intersected pairwise: most of them are few intervals, so that the many
operations are only looked up at their edges. About 60 ns an operation.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from .columns import NULL, Columns, Flags
from .intervals import Ints, Union, both, segments, union
from .part import Part
from .relations import COLUMNS

WORK: Final = ("forward", "backward", "optimizer")
_INTERVALS: Final = {
    "operation": ("issued_ns", "completed_ns"), "wait": ("wait_begin_ns", "wait_end_ns"),
    "stall": ("wait_device_start_ns", "wait_device_end_ns"), "device": ("device_start_ns", "device_end_ns"),
}  # fmt: skip
_Key = tuple[int, int]
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
    steps = part.selected(
        "SELECT incarnation, proc, rank, start_ns, end_ns FROM counted_step ORDER BY incarnation, proc"
    )
    spans = part.columns("span", COLUMNS["part_live"]["span"])
    rows = part.columns("collective", COLUMNS["part_live"]["collective"])
    whole = _unions(steps, steps.numbers["start_ns"], steps.numbers["end_ns"])
    work = _unions(spans, spans.numbers["start_ns"], spans.numbers["end_ns"], _is_work(spans))
    of = {kind: _unions(rows, rows.numbers[begin], rows.numbers[end]) for kind, (begin, end) in _INTERVALS.items()}
    about = _ranks(steps)
    found = []
    for key, step in whole.items():
        parts = {kind: unions.get(key, NOTHING) for kind, unions in of.items()}
        rank, num_steps = about[key]
        found.append({"incarnation": key[0], "proc": key[1], "rank": rank, "num_steps": num_steps,
                      **_times(step, work.get(key, NOTHING), **parts)})  # fmt: skip
    schema = pa.schema([("incarnation", pa.int64()), ("proc", pa.int64()), ("rank", pa.int32()),
                        *((name, pa.int64()) for name in ("num_steps", *_TIMES))])  # fmt: skip
    part.offer("part_live", pa.Table.from_pylist(found, schema))


NOTHING: Final = union(np.zeros(0, np.int64), np.zeros(0, np.int64))


def _times(
    step: Union, work: Union, operation: Union, wait: Union, stall: Union, device: Union
) -> dict[str, int | None]:
    """By name. Waits are part of neither compute nor overlap; what is not there at all is None."""
    working = both(step, work)
    waiting, worked_in_waits, worked_in_operations = (
        wait.within(step), wait.within(working), operation.within(working)
    )  # fmt: skip
    either = union(np.concatenate([operation.begins, wait.begins]), np.concatenate([operation.ends, wait.ends]))
    talking_in_waits = worked_in_operations + worked_in_waits - either.within(working)
    return {
        "span_ns": step.length or None, "compute_ns": working.length - worked_in_waits,
        "communication_ns": operation.within(step), "wait_ns": waiting,
        "overlap_ns": worked_in_operations - talking_in_waits,
        "other_ns": step.length - working.length - (waiting - worked_in_waits),
        "stall_ns": stall.within(step) or None, "device_ns": device.within(step) or None,
    }  # fmt: skip


def _is_work(spans: Columns) -> Flags:
    return spans.is_any("kind", WORK)


def _unions(rows: Columns, begins: Ints, ends: Ints, chosen: Flags | None = None) -> dict[_Key, Union]:
    """The union of the intervals of each incarnation and process."""
    is_there = (begins != NULL) & (ends >= begins)
    if chosen is not None:
        is_there &= chosen
    if not is_there.any():
        return {}
    codes, pairs = rows.processes
    if not is_there.all():
        codes, begins, ends = codes[is_there], begins[is_there], ends[is_there]
    runs = segments(codes)
    if len({code for code, _, _ in runs}) < len(runs):
        order = np.argsort(codes, kind="stable")
        codes, begins, ends = codes[order], begins[order], ends[order]
        runs = segments(codes)
    return {_key(pairs[code]): union(begins[low:high], ends[low:high]) for code, low, high in runs}


def _ranks(steps: Columns) -> dict[_Key, tuple[int | None, int]]:
    """Rank and number of counted steps of each process."""
    codes, pairs = steps.processes
    ranks = steps.numbers["rank"]
    return {
        _key(pairs[code]): (None if ranks[low] == NULL else int(ranks[low]), high - low)
        for code, low, high in segments(codes)
    }


def _key(pair: Ints) -> _Key:
    return int(pair[0]), int(pair[1])
