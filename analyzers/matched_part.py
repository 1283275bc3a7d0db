"""Operations of a part matched over its ranks: what `arrival` and `matched_operation` define, without their sorts.

Each group of the part is taken by itself. Its members nearly always have the same numbers in the same order: then their
rows are a matrix, members by operations, and last arrival, median completion and waits are taken over its columns.
Otherwise the rows are sorted by operation first. Groups with members elsewhere are left alone, unless the same host
has several parts: then the rows of operations that are not whole here travel, to be matched in `merge`.

About 40 ns a row beside reading it.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .intervals import Ints, segments
from .part import NULL, Columns, Part
from .sequence_gaps import stable_order
from .statements import statement

TOGETHER: Final = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor", "all_to_all",
    "all_to_all_single", "barrier", "all_reduce_coalesced", "all_gather_coalesced", "all_gather_into_tensor_coalesced",
    "reduce_scatter_coalesced", "reduce_scatter_tensor_coalesced",
)  # fmt: skip
"""Operations after which all members go on together; the same list as in `derived.sql`."""
_NAMES: Final = ("proc", "record", "group_id", "op", "seq", "issued_ns", "completed_ns")
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows in the order of (lane, seq). lane: code of process, incarnation and group; host: code of boot id, or -1."""

    lane: Ints
    op: Ints
    seq: Ints
    arrival: Ints
    completed: Ints
    proc: Ints
    host: Ints
    incarnation: Ints
    group: Ints

    def take(self, index: Ints | Flags) -> "_Rows":
        """Some of the rows."""
        return _Rows(*(getattr(self, name)[index] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class _Matched:
    """Matched operations of one group. arrivals: [member, operation]."""

    incarnation: int
    group: int
    op: Ints
    seq: Ints
    arrivals: Ints
    completed: Ints


def offer_matched(part: Part) -> None:
    """part_matched (one row an operation), part_matched_wait (one for each of its ranks), part_unmatched_arrival."""
    columns = _read(part)
    hosts, names = _hosts(part)
    rows = _ordered(columns, hosts)
    sizes = dict(
        part.rows("SELECT group_id, max(size) FROM process_group WHERE group_id IS NOT NULL GROUP BY group_id")
    )
    size_of = [sizes.get(text) or 0 for text in columns.texts["group_id"]]
    together = np.array([text in TOGETHER for text in columns.texts["op"]] + [False], np.bool_)
    shared = np.array([name in part.task.shared_hosts for name in names] + [False], np.bool_)
    found, rest = [], []
    for own in _by_group(rows, part.task.bounds.window):
        size = size_of[own.group[0]]
        is_shared = bool(shared[own.host].any())
        if size and (is_shared or len(np.unique(own.lane)) >= size):
            matched, others = _match(own.take(together[own.op]), size)
            found += matched
            rest += [others] if is_shared else []
    _offer(part, columns, names, found, rest)


def _read(part: Part) -> Columns:
    """The part's rows; with a window, the last row before it of each process and group too."""
    window = part.task.bounds.window
    if window is None or window[0] is None:
        return part.columns("collective", _NAMES)
    carried = statement("communication", "carried").replace("{first}", str(window[0]))
    return part.selected(f"SELECT incarnation, {', '.join(_NAMES)} FROM collective UNION ALL BY NAME {carried}")


def _hosts(part: Part) -> tuple[dict[int, int], list[str]]:
    """(code of the boot id by process, the boot ids)."""
    rows = part.rows("SELECT proc, min(boot_id) FROM process WHERE boot_id IS NOT NULL GROUP BY proc")
    names = sorted({str(boot_id) for _, boot_id in rows})
    codes = {name: code for code, name in enumerate(names)}
    return {int(proc): codes[str(boot_id)] for proc, boot_id in rows}, names


def _ordered(columns: Columns, hosts: dict[int, int]) -> _Rows:
    """Rows that can be matched, in order, with their arrivals."""
    process, pairs = columns.processes()
    group, op, seq = columns.codes["group_id"], columns.codes["op"], columns.numbers["seq"]
    issued, texts = columns.numbers["issued_ns"], columns.texts["op"]
    transfers = [texts.index(name) for name in ("send", "recv") if name in texts]
    chosen = (group >= 0) & (op >= 0) & (seq != NULL) & (issued != NULL) & ~np.isin(op, transfers)
    lane = process * max(1, len(columns.texts["group_id"])) + group
    index = np.flatnonzero(chosen)
    order = index[stable_order(lane[index])]
    lane, seq = lane[order], seq[order]
    is_same = lane[1:] == lane[:-1]
    if np.any(is_same & (seq[1:] <= seq[:-1])):
        again = np.lexsort((columns.numbers["record"][order], seq, lane))
        order, lane, seq = order[again], lane[again], seq[again]
        is_same = lane[1:] == lane[:-1]
    completed, before = columns.numbers["completed_ns"][order], np.full(len(order), NULL, np.int64)
    before[1:][is_same] = completed[:-1][is_same]
    host_of = np.array([hosts.get(int(proc), -1) for _, proc in pairs], np.int64)
    own = process[order]
    arrival = np.maximum(issued[order], before)
    return _Rows(
        lane, op[order], seq, arrival, completed, pairs[own, 1], host_of[own], pairs[own, 0], group[order]
    )  # fmt: skip


def _by_group(rows: _Rows, window: tuple[int | None, int | None] | None) -> Iterator[_Rows]:
    """The rows of each group and incarnation, in the order of (lane, seq), without those carried over."""
    if window is not None and window[0] is not None:
        rows = rows.take(rows.seq >= window[0])
    lanes = segments(rows.lane)
    teams: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for _, low, high in lanes:
        teams[int(rows.incarnation[low]), int(rows.group[low])].append((low, high))
    for bounds in teams.values():
        yield rows.take(np.concatenate([np.arange(low, high) for low, high in bounds]))


def _match(rows: _Rows, size: int) -> tuple[list[_Matched], _Rows]:
    """What of one group is whole here, and the rows of what is not. size: its number of members."""
    lanes = segments(rows.lane)
    num = len(rows.seq) // size
    if len(lanes) == size and num * size == len(rows.seq):
        seq, op = rows.seq.reshape(size, num), rows.op.reshape(size, num)
        is_alike = all(high - low == num for _, low, high in lanes) and (seq == seq[0]).all() and (op == op[0]).all()
        if is_alike and (seq[0, 1:] > seq[0, :-1]).all():
            return _whole(rows, np.arange(num * size).reshape(size, num)), rows.take(np.zeros(0, np.int64))
    order = np.lexsort((rows.lane, rows.seq, rows.op))
    rows = rows.take(order)
    key = np.cumsum(np.concatenate([[0], (rows.seq[1:] != rows.seq[:-1]) | (rows.op[1:] != rows.op[:-1])]))
    runs = np.array([(low, high) for _, low, high in segments(key)], np.int64).reshape(-1, 2)
    is_full = runs[:, 1] - runs[:, 0] == size
    places = runs[is_full, 0][None, :] + np.arange(size)[:, None]
    is_apart = (rows.lane[places[1:]] != rows.lane[places[:-1]]).all(axis=0)
    is_short = np.repeat(runs[:, 1] - runs[:, 0] < size, runs[:, 1] - runs[:, 0])
    return _whole(rows, places[:, is_apart]), rows.take(is_short)


def _whole(rows: _Rows, places: Ints) -> list[_Matched]:
    """The operations whose rows stand at places[member, operation], if all are complete and on one host."""
    host, completed = rows.host[places], rows.completed[places]
    good = (completed != NULL).all(axis=0) & (host == host[0]).all(axis=0) & (host[0] >= 0)
    if not good.any():
        return []
    places = places[:, good]
    first = places[0]
    middle = np.partition(np.ascontiguousarray(completed[:, good].T), (len(places) - 1) // 2, axis=1)
    return [_Matched(
        int(rows.incarnation[first[0]]), int(rows.group[first[0]]), rows.op[first], rows.seq[first],
        rows.arrival[places], middle[:, (len(places) - 1) // 2],
    )]  # fmt: skip


def _offer(part: Part, columns: Columns, names: list[str], found: list[_Matched], rest: list[_Rows]) -> None:
    group, op = (pa.array(columns.texts[name], pa.string()) for name in ("group_id", "op"))

    def text(codes: list[Ints], texts: pa.Array) -> pa.Array:
        whole = np.concatenate([np.zeros(0, np.int64), *codes]).astype(np.int32)
        return pa.DictionaryArray.from_arrays(pa.array(whole), texts)

    def number(values: list[Ints]) -> pa.Array:
        whole = np.concatenate([np.zeros(0, np.int64), *values])
        return pa.array(whole, pa.int64(), mask=whole == NULL)

    lasts = [item.arrivals.max(axis=0) for item in found]
    part.offer("part_matched", pa.table({
        "incarnation": number([np.full(len(item.seq), item.incarnation) for item in found]),
        "group_id": text([np.full(len(item.seq), item.group) for item in found], group),
        "op": text([item.op for item in found], op), "seq": number([item.seq for item in found]),
        "last_ns": number(lasts), "first_ns": number([item.arrivals.min(axis=0) for item in found]),
        "completed_ns": number([item.completed for item in found]),
    }))  # fmt: skip
    part.offer("part_matched_wait", pa.table({
        "group_id": text([np.full(item.arrivals.size, item.group) for item in found], group),
        "op": text([np.tile(item.op, len(item.arrivals)) for item in found], op),
        "wait_ns": number([(last - item.arrivals).reshape(-1) for item, last in zip(found, lasts, strict=True)]),
    }))  # fmt: skip
    part.offer("part_unmatched_arrival", pa.table({
        "incarnation": number([item.incarnation for item in rest]), "seq": number([item.seq for item in rest]),
        "group_id": text([item.group for item in rest], group), "op": text([item.op for item in rest], op),
        "proc": number([item.proc for item in rest]), "arrival_ns": number([item.arrival for item in rest]),
        "boot_id": text([item.host for item in rest], pa.array(names, pa.string())),
        "completed_ns": number([item.completed for item in rest]),
    }))  # fmt: skip
