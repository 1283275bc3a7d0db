"""Intervals in a part: how many are how long; unions by process of waits for collectives and of a step's phases.

Nested and parallel intervals count each instant once. Rows come in runs of one process and nearly in the order of time,
so a running maximum of the ends does it; about 20 ns a row.
"""

import numpy as np
import pyarrow as pa

from .bucket_counts import bucket_counts
from .columns import NULL, Flags, difference
from .intervals import Ints, segments, union
from .part import Part
from .relations import COLUMNS


def offer_waits(part: Part) -> None:
    """part_waits(proc, num_waits, wait_ns): the host-visible waits of each process in its counted steps."""
    rows = part.columns("collective", COLUMNS["part_waits"]["collective"])
    begins, ends = rows.numbers["wait_begin_ns"], rows.numbers["wait_end_ns"]
    chosen = (begins != NULL) & (ends >= begins)
    chosen &= part.counted(rows)
    found = [
        (proc, high - low, union(begins_of, ends_of).length)
        for proc, low, high, begins_of, ends_of in _by_code(rows.numbers["proc"], chosen, begins, ends)
    ]
    schema = pa.schema([(name, pa.int64()) for name in ("proc", "num_waits", "wait_ns")])
    part.offer("part_waits", pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in found], schema))


def offer_durations(part: Part) -> None:
    """part_durations and part_host_waits(group_id, op, bucket, num_operations): of every operation that tells it."""
    rows = part.columns("collective", COLUMNS["part_durations"]["collective"])
    group, op = rows.codes["group_id"], rows.codes["op"]
    pairs = {"durations": ("issued_ns", "completed_ns"), "host_waits": ("wait_begin_ns", "wait_end_ns")}
    for name, (begin, end) in pairs.items():
        lengths = difference(rows.numbers[begin], rows.numbers[end])
        chosen = lengths >= 0
        codes = (group, op) if chosen.all() else (group[chosen], op[chosen])
        part.offer(f"part_{name}", bucket_counts(rows, codes, lengths if chosen.all() else lengths[chosen]))


def offer_phases(part: Part) -> None:
    """part_phases(proc, kind, name, rank, num_spans, union_ns): by kind, in counted steps; name: of a user's span."""
    rows = part.columns("span", COLUMNS["part_phases"]["span"])
    begins, ends = rows.numbers["start_ns"], rows.numbers["end_ns"]
    chosen = np.flatnonzero((begins != NULL) & (ends >= begins) & part.counted(rows))
    kinds, names = rows.texts["kind"], rows.texts["name"]
    kind = rows.codes["kind"][chosen]
    is_users = kind == (kinds.index("user") if "user" in kinds else -2)
    name = np.where(is_users, rows.codes["name"][chosen], -1)
    procs, proc = np.unique(rows.numbers["proc"][chosen], return_inverse=True)
    key = ((proc.astype(np.int64) * (len(kinds) + 1)) + kind + 1) * (len(names) + 1) + name + 1
    order = np.argsort(key, kind="stable")
    found = []
    for _, low, high in segments(key[order]):
        own = chosen[order[low:high]]
        first, place = own[0], order[low]
        rank = int(rows.numbers["rank"][first])
        found.append({
            "proc": int(procs[proc[place]]), "kind": _text(kinds, kind[place]), "name": _text(names, name[place]),
            "rank": None if rank == NULL else rank, "num_spans": high - low,
            "union_ns": union(begins[own], ends[own]).length,
        })  # fmt: skip
    schema = pa.schema([("proc", pa.int64()), ("kind", pa.string()), ("name", pa.string()), ("rank", pa.int32()),
                        ("num_spans", pa.int64()), ("union_ns", pa.int64())])  # fmt: skip
    part.offer("part_phases", pa.Table.from_pylist(found, schema))


def _by_code(codes: Ints, chosen: Flags, begins: Ints, ends: Ints) -> list[tuple[int, int, int, Ints, Ints]]:
    """Of the chosen rows, by code: (code, first, after the last, begins, ends)."""
    if not chosen.all():
        codes, begins, ends = codes[chosen], begins[chosen], ends[chosen]
    runs = segments(codes)
    if len({code for code, _, _ in runs}) < len(runs):
        order = np.argsort(codes, kind="stable")
        codes, begins, ends = codes[order], begins[order], ends[order]
    return [(code, low, high, begins[low:high], ends[low:high]) for code, low, high in segments(codes)]


def _text(texts: list[str], code: int) -> str | None:
    return texts[code] if code >= 0 else None
