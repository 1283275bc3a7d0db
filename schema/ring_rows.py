"""Ring records as Arrow rows, those of many processes in one go.

A call costs about 3 ms whatever it is given, and 1 us a row, so the agent gives the records of all local ranks at once.
Loads numpy and pyarrow.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from . import ring
from .arrow import arrow_schema
from .enums import ENUMS
from .raw_records import Numbers, Records, body_dtype, words_dtype
from .ring import RingLayout

_ROOTED: Final = ("broadcast", "reduce", "gather", "scatter", "broadcast_coalesced")
_UNKNOWN: Final = -1


@dataclass(slots=True)
class Names:
    """What the numbers in a process's records stand for; filled from its journal."""

    names: dict[int, str] = field(default_factory=dict)
    groups: dict[int, str] = field(default_factory=dict)
    threads: dict[int, int] = field(default_factory=dict)


class Part(NamedTuple):
    """Records of one process, all of one kind."""

    records: Records
    numbers: Numbers
    proc: int
    rank: int | None
    names: Names


def to_arrow(records: Records, numbers: Numbers, kind: int, proc: int, rank: int | None, names: Names) -> pa.Table:
    """The Arrow rows of the records of one ring kind (records of other kinds are left out), in their order."""
    chosen = records.view(words_dtype())["kind"] == kind
    return parts_to_arrow(kind, [Part(records[chosen], numbers[chosen], proc, rank, names)])


def parts_to_arrow(kind: int, parts: Sequence[Part]) -> pa.Table:
    """The Arrow rows of `parts`, one after the other."""
    layout = ring.layout(kind)
    body = np.concatenate([part.records for part in parts]).view(body_dtype(kind))
    sizes = [len(part.records) for part in parts]
    found: dict[str, npt.NDArray[Any] | pa.Array] = {
        "proc": np.repeat(np.array([part.proc for part in parts], np.int64), sizes),
        "record": np.concatenate([part.numbers for part in parts]),
        "rank": _nullable(np.repeat(np.array([-1 if p.rank is None else p.rank for p in parts], np.int32), sizes), -1),
    }
    for name, place in layout.fields.items():
        found[name] = _column(body, place, layout, parts, sizes)
    found |= _word_columns(body, layout, parts, sizes)
    schema = arrow_schema(layout.table.name)
    return pa.Table.from_arrays([_typed(found[item.name], item.type) for item in schema], schema=schema)


def _column(  # noqa: PLR0911
    body: Records, place: ring.Field, layout: RingLayout, parts: Sequence[Part], sizes: list[int]
) -> npt.NDArray[Any] | pa.Array:
    values = body[place.name]
    if place.encoding == "enum":
        return _enumeration(values, place.enum)
    if place.encoding in ("intern", "group"):
        return _interned(values, [p.names.groups if place.encoding == "group" else p.names.names for p in parts], sizes)
    if place.encoding == "offset_100ns":
        values = np.ascontiguousarray(values)
        if not values.any():
            return pa.nulls(len(values), pa.int64())
        return pa.array(body[layout.base] + values.astype(np.int64) * ring.OFFSET_UNIT_NS, mask=values == 0)
    if place.encoding == "bool":
        return pa.array(values != 0)
    if place.encoding == "zero_null":
        return _nullable(values, 0)
    if place.encoding == "minus_one_null":
        return _nullable(values, -1)
    return np.ascontiguousarray(values)


def _word_columns(
    body: Records, layout: RingLayout, parts: Sequence[Part], sizes: list[int]
) -> dict[str, npt.NDArray[Any] | pa.Array]:
    found: dict[str, npt.NDArray[Any] | pa.Array] = {}
    declared = layout.table.names
    if "thread_id" in declared:
        tables = [_lookup(part.names.threads, 256) for part in parts]
        found["thread_id"] = _nullable(_looked_up(body["_thread"], tables, sizes), _UNKNOWN)
    if "state" in declared:
        found["state"] = _enumeration(body["_state"], "state")
    if "timing_source" in declared:
        found["timing_source"] = _enumeration(body["_timing"], "timing_source")
    if "root" in declared:
        found |= _peers(body)
    return found


def _peers(body: Records) -> dict[str, pa.Array]:
    """A rooted collective stores its root in the place of src; only P2P rows have src and dst."""
    rooted, source = _is_rooted()[body["op"]], body["src"]
    return {
        "root": pa.array(source, mask=~rooted | (source == -1)),
        "src": pa.array(source, mask=rooted | (source == -1)),
    }


def _nullable(values: npt.NDArray[Any], null: int) -> pa.Array:
    values = np.ascontiguousarray(values)  # not every 128th byte, twice
    return _masked(values, values == null)


def _masked(values: npt.NDArray[Any], is_null: npt.NDArray[np.bool_]) -> pa.Array:
    """A mask costs as much as the values: most columns need none."""
    return pa.array(values, mask=is_null) if is_null.any() else pa.array(values)


def _typed(values: npt.NDArray[Any] | pa.Array, type_: pa.DataType) -> pa.Array:
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return array if array.type == type_ else array.cast(type_)


def _enumeration(codes: npt.NDArray[np.uint8], vocabulary: str) -> pa.DictionaryArray:
    values = _vocabulary(vocabulary)
    places = codes.astype(np.int32) - 1
    indices = _masked(places, (places < 0) | (places >= len(values)))
    return pa.DictionaryArray.from_arrays(indices, values)


@cache
def _vocabulary(name: str) -> pa.Array:
    return pa.array(ENUMS[name], pa.string())


@cache
def _is_rooted() -> npt.NDArray[np.bool_]:
    rooted = np.zeros(256, np.bool_)
    rooted[[ENUMS["op"].index(op) + 1 for op in _ROOTED]] = True
    return rooted


def _interned(values: npt.NDArray[np.uint32], known: Sequence[dict[int, str]], sizes: list[int]) -> pa.DictionaryArray:
    """Each process has numbers of its own; equal texts get one place in the common dictionary."""
    places: dict[str, int] = {}
    tables = []
    for numbers in known:
        coded = {number: places.setdefault(text, len(places)) for number, text in numbers.items() if number}
        tables.append(_lookup(coded, max(coded, default=0) + 1))
    indices = _looked_up(values, tables, sizes).astype(np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=indices < 0), pa.array(places, pa.string()))


def _lookup(known: dict[int, int], size: int) -> npt.NDArray[np.int64]:
    table = np.full(size, _UNKNOWN, np.int64)
    for number, value in known.items():
        if 0 <= number < size:
            table[number] = value
    return table


def _looked_up(values: npt.NDArray[Any], tables: list[npt.NDArray[np.int64]], sizes: list[int]) -> Numbers:
    found, at = np.empty(len(values), np.int64), 0
    for table, size in zip(tables, sizes, strict=True):
        part = values[at : at + size]
        found[at : at + size] = np.where(part < len(table), table[np.minimum(part, len(table) - 1)], _UNKNOWN)
        at += size
    return found
