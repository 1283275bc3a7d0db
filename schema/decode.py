"""From ring bytes to Arrow rows: the one decoder, used by the draining agent and by the reader after a crash.

Works on whole arrays (about 50 ns a row and column). A record counts if its two generation words agree and are not 0;
see `ring` for the layout. Loads numpy and pyarrow.
"""

import json
import mmap
import os
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from . import ring
from .arrow import arrow_schema
from .enums import ENUMS
from .errors import NewerOntology, UnreadableFile
from .ring import RingLayout
from .ring_header import RingHeader
from .tables import RING_TABLES
from .ring_header import encode_header as encode_header
from .version import readable

Records = npt.NDArray[np.void]
Numbers = npt.NDArray[np.int64]
_ROOTED: Final = ("broadcast", "reduce", "gather", "scatter", "broadcast_coalesced")
_OPAQUE: Final = np.dtype((np.void, ring.RECORD_BYTES))
"""Whole records: copying a structured array would leave out the bytes between its fields."""
_MINUS_ONE: Final = {"q": -1, "i": -1, "h": -1}


@dataclass(slots=True)
class Names:
    """What the numbers in a process's records stand for; filled from its journal."""

    names: dict[int, str] = field(default_factory=dict)
    groups: dict[int, str] = field(default_factory=dict)
    threads: dict[int, int] = field(default_factory=dict)


def open_ring(path: str) -> tuple[RingHeader, mmap.mmap]:
    """Map a ring file for reading (a live writer may go on). The caller closes the map.

    Not for a process's own ring: closing a descriptor or map of it drops the lock that says the process lives.
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


def snapshot(view: mmap.mmap, header: RingHeader, first: int = 0) -> tuple[Records, Numbers]:
    """A copy of the valid records numbered `first` and up, in order of their numbers.

    Returns (records: void array of 128 bytes each, numbers: int64). What was overwritten is simply not there.
    """
    everything = np.frombuffer(view, _OPAQUE, header.capacity, ring.DATA_OFFSET)
    generations = everything.view(_raw())["begin"].astype(np.int64)
    numbers = (generations - 1) * header.capacity + np.arange(header.capacity, dtype=np.int64)
    chosen = np.flatnonzero((generations > 0) & (numbers >= first))
    records = everything[chosen].copy()
    words = records.view(_raw())
    valid = (words["begin"] == words["end"]) & (words["begin"] == generations[chosen])
    records, numbers = records[valid], numbers[chosen][valid]
    order = np.argsort(numbers, kind="stable")
    return records[order], numbers[order]


def counters(view: mmap.mmap) -> npt.NDArray[np.uint64]:
    """The hooks' counters: one row per hook index, columns as in `ring.COUNTERS`."""
    flat = np.frombuffer(view, np.uint64, ring.MAX_HOOKS * len(ring.COUNTERS), ring.HEADER_BYTES)
    return flat.reshape(ring.MAX_HOOKS, len(ring.COUNTERS)).copy()


def base_times(records: Records) -> npt.NDArray[np.int64]:
    """The opening time (CLOCK_MONOTONIC ns) of each record, whatever its kind."""
    times, kinds = np.zeros(len(records), np.int64), records.view(_raw())["kind"]
    for kind in RING_TABLES:
        layout = ring.layout(kind)
        chosen = kinds == kind
        times[chosen] = records[chosen].view(_dtype(kind))[layout.base]
    late = np.flatnonzero(kinds == ring.LATE_CLOSE)
    flat = records[late].view(np.uint8).reshape(len(late), ring.RECORD_BYTES)
    times[late] = flat[:, ring.LATE_CLOSE_OFFSET : ring.LATE_CLOSE_OFFSET + 8].copy().view("<i8").reshape(-1)
    return times


@dataclass(frozen=True, slots=True)
class LateClose:
    """A completion whose record had been overwritten in the ring: what `RingLayout.close_columns` become in record `record`."""

    record: int
    kind: int
    state: int
    timing: int
    values: dict[str, int]


def late_closes(records: Records) -> list[LateClose]:
    """The completions among `records` that came after their own record had been overwritten (see `ring.LATE_CLOSE`)."""
    found = []
    for raw in records[records.view(_raw())["kind"] == ring.LATE_CLOSE]:
        data = bytes(raw)
        _closed_ns, record, kind, state, timing = ring.LATE_CLOSE_STRUCT.unpack_from(data, ring.LATE_CLOSE_OFFSET)
        layout = ring.layout(kind)
        values = layout.close_struct.unpack_from(data, ring.LATE_VALUES_OFFSET)
        found.append(LateClose(record, kind, state, timing, dict(zip(layout.close_columns, values, strict=True))))
    return found


def to_arrow(records: Records, numbers: Numbers, kind: int, proc: int, rank: int | None, names: Names) -> pa.Table:
    """The Arrow rows of the records of one ring kind (records of other kinds are left out), in their order."""
    chosen = records.view(_raw())["kind"] == kind
    layout, body, numbers = ring.layout(kind), records[chosen].view(_dtype(kind)), numbers[chosen]
    columns: dict[str, pa.Array] = {
        "proc": pa.array(np.full(len(body), proc, np.int64)),
        "rank": pa.array([rank] * len(body), pa.int32()),
        "record": pa.array(numbers),
    }
    for name, place in layout.fields.items():
        columns[name] = _column(body, name, place.encoding, place, layout, names)
    columns |= _header_columns(body, layout, names, columns)
    schema = arrow_schema(layout.table.name)
    return pa.Table.from_arrays([columns[item.name].cast(item.type) for item in schema], schema=schema)


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


@cache
def _raw() -> np.dtype[np.void]:
    return np.dtype({
        "names": ["begin", "kind", "state", "timing", "thread", "end"],
        "formats": ["<u4", "u1", "u1", "u1", "u1", "<u4"],
        "offsets": [0, 4, 5, 6, 7, ring.END_OFFSET], "itemsize": ring.RECORD_BYTES,
    })  # fmt: skip


@cache
def _dtype(kind: int) -> np.dtype[np.void]:
    raw, places = _raw(), ring.layout(kind).fields.values()
    assert raw.names is not None and raw.fields is not None
    return np.dtype({
        "names": ["begin", "_kind", "_state", "_timing", "_thread", "end", *(place.name for place in places)],
        "formats": [*(raw.fields[name][0] for name in raw.names), *("<" + place.format for place in places)],
        "offsets": [*(raw.fields[name][1] for name in raw.names), *(place.offset for place in places)],
        "itemsize": ring.RECORD_BYTES,
    })  # fmt: skip


def _column(body: Records, name: str, encoding: str, place: ring.Field, layout: RingLayout, names: Names) -> pa.Array:
    values = body[name]
    if place.moment == "close" and encoding == "zero_null":
        return pa.array(values, mask=values == 0)
    if encoding == "enum":
        return _dictionary(values.astype(np.int64) - 1, list(ENUMS[place.enum]))
    if encoding in ("intern", "group"):
        return _interned(values, names.groups if encoding == "group" else names.names)
    if encoding == "offset_100ns":
        absolute = body[layout.base] + values.astype(np.int64) * ring.OFFSET_UNIT_NS
        return pa.array(absolute, mask=values == 0)
    if encoding == "bool":
        return pa.array(values != 0)
    if encoding == "zero_null":
        return pa.array(values.astype(np.int64), mask=values == 0)
    if encoding == "minus_one_null":
        return pa.array(values, mask=values == _MINUS_ONE[place.format])
    return pa.array(values)


def _header_columns(
    body: Records, layout: RingLayout, names: Names, columns: dict[str, pa.Array]
) -> dict[str, pa.Array]:
    found: dict[str, pa.Array] = {}
    declared = layout.table.names
    if "thread_id" in declared:
        known = np.array([names.threads.get(index, -1) for index in range(256)], np.int64)[body["_thread"]]
        found["thread_id"] = pa.array(known, mask=known < 0)
    if "state" in declared:
        found["state"] = _dictionary(body["_state"].astype(np.int64) - 1, list(ENUMS["state"]))
    if "timing_source" in declared:
        found["timing_source"] = _dictionary(body["_timing"].astype(np.int64) - 1, list(ENUMS["timing_source"]))
    if "root" in declared:
        found |= _peers(body, columns)
    return found


def _peers(body: Records, columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """A rooted collective stores its root in the place of src; only P2P rows have src and dst."""
    rooted = np.isin(body["op"], [ENUMS["op"].index(op) + 1 for op in _ROOTED])
    source = body["src"]
    return {
        "root": pa.array(source, mask=~rooted | (source == -1)),
        "src": pa.array(source, mask=rooted | (source == -1)),
        "dst": columns["dst"],
    }


def _dictionary(codes: npt.NDArray[np.int64], values: list[str]) -> pa.Array:
    outside = (codes < 0) | (codes >= len(values))
    indices = pa.array(np.where(outside, 0, codes).astype(np.int32), mask=outside)
    return pa.DictionaryArray.from_arrays(indices, pa.array(values, pa.string()))


def _interned(values: npt.NDArray[np.uint32], known: dict[int, str]) -> pa.Array:
    unique, inverse = np.unique(values, return_inverse=True)
    texts = [known.get(int(number)) if number else None for number in unique]
    if not texts:
        return pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), pa.array([], pa.string()))
    missing = np.array([text is None for text in texts])[inverse]
    return pa.DictionaryArray.from_arrays(
        pa.array(inverse.astype(np.int32), mask=missing), pa.array([text or "" for text in texts], pa.string())
    )
