"""From ring bytes to records, and from these to Arrow rows (`ring_rows`): used by the agent and by readers of a crash.

Works on whole arrays. A record counts if its two generation words agree and are not 0; see `ring` for the layout.
Loads numpy and pyarrow.
"""

import json
import mmap
import os
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from . import ring
from .errors import NewerOntology, UnreadableFile
from .raw_records import Numbers as Numbers  # noqa: PLC0414 (handed on)
from .raw_records import Records as Records  # noqa: PLC0414 (handed on)
from .raw_records import words_dtype
from .ring_header import RingHeader
from .ring_header import encode_header as encode_header  # noqa: PLC0414 (handed on)
from .ring_rows import Names as Names  # noqa: PLC0414 (handed on)
from .ring_rows import to_arrow as to_arrow  # noqa: PLC0414 (handed on)
from .tables import RING_TABLES
from .version import readable

_OPAQUE: Final = np.dtype((np.void, ring.RECORD_BYTES))
"""Whole records: copying a structured array would leave out the bytes between its fields."""


def open_ring(path: str) -> tuple[RingHeader, mmap.mmap]:
    """Map a ring file for reading (a live writer may go on). The caller closes the map.

    Raises UnreadableFile (missing, truncated, foreign) or NewerOntology.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise UnreadableFile(f"{path}: {error}") from error
    try:
        return map_ring(path, descriptor)
    finally:
        os.close(descriptor)


def map_ring(path: str, descriptor: int) -> tuple[RingHeader, mmap.mmap]:
    """As `open_ring`, for a file that is open; the descriptor stays open. path: for messages."""
    try:
        view = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"{path}: {error}") from error
    try:
        return _header(path, view), view
    except Exception:
        view.close()
        raise


def snapshot(view: mmap.mmap, header: RingHeader, first: int = 0, window: int | None = None) -> tuple[Records, Numbers]:
    """A copy of the valid records numbered `first` and up, in order of their numbers.

    window: look only at the slots of that many numbers from `first` on (what lies there may have later numbers).
    Returns (records: void array of 128 bytes each, numbers: int64). What was overwritten is simply not there.
    """
    everything = np.frombuffer(view, _OPAQUE, header.capacity, ring.DATA_OFFSET)
    slots = np.arange(header.capacity, dtype=np.int64)
    if window is not None and window < header.capacity:
        slots = np.arange(first, first + window, dtype=np.int64) % header.capacity
    generations = everything.view(words_dtype())["begin"][slots].astype(np.int64)
    numbers = (generations - 1) * header.capacity + slots
    chosen = np.flatnonzero((generations > 0) & (numbers >= first))
    records = everything[slots[chosen]]
    words = records.view(words_dtype())
    valid = (words["begin"] == words["end"]) & (words["begin"] == generations[chosen])
    numbers = numbers[chosen]
    if not valid.all():
        records, numbers = records[valid], numbers[valid]
    return in_order(records, numbers)


def in_order(records: Records, numbers: Numbers) -> tuple[Records, Numbers]:
    """Both by ascending number; the same objects where they are."""
    if bool((numbers[1:] > numbers[:-1]).all()):
        return records, numbers
    order = np.argsort(numbers, kind="stable")
    return records[order], numbers[order]


def counters(view: mmap.mmap) -> npt.NDArray[np.uint64]:
    """The hooks' counters: one row per hook index, columns as in `ring.COUNTERS`."""
    flat = np.frombuffer(view, np.uint64, ring.MAX_HOOKS * len(ring.COUNTERS), ring.HEADER_BYTES)
    return flat.reshape(ring.MAX_HOOKS, len(ring.COUNTERS)).copy()


def base_times(records: Records) -> npt.NDArray[np.int64]:
    """The opening time (CLOCK_MONOTONIC ns) of each record, whatever its kind."""
    times, kinds = np.zeros(len(records), np.int64), np.ascontiguousarray(records.view(words_dtype())["kind"])
    data = records.view(np.uint8).reshape(len(records), ring.RECORD_BYTES)
    for kind in np.flatnonzero(np.bincount(kinds)).tolist():
        offset = _base_offsets().get(kind)
        if offset is not None:
            column = data[:, offset : offset + 8].copy().view("<i8").reshape(-1)
            np.copyto(times, column, where=kinds == kind)
    return times


@cache
def _base_offsets() -> dict[int, int]:
    """By kind of record: where its opening time lies."""
    layouts = {kind: ring.layout(kind) for kind in RING_TABLES}
    found = {kind: layout.fields[layout.base].offset for kind, layout in layouts.items()}
    return {**found, ring.LATE_CLOSE: ring.LATE_CLOSE_OFFSET}


@dataclass(frozen=True, slots=True)
class LateClose:
    """A completion whose record had been overwritten: what `RingLayout.close_columns` become in record `record`."""

    record: int
    kind: int
    state: int
    timing: int
    values: dict[str, int]


def late_closes(records: Records) -> list[LateClose]:
    """The completions among `records` that came after their own record had been overwritten (see `ring.LATE_CLOSE`)."""
    found = []
    for raw in records[records.view(words_dtype())["kind"] == ring.LATE_CLOSE]:
        data = bytes(raw)
        _closed_ns, record, kind, state, timing = ring.LATE_CLOSE_STRUCT.unpack_from(data, ring.LATE_CLOSE_OFFSET)
        layout = ring.layout(kind)
        values = layout.close_struct.unpack_from(data, ring.LATE_VALUES_OFFSET)
        found.append(LateClose(record, kind, state, timing, dict(zip(layout.close_columns, values, strict=True))))
    return found


def _header(path: str, view: mmap.mmap) -> RingHeader:
    try:
        document: dict[str, Any] = json.loads(view[: ring.HEADER_BYTES].rstrip(b"\0"))
        if document.get("magic") != ring.MAGIC:
            raise ValueError("not a rankscope ring")
        header = RingHeader(document["proc"], document["capacity"], document["ontology"], document["created_ns"])
    except (ValueError, KeyError, AttributeError) as error:
        raise UnreadableFile(f"{path}: {error}") from error
    if not readable(header.ontology):
        raise NewerOntology(f"{path}: written under ontology {header.ontology}")
    if document["record_bytes"] != ring.RECORD_BYTES or len(view) < ring.ring_bytes(header.capacity):
        raise UnreadableFile(f"{path}: truncated, or another record size")
    return header
