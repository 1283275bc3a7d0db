"""Intervals in a part: how many are how long; unions by process of waits for collectives and of a step's phases.

Nested and parallel intervals count each instant once; about 30 ns a row.
"""

import numpy as np
import pyarrow as pa

from .bucket_counts import BucketCounts
from .columns import are_told, coded_text, difference, joined, nullable, stable_order
from .intervals import segments
from .part import Part
from .relations import COLUMNS
from .timelines import Told, lines


def offer_waits(part: Part) -> None:
    """part_waits(proc, num_waits, wait_ns): the host-visible waits of each process in its counted steps."""
    rows = part.columns("collective", COLUMNS["part_waits"]["collective"])
    told = Told(rows.places, rows.numbers["wait_begin_ns"], rows.numbers["wait_end_ns"], part.counted(rows))
    found = [
        (line.found["wait"].num, line.lengths(line.union("wait"))) for line in lines(list(rows.places), {"wait": told})
    ]
    num_waits, wait_ns = (joined([values[place] for values in found]) for place in range(2))
    proc = rows.numbers["proc"][rows.heads]
    kept = num_waits > 0
    part.offer("part_waits", pa.table({
        "proc": proc[kept], "num_waits": num_waits[kept], "wait_ns": wait_ns[kept]
    }))  # fmt: skip


def offer_durations(part: Part) -> None:
    """part_durations and part_host_waits(group_id, op, bucket, num_operations): of every operation that tells it."""
    rows = part.columns("collective", COLUMNS["part_durations"]["collective"])
    pairs = {"durations": ("issued_ns", "completed_ns"), "host_waits": ("wait_begin_ns", "wait_end_ns")}
    counts = {name: BucketCounts(rows) for name in pairs}
    for piece in rows.pieces():
        for name, (begin, end) in pairs.items():
            lengths = difference(piece.numbers[begin], piece.numbers[end])
            chosen = np.flatnonzero(lengths >= 0)
            told = (piece.codes["group_id"], piece.codes["op"], lengths)
            counts[name].add(*(told if len(chosen) == len(lengths) else (values[chosen] for values in told)))
    for name, found in counts.items():
        part.offer(f"part_{name}", found.table())


def offer_phases(part: Part) -> None:
    """part_phases(proc, kind, name, rank, num_spans, union_ns): by kind, in counted steps; name: of a user's span."""
    rows = part.columns("span", COLUMNS["part_phases"]["span"])
    begins, ends = rows.numbers["start_ns"], rows.numbers["end_ns"]
    chosen = np.flatnonzero(are_told(begins, ends) & part.counted(rows))
    kinds, names = rows.texts["kind"], rows.texts["name"]
    kind = rows.codes["kind"][chosen]
    is_users = kind == (kinds.index("user") if "user" in kinds else -2)
    name = np.where(is_users, rows.codes["name"][chosen], -1)
    _, proc = np.unique(rows.numbers["proc"][chosen], return_inverse=True)
    key = ((proc.astype(np.int64) * (len(kinds) + 1)) + kind + 1) * (len(names) + 1) + name + 1
    order = stable_order(key)
    chosen, key = chosen[order], key[order]
    runs = segments(key)
    told = Told({code: (low, high) for code, low, high in runs}, begins[chosen], ends[chosen])
    lengths = [line.lengths(line.union("span")) for line in lines([code for code, _, _ in runs], {"span": told})]
    first = np.array([low for _, low, _ in runs], np.int64)
    part.offer("part_phases", pa.table({
        "proc": rows.numbers["proc"][chosen[first]], "kind": coded_text(kind[order[first]], kinds),
        "name": coded_text(name[order[first]], names),
        "rank": nullable(rows.numbers["rank"][chosen[first]], pa.int32()),
        "num_spans": pa.array([high - low for _, low, high in runs], pa.int64()),
        "union_ns": joined(lengths),
    }))  # fmt: skip
