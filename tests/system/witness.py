"""What the flight recorder of a gloo job says, beside what rankscope captured: the comparison that completeness means.

Gloo's recorder names things its own way, each known and handled here by name:
- a reduce_scatter is logged as one all_reduce per tensor of its input list (a single one for the tensor forms);
- lists and tensors, coalesced or not, have one name;
- the output of a functional or coalesced all_gather is logged with the wrong size;
- a sparse all_reduce is logged with the size of the dense tensor;
- P2P and monitored_barrier are not logged at all.
"""

from collections import defaultdict
from itertools import islice, pairwise
from math import prod
from typing import NamedTuple

DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Char": "int8", "Byte": "uint8",
    "Short": "int16", "Int": "int32", "Long": "int64", "Bool": "bool",
}  # fmt: skip
SIZES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}
NAMES = {
    "all_gather_into_tensor": "all_gather", "all_gather_into_tensor_coalesced": "all_gather",
    "all_gather_coalesced": "all_gather", "all_to_all_single": "all_to_all", "all_reduce_coalesced": "all_reduce",
    "reduce_scatter": "all_reduce", "reduce_scatter_tensor": "all_reduce",
    "reduce_scatter_tensor_coalesced": "all_reduce", "all_reduce_sparse": "sparse_all_reduce",
}  # fmt: skip
UNLOGGED = ("send", "recv", "monitored_barrier")


class Entry(NamedTuple):
    """One entry of the recorder, in our words."""

    op: str
    bytes_in: int
    bytes_out: int
    dtype: str | None
    workload: str


class Row(NamedTuple):
    """One captured collective."""

    op: str
    bytes_in: int
    bytes_out: int
    dtype: str | None
    tier: str


def entries_by_group(document):
    """The recorder's entries of one rank, by group name, in order."""
    found = defaultdict(list)
    starts = [begin for _, begin in document["began"]] + [len(document["entries"])]
    for (name, _), (begin, end) in zip(document["began"], pairwise(starts), strict=True):
        for entry in document["entries"][begin:end]:
            found[entry["process_group"][0]].append(_entry(entry, name))
    return dict(found)


def mismatch(rows, entries):
    """The first difference between the captured rows of a group and its entries; None if they are the same."""
    left = iter(entries)
    for number, row in enumerate(rows):
        if row.op in UNLOGGED:
            continue
        logged = _taken(row, left)
        problem = _difference(row, logged)
        if problem:
            return f"row {number} {row}: {problem}; logged: {logged}; before it: {rows[max(0, number - 3) : number]}"
    rest = list(islice(left, 5))
    return f"logged and not captured: {rest}" if rest else None


def _taken(row, left):
    """The entries that stand for this row: one, but for reduce_scatter as many as its input fills."""
    logged = list(islice(left, 1))
    if row.op.startswith("reduce_scatter"):
        while logged and sum(entry.bytes_in for entry in logged) < row.bytes_in:
            logged += islice(left, 1)
    return logged


def _difference(row, logged):
    if not logged:
        return "captured and not logged"
    if {entry.op for entry in logged} != {NAMES.get(row.op, row.op)}:
        return "another op"
    if row.op != "barrier" and {entry.dtype for entry in logged} != {row.dtype}:
        return "another dtype"
    if row.op == "all_reduce_sparse":
        return None
    if sum(entry.bytes_in for entry in logged) != row.bytes_in:
        return "other bytes_in"
    is_misreported = row.op.startswith(("reduce_scatter", "all_gather_into_tensor"))
    return None if is_misreported or logged[0].bytes_out == row.bytes_out else "other bytes_out"


def _entry(entry, workload):
    names = entry["input_dtypes"] or entry["output_dtypes"]
    dtype = DTYPES[names[0]] if names else None
    inputs, outputs = (
        sum(
            prod(shape) * SIZES.get(DTYPES[name], 1) for shape, name in zip(shapes, _padded(types, shapes), strict=True)
        )
        for shapes, types in (
            (entry["input_sizes"], entry["input_dtypes"]),
            (entry["output_sizes"], entry["output_dtypes"]),
        )
    )
    return Entry(entry["profiling_name"].removeprefix("gloo:"), inputs, outputs, dtype, workload)


def _padded(types, shapes):
    return types if len(types) == len(shapes) else [types[0]] * len(shapes)
