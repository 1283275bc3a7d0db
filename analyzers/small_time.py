"""Where the time went in an imported run that is small (`small_run`): the same numbers as `time` and `exposure`.

The division of each device's span is that of `trace_time`. Communication by group and operation as `exposure.sql`
defines it: of operations that run at once an instant belongs to the one that began first; exposed is what no compute
covers; pieces are counted between all edges of both. Cost: 22,000 activities in 60 ms.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .exposure_parts import ANALYZER as EXPOSURE
from .exposure_parts import CAVEAT, DEVICE_TABLES, Exposure, device_parts, measured
from .groups import groups_of
from .intervals import Ints, union
from .small_run import NotSmall, SmallEvidence, SmallRun, coverage_of, numbers_of, open_small, words_of
from .statements import statement, whole
from .timeline import ANALYZER, DEVICE_WINDOW, Times, device_timelines, suspects_of
from .trace_time import CLASSES, COMMUNICATION, COMPUTE, COPY, OTHER, DeviceActivities, names_of

_HOST: Final = "cpu_op"
_NUMBERS: Final = ("proc", "record", "rank", "start_ns", "end_ns")
_WORDS: Final = ("category", "kernel_class", "name")
_Device = tuple[int, int, str]
"""Incarnation, rank, device."""
_Operation = tuple[str, str]
"""Group and operation."""
_NOBODYS: Final = (2, "", "")
"""Sorts communication that no collective belongs to behind all that one does."""


@dataclass(frozen=True, slots=True)
class SmallTimes:
    """The answer. exposure: None without collectives."""

    run: SmallRun
    times: Times
    exposure: Exposure | None


@dataclass(frozen=True, slots=True)
class _Activities:
    """Activities of one device. kind: class, as `trace_time` numbers them."""

    device: _Device
    start: Ints
    end: Ints
    kind: Ints
    proc: Ints
    record: Ints


def small_times(address: str) -> SmallTimes | None:
    """The answer of `time` for the run called `address`; None if it is not small, imported, sealed and whole."""
    run = open_small(address)
    if run is None:
        return None
    try:
        return _answer(run)
    except NotSmall:
        return None


def _answer(run: SmallRun) -> SmallTimes:
    found, named = list[_Activities](), list[DeviceActivities]()
    for item in run.files("kernel"):
        rows = run.read(item, [*_NUMBERS, *_WORDS, "device_uuid"])
        found += _by_device(rows, item.incarnation or 0, named)
    if not found:
        raise NotSmall
    if len({item.device for item in found}) < len(found):
        raise NotSmall  # a device in two files
    found.sort(key=lambda item: item.device)
    coverage = coverage_of(run)
    told = SmallEvidence(run, ANALYZER, statement(ANALYZER, "device"), ("kernel",), coverage, DEVICE_WINDOW,
                         f"category <> '{_HOST}'")  # fmt: skip
    names = names_of(named)
    timelines = device_timelines(told, [(*item.device, *_parts(item), len(item.start)) for item in found])
    exposure = _exposure(run, found, coverage) if run.size("collective")[1] else None
    return SmallTimes(run, Times(timelines, names, suspects_of(names)), exposure)


def _by_device(rows: pa.Table, incarnation: int, named: list[DeviceActivities]) -> Iterator[_Activities]:
    """The activities of a file by device; their names go to `named`."""
    proc, record, rank, start, end = (numbers_of(rows, name) for name in _NUMBERS)
    (category, categories), (kernel_class, classes), (name, names) = (words_of(rows, word) for word in _WORDS)
    device, devices = words_of(rows, "device_uuid", "")
    is_host = np.array([word == _HOST for word in categories], np.bool_)
    chosen = np.flatnonzero(~is_host[category] & (end >= start))
    kind = np.array([CLASSES.get(word, OTHER) for word in classes], np.int64)[kernel_class]
    told: dict[int, int] = {}
    labels = [told.setdefault(pair, len(told)) for pair in (kernel_class[chosen] * len(names) + name[chosen]).tolist()]
    words = [(classes[pair // len(names)], names[pair % len(names)]) for pair in told]
    named.append(DeviceActivities(0, start[chosen].tolist(), end[chosen].tolist(), [], labels, words))
    places = rank[chosen] * len(devices) + device[chosen]
    for place in sorted(set(places.tolist())):
        own = chosen[places == place]
        key = (incarnation, place // len(devices), devices[place % len(devices)])
        yield _Activities(key, start[own], end[own], kind[own], proc[own], record[own])


def _parts(found: _Activities) -> tuple[int, ...]:
    """Span, compute, communication, copy, overlap, exposed communication, copies and other, idle (see `trace_time`)."""
    start, end, kind = found.start, found.end, found.kind

    def length(chosen: npt.NDArray[np.bool_]) -> int:
        return union(start[chosen], end[chosen]).length

    span = int(end.max() - start.min())
    compute, communication, copy = (length(kind == which) for which in (COMPUTE, COMMUNICATION, COPY))
    either, told, everything = length(kind <= COMMUNICATION), length(kind <= COPY), union(start, end).length
    return (span, compute, communication, copy, compute + communication - either, either - compute, told - either,
            everything - told, span - everything)  # fmt: skip


def _exposure(run: SmallRun, found: list[_Activities], coverage: float | None) -> Exposure:
    told = SmallEvidence(run, EXPOSURE, whole(EXPOSURE, "device"), DEVICE_TABLES, coverage, DEVICE_WINDOW,
                         caveats=(CAVEAT,))  # fmt: skip
    issued = _issued(run)
    rows = [(*item.device, *row) for item in found for row in _shares(item, issued)]
    parts = device_parts(rows, groups_of(_groups(run)))
    return Exposure(parts, tuple(measured(told, parts)))


def _issued(run: SmallRun) -> dict[tuple[int, int, int], _Operation]:
    """The operation of each kernel, by process, begin and end; of several the first."""
    first: dict[tuple[int, int, int], tuple[int, _Operation]] = {}
    for item in run.files("collective"):
        rows = run.read(item, ["proc", "record", "device_start_ns", "device_end_ns", "group_id", "op"])
        columns = [numbers_of(rows, name).tolist() for name in ("proc", "device_start_ns", "device_end_ns", "record")]
        (group, groups), (op, ops) = words_of(rows, "group_id"), words_of(rows, "op")
        operations = zip(map(groups.__getitem__, group.tolist()), map(ops.__getitem__, op.tolist()), strict=True)
        for proc, start, end, record, operation in zip(*columns, operations, strict=True):
            known = first.get((proc, start, end))
            if known is None or record < known[0]:
                first[proc, start, end] = (record, operation)
    return {kernel: operation for kernel, (_, operation) in first.items()}


def _groups(run: SmallRun) -> list[tuple[Any, ...]]:
    rows = sorted(run.entities("process_group"), key=lambda row: str(row["group_id"]))
    if len({row["group_id"] for row in rows}) < len(rows):
        raise NotSmall
    names = ("group_id", "backend", "mesh_dimension", "description", "size", "member_starts", "member_strides",
             "member_counts")  # fmt: skip
    return [tuple(row[name] for name in names) for row in rows]


def _shares(found: _Activities, issued: dict[tuple[int, int, int], _Operation]) -> list[tuple[Any, ...]]:
    """Group, operation, communication and its exposed part (ns), pieces."""
    is_compute, is_talking = found.kind == COMPUTE, found.kind == COMMUNICATION
    compute = union(found.start[is_compute], found.end[is_compute])
    start, end, proc, record = (
        column[is_talking] for column in (found.start, found.end, found.proc, found.record)
    )  # fmt: skip
    order = np.lexsort((record, proc, end, start))
    start, end, proc = start[order], end[order], proc[order]
    own = start.copy()
    own[1:] = np.maximum(start[1:], np.maximum.accumulate(end)[:-1])
    left = own < end
    edges = np.sort(np.concatenate([found.start[is_compute], found.end[is_compute], own[left], end[left]]))
    edges = edges[np.append(edges[1:] != edges[:-1], True)[: len(edges)]]  # not np.unique: it loads numpy.ma, 20 ms
    exposed = end - own - (compute.until(end) - compute.until(own))
    num = np.searchsorted(edges, end) - np.searchsorted(edges, own)
    sums: dict[tuple[int, str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    columns = (column[left].tolist() for column in (proc, start, end, own, exposed, num))
    for process, begin, stop, first, ns, pieces in zip(*columns, strict=True):
        operation = issued.get((process, begin, stop))
        share = sums[_NOBODYS if operation is None else (1, *operation)]
        share[0] += stop - first
        share[1] += ns
        share[2] += pieces
    return [(*(key[1:] if key != _NOBODYS else (None, None)), *sums[key]) for key in sorted(sums)]
