"""From one Kineto trace to rows of `kernel`, `collective`, `span` and `step`, as the hooks would have written them.

A collective is a communication kernel: its device times are the kernel's, its issue is the launch. Operation and group
come from the kernel's arguments, else the operation from the annotation around the launch ("nccl:all_reduce"), else
from the kernel's name; where no group is told there is one for each communication stream, in the order of their
numbers.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rankscope.schema.arrow import rows_to_table
from rankscope.schema.kernel_classes import Classes
from rankscope.schema.paths import hash63

from .arrow_columns import Column, numbers, table_of, words
from .kineto_events import Arguments
from .kineto_trace import Activities, Table, Trace, launches
from .trace_rank import MAX_DIGITS, members_of, whole

Numbers = npt.NDArray[np.int64]
OPS: Final = {
    "allreduce": "all_reduce", "all_reduce": "all_reduce", "allreduce_coalesced": "all_reduce_coalesced",
    "allgather": "all_gather", "all_gather": "all_gather", "_allgather_base": "all_gather_into_tensor",
    "_all_gather_base": "all_gather_into_tensor", "all_gather_into_tensor": "all_gather_into_tensor",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor_coalesced",
    "allgather_coalesced": "all_gather_coalesced",
    "reduce_scatter": "reduce_scatter", "reducescatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter_tensor", "reduce_scatter_tensor": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor_coalesced",
    "all_to_all": "all_to_all", "alltoall": "all_to_all", "all_to_allv": "all_to_all_single",
    "alltoall_base": "all_to_all_single", "alltoallv": "all_to_all_single",
    "broadcast": "broadcast", "bcast": "broadcast", "_broadcast_oop": "broadcast", "reduce": "reduce",
    "_reduce_oop": "reduce", "gather": "gather", "scatter": "scatter", "barrier": "barrier", "send": "send",
    "recv": "recv",
}  # fmt: skip
DTYPES: Final = {
    "Float": ("float32", 4), "Double": ("float64", 8), "Half": ("float16", 2), "BFloat16": ("bfloat16", 2),
    "Byte": ("uint8", 1), "Char": ("int8", 1), "Short": ("int16", 2), "Int": ("int32", 4), "Long": ("int64", 8),
    "Bool": ("bool", 1), "ComplexFloat": ("complex64", 8), "ComplexDouble": ("complex128", 16),
    "Float8_e4m3fn": ("float8_e4m3fn", 1), "Float8_e5m2": ("float8_e5m2", 1),
}  # fmt: skip
_KERNEL_OP: Final = re.compile(r"(AllReduce|AllGather|ReduceScatter|Broadcast|Bcast|Reduce|AllToAll|SendRecv)", re.I)
_SPANS: Final = (
    (re.compile(r"^Optimizer\.step#|^## optimizer"), "optimizer"),
    (re.compile(r"^## forward ##$|\.forward$"), "forward"),
    (re.compile(r"^## backward ##$"), "backward"),
    (re.compile(r"^enumerate\(DataLoader\)#"), "data"),
)
_OPERATION: Final = "nccl:"
_HOST_COMMUNICATION: Final = re.compile(r"^(c10d::|_?c10d_functional::|gloo:|mpi:|ucc:|record_param_comms)")


@dataclass(slots=True)
class Told:
    """A process group as the traces name it. members: empty where no trace says them."""

    name: str
    members: tuple[int, ...]
    description: str | None = None


@dataclass(slots=True)
class RankState:
    """What the files of one rank share: they follow one another. windows: begin and end of each file.

    num_records: of tables that a live process writes to its ring, which coverage counts; kernels are counted apart.
    """

    rank: int
    proc: int
    num_records: int = 0
    num_kernels: int = 0
    num_steps: int = 0
    num_dropped: int = 0
    seqs: dict[str, int] = field(default_factory=dict)
    windows: list[tuple[int, int]] = field(default_factory=list)
    devices: set[int] = field(default_factory=set)

    def numbers(self, count: int) -> Numbers:
        """The next `count` record numbers."""
        first = self.num_records
        self.num_records += count
        return np.arange(first, first + count, dtype=np.int64)


def rows_of(trace: Trace, state: RankState, classes: Classes, groups: dict[str, Told]) -> dict[str, pa.Table]:
    """The rows of one file by table; `groups` and `state` gain what they did not know."""
    activities = trace.device if len(trace.device) else trace.operators
    found: dict[str, pa.Table] = {}
    steps = _Steps(trace.steps, state.num_steps)
    if len(activities):
        is_host = not len(trace.device)
        launched = np.array(launches(trace, activities.correlation), np.int64)
        kinds, labels = _host_classes(activities) if is_host else _classes(activities, classes)
        ordinals = steps.of(np.where(launched > 0, launched, np.array(activities.start, np.int64)))
        found["kernel"] = _kernels(activities, kinds, labels, ordinals, state)
        if not is_host:
            state.devices |= {device for device in activities.device if device >= 0}
            is_talking = np.array([label == "communication" for label in labels], np.bool_)[kinds]
            rows = _collectives(trace, is_talking, ordinals, launched, state, groups)
            if rows:
                found["collective"] = rows_to_table("collective", rows)
    if len(trace.annotations):
        found["span"] = _spans(trace.annotations, steps, state)
    if len(trace.steps):
        found["step"] = _step_rows(trace.steps, state)
        state.num_steps += len(trace.steps)
    return found


class _Steps:
    """Which step a moment belongs to."""

    def __init__(self, steps: Table, first: int) -> None:
        self._first = first
        order = np.argsort(np.array(steps.start, np.int64), kind="stable")
        self._start = np.array(steps.start, np.int64)[order]
        self._end = np.array(steps.end, np.int64)[order]

    def of(self, moments: Numbers) -> Numbers:
        """The ordinal of the step that each moment lies in; -1 outside of all."""
        if not len(self._start):
            return np.full(len(moments), -1, np.int64)
        at = np.searchsorted(self._start, moments, side="right") - 1
        is_in = (at >= 0) & (moments < self._end[np.maximum(at, 0)])
        return np.where(is_in, at + self._first, -1)


def _kernels(activities: Activities, kinds: Numbers, labels: list[str], steps: Numbers, state: RankState) -> pa.Table:
    """In the order of a sealed file: by start."""
    count = len(activities)
    start = np.array(activities.start, np.int64)
    order = np.argsort(start, kind="stable")

    def sorted_(values: Any) -> Numbers:
        return np.array(values, np.int64)[order]

    known = sorted(set(activities.device))
    columns = {
        **_process(state, count),
        "record": numbers(state.num_kernels + order), "step": numbers(steps[order]),
        "category": words(sorted_(activities.category), list(activities.categories)),
        "device_uuid": words(
            np.searchsorted(known, sorted_(activities.device)), [None if d < 0 else f"device {d}" for d in known]
        ),
        "stream_id": numbers(sorted_(activities.stream)), "start_ns": numbers(start[order], is_any=True),
        "end_ns": numbers(sorted_(activities.end), is_any=True), "kernel_class": words(kinds[order], labels),
        "name": words(sorted_(activities.name), list(activities.names)),
        "correlation": numbers(sorted_(activities.correlation)),
    }  # fmt: skip
    state.num_kernels += count
    return table_of("kernel", columns, count)


def _collectives(
    trace: Trace, is_talking: npt.NDArray[np.bool_], steps: Numbers, launched: Numbers, state: RankState,
    groups: dict[str, Told],
) -> list[dict[str, Any]]:  # fmt: skip
    device = trace.device
    names, categories = list(device.names), list(device.categories)
    chosen = [at for at in np.flatnonzero(is_talking).tolist() if categories[device.category[at]] == "kernel"]
    chosen.sort(key=lambda at: (device.start[at], device.end[at], at))
    streams = sorted({device.stream[at] for at in chosen if _group_name(trace.told.get(at)) is None})
    issuers, streams_at = _Issuers(trace.annotations), {stream: at for at, stream in enumerate(streams)}
    rows, step_of = [], steps.tolist()
    for at, record in zip(chosen, state.numbers(len(chosen)).tolist(), strict=True):
        told = trace.told.get(at)
        group = _group(told, streams_at.get(device.stream[at], 0), groups)
        seq = state.seqs.get(group, 0)
        state.seqs[group] = seq + 1
        start, end, issued = device.start[at], device.end[at], int(launched[at]) or None
        rows.append({
            "proc": state.proc, "rank": state.rank, "record": record, "group_id": group,
            "step": step_of[at] if step_of[at] >= 0 else None,
            "op": _op(told, issuers.of(issued), names[device.name[at]]), "seq": seq, **_sizes(told),
            "issued_ns": issued, "device_start_ns": start, "device_end_ns": end, "completed_ns": end,
            "state": "completed", "tier": "imported", "timing_source": "trace",
        })  # fmt: skip
    return sorted(rows, key=lambda row: (row["issued_ns"] is None, row["issued_ns"]))


class _Issuers:
    """The annotation of an operation ("nccl:...") that a launch lies in; the innermost, where they are nested."""

    def __init__(self, annotations: Table) -> None:
        names = list(annotations.names)
        found = sorted((annotations.start[at], annotations.end[at], names[annotations.name[at]])
                       for at in range(len(annotations))
                       if names[annotations.name[at]].startswith(_OPERATION))  # fmt: skip
        self._found, self._start = found, [start for start, _, _ in found]

    def of(self, moment: int | None) -> str | None:
        if moment is None:
            return None
        at = bisect_right(self._start, moment) - 1
        for start, end, name in self._found[max(0, at - 3) : at + 1][::-1]:
            if start <= moment <= end:
                return name.removeprefix(_OPERATION)
        return None


def _op(told: Arguments | None, issuer: str | None, kernel: str) -> str:
    for name in (told.op if told else None, issuer):
        if isinstance(name, str) and (op := OPS.get(name.strip().lower())):
            return op
    found = _KERNEL_OP.search(kernel)
    return OPS.get(found[1].lower(), "other") if found else "other"


def _group_name(told: Arguments | None) -> str | None:
    return str(told.group) if told is not None and told.group not in (None, "") else None


@cache
def _group_id(label: str, ranks: str) -> tuple[str, tuple[int, ...]]:
    """The id of a group and its members. ranks: as a trace writes them."""
    members = tuple(members_of(ranks))
    return f"{hash63('imported', label, *members):016x}", members


def _group(told: Arguments | None, stream: int, groups: dict[str, Told]) -> str:
    name = _group_name(told)
    label = name if name is not None else f"communication stream {stream}"
    group, members = _group_id(label, str(told.ranks) if told is not None and name is not None else "")
    if group not in groups:
        groups[group] = Told(
            label, members, told.description if told is not None and isinstance(told.description, str) else None
        )
    return group


def _sizes(told: Arguments | None) -> dict[str, Any]:
    if told is None or not isinstance(told.dtype, str):
        return {}
    dtype, width = DTYPES.get(told.dtype, ("other", 0))
    sizes = {"bytes_in": told.num_in, "bytes_out": told.num_out}
    known = {key: whole(value) * width for key, value in sizes.items() if type(value) is int and width}
    return {"dtype": dtype, **{key: value for key, value in known.items() if 0 <= value < 10**MAX_DIGITS}}


def _spans(annotations: Table, steps: _Steps, state: RankState) -> pa.Table:
    """In the order of a sealed file: by start."""
    names, count = list(annotations.names), len(annotations)
    kinds = [next((kind for pattern, kind in _SPANS if pattern.search(name)), "user") for name in names]
    start, end = np.array(annotations.start, np.int64), np.array(annotations.end, np.int64)
    order = np.argsort(start, kind="stable")
    name = np.array(annotations.name, np.int64)[order]
    columns = {
        **_process(state, count), "record": numbers(state.numbers(count)[order]),
        "step": numbers(steps.of(start[order])), "kind": words(name, kinds), "name": words(name, names),
        "start_ns": numbers(start[order], is_any=True), "end_ns": numbers(end[order], is_any=True),
    }  # fmt: skip
    return table_of("span", columns, count)


def _step_rows(steps: Table, state: RankState) -> pa.Table:
    names = list(steps.names)
    rows = []
    records = state.numbers(len(steps)).tolist()
    for ordinal, at in enumerate(sorted(range(len(steps)), key=lambda at: (steps.start[at], at))):
        number = names[steps.name[at]].partition("#")[2]
        rows.append({
            "proc": state.proc, "rank": state.rank, "record": records[ordinal], "step": state.num_steps + ordinal,
            "global_step": int(number) if number.isdecimal() and len(number) < MAX_DIGITS else None,
            "start_ns": steps.start[at], "end_ns": steps.end[at], "boundary": "framework",
        })  # fmt: skip
    return rows_to_table("step", rows)


def _classes(activities: Activities, classes: Classes) -> tuple[Numbers, list[str]]:
    """The class of each, as a position in a list."""
    names, categories, told = list(activities.names), list(activities.categories), dict[tuple[int, int], int]()
    pairs = zip(activities.category, activities.name, strict=True)
    positions = np.array([told.setdefault(pair, len(told)) for pair in pairs], np.int64)
    return positions, [classes.of(categories[category], names[name]) for category, name in told]


def _host_classes(activities: Activities) -> tuple[Numbers, list[str]]:
    labels = ["communication" if _HOST_COMMUNICATION.match(name) else "compute" for name in activities.names]
    return np.array(activities.name, np.int64), labels


def _process(state: RankState, count: int) -> dict[str, Column]:
    return {"proc": numbers(np.full(count, state.proc, np.int64), is_any=True),
            "rank": numbers(np.full(count, state.rank, np.int32))}  # fmt: skip
