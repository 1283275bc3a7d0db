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
from .relations import COLUMNS
from .sequence_gaps import stable_order
from .statements import statement

TOGETHER: Final = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor", "all_to_all",
    "all_to_all_single", "barrier", "all_reduce_coalesced", "all_gather_coalesced", "all_gather_into_tensor_coalesced",
    "reduce_scatter_coalesced", "reduce_scatter_tensor_coalesced",
)  # fmt: skip
"""Operations after which all members go on together; the same list as in `derived.sql`."""
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows in the order of (lane, seq). lane: code of process, incarnation and group."""

    lane: Ints
    op: Ints
    seq: Ints
    arrival: Ints
    completed: Ints

    def take(self, index: Ints | Flags) -> "_Rows":
        """Some of the rows."""
        return _Rows(self.lane[index], self.op[index], self.seq[index], self.arrival[index], self.completed[index])


@dataclass(frozen=True, slots=True)
class _Lanes:
    """What is known of each lane, by its code. host: code of the boot id, or -1. size: of the group. is_open: its
    operations may have members in other parts. is_wanted: there are enough members here, or it is open.
    """

    proc: Ints
    incarnation: Ints
    group: Ints
    host: Ints
    size: Ints
    is_open: Flags
    is_wanted: Flags


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
    process, pairs = columns.processes()
    lane = process * max(1, len(columns.texts["group_id"])) + columns.codes["group_id"]
    can = _can_be_matched(columns)
    lanes = _lanes(part, columns, pairs, hosts, names, np.bincount(lane[can], minlength=1))
    rows = _ordered(columns, lane, can & lanes.is_wanted[np.minimum(lane, len(lanes.is_wanted) - 1)])
    together = np.array([text in TOGETHER for text in columns.texts["op"]] + [False], np.bool_)
    found, rest = [], []
    for own in _by_group(rows, lanes, part.task.bounds.window):
        matched, others = _match(own.take(together[own.op]), lanes)
        found += matched
        rest += [others] if lanes.is_open[own.lane[0]] else []
    _offer(part, columns, names, lanes, found, rest)


def _read(part: Part) -> Columns:
    """The part's rows; with a window, the last row before it of each process and group too."""
    window, names = part.task.bounds.window, COLUMNS["part_matched"]["collective"]
    if window is None or window[0] is None:
        return part.columns("collective", names)
    carried = statement("communication", "carried").replace("{first}", str(window[0]))
    return part.selected(f"SELECT incarnation, {', '.join(names)} FROM collective UNION ALL BY NAME {carried}")


def _hosts(part: Part) -> tuple[dict[int, int], list[str]]:
    """(code of the boot id by process, the boot ids)."""
    rows = part.rows("SELECT proc, min(boot_id) FROM process WHERE boot_id IS NOT NULL GROUP BY proc")
    names = sorted({str(boot_id) for _, boot_id in rows})
    codes = {name: code for code, name in enumerate(names)}
    return {int(proc): codes[str(boot_id)] for proc, boot_id in rows}, names


def _can_be_matched(columns: Columns) -> Flags:
    """Rows of collectives that have a group, a number and a time of issue."""
    op, texts = columns.codes["op"], columns.texts["op"]
    is_collective = np.array([text not in ("send", "recv") for text in texts] + [False], np.bool_)
    found: Flags = is_collective[op] & (columns.codes["group_id"] >= 0)
    found &= (columns.numbers["seq"] != NULL) & (columns.numbers["issued_ns"] != NULL)
    return found


def _lanes(
    part: Part, columns: Columns, pairs: Ints, hosts: dict[int, int], names: list[str], num_rows: Ints
) -> _Lanes:
    groups = columns.texts["group_id"]
    sizes = dict(part.rows("SELECT group_id, max(size) FROM process_group GROUP BY group_id"))
    code = np.arange(len(num_rows))
    group, process = code % max(1, len(groups)), code // max(1, len(groups))
    of_process = np.array([hosts.get(int(proc), -1) for _, proc in pairs] or [-1], np.int64)
    host, incarnation = of_process[process], (pairs[:, 0] if len(pairs) else np.zeros(1, np.int64))[process]
    size = np.array([sizes.get(text) or 0 for text in groups] or [0], np.int64)[group]
    shared = np.array([name in part.task.shared_hosts for name in names] + [False], np.bool_)
    team = group + (incarnation - incarnation.min(initial=0)) * max(1, len(groups))
    here = np.bincount(team, weights=num_rows > 0)[team]
    is_open = np.bincount(team, weights=shared[host] & (num_rows > 0))[team] > 0
    proc = (pairs[:, 1] if len(pairs) else np.zeros(1, np.int64))[process]
    return _Lanes(proc, incarnation, group, host, size, is_open, (size > 0) & ((here >= size) | is_open))


def _ordered(columns: Columns, lane: Ints, chosen: Flags) -> _Rows:
    """The chosen rows in order, with their arrivals."""
    index = np.flatnonzero(chosen)
    order = index[stable_order(lane[index])]
    lane, seq = lane[order], columns.numbers["seq"][order]
    is_same = lane[1:] == lane[:-1]
    if np.any(is_same & (seq[1:] <= seq[:-1])):
        again = np.lexsort((columns.numbers["record"][order], seq, lane))
        order, lane, seq = order[again], lane[again], seq[again]
        is_same = lane[1:] == lane[:-1]
    arrival, completed = columns.numbers["issued_ns"][order], columns.numbers["completed_ns"][order]
    np.maximum(arrival[1:], completed[:-1], out=arrival[1:], where=is_same)
    return _Rows(lane, columns.codes["op"][order], seq, arrival, completed)


def _by_group(rows: _Rows, lanes: _Lanes, window: tuple[int | None, int | None] | None) -> Iterator[_Rows]:
    """The rows of each group and incarnation, in the order of (lane, seq), without those carried over."""
    if window is not None and window[0] is not None:
        rows = rows.take(rows.seq >= window[0])
    teams: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for lane, low, high in segments(rows.lane):
        teams[int(lanes.incarnation[lane]), int(lanes.group[lane])].append((low, high))
    for bounds in teams.values():
        yield rows.take(np.concatenate([np.arange(low, high) for low, high in bounds]))


def _match(rows: _Rows, lanes: _Lanes) -> tuple[list[_Matched], _Rows]:
    """What of one group is whole here, and the rows of what is not."""
    if not len(rows.seq):
        return [], rows
    size, bounds = int(lanes.size[rows.lane[0]]), segments(rows.lane)
    num = len(rows.seq) // size
    if len(bounds) == size and num * size == len(rows.seq):
        seq, op = rows.seq.reshape(size, num), rows.op.reshape(size, num)
        is_alike = all(high - low == num for _, low, high in bounds) and (seq == seq[0]).all() and (op == op[0]).all()
        if is_alike and (seq[0, 1:] > seq[0, :-1]).all():
            return _whole(rows, lanes, np.arange(num * size).reshape(size, num)), rows.take(np.zeros(0, np.int64))
    order = np.lexsort((rows.lane, rows.seq, rows.op))
    rows = rows.take(order)
    key = np.cumsum(np.concatenate([[0], (rows.seq[1:] != rows.seq[:-1]) | (rows.op[1:] != rows.op[:-1])]))
    runs = np.array([(low, high) for _, low, high in segments(key)], np.int64).reshape(-1, 2)
    is_full = runs[:, 1] - runs[:, 0] == size
    places = runs[is_full, 0][None, :] + np.arange(size)[:, None]
    is_apart = (rows.lane[places[1:]] != rows.lane[places[:-1]]).all(axis=0)
    is_short = np.repeat(runs[:, 1] - runs[:, 0] < size, runs[:, 1] - runs[:, 0])
    return _whole(rows, lanes, places[:, is_apart]), rows.take(is_short)


def _whole(rows: _Rows, lanes: _Lanes, places: Ints) -> list[_Matched]:
    """The operations whose rows stand at places[member, operation], if all are complete and on one host."""
    host, completed = lanes.host[rows.lane[places]], rows.completed[places]
    good = (completed != NULL).all(axis=0) & (host == host[0]).all(axis=0) & (host[0] >= 0)
    if not good.any():
        return []
    places = places[:, good]
    first, lane = places[0], rows.lane[places[0, 0]]
    middle = np.partition(np.ascontiguousarray(completed[:, good].T), (len(places) - 1) // 2, axis=1)
    return [_Matched(
        int(lanes.incarnation[lane]), int(lanes.group[lane]), rows.op[first], rows.seq[first],
        rows.arrival[places], middle[:, (len(places) - 1) // 2],
    )]  # fmt: skip


def _offer(
    part: Part, columns: Columns, names: list[str], lanes: _Lanes, found: list[_Matched], rest: list[_Rows]
) -> None:
    group, op = (pa.array(columns.texts[name], pa.string()) for name in ("group_id", "op"))

    def text(codes: list[Ints], texts: pa.Array) -> pa.Array:
        whole = np.concatenate([np.zeros(0, np.int64), *codes]).astype(np.int32)
        return pa.DictionaryArray.from_arrays(pa.array(whole, mask=whole < 0), texts)

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
        "incarnation": number([lanes.incarnation[item.lane] for item in rest]),
        "group_id": text([lanes.group[item.lane] for item in rest], group),
        "op": text([item.op for item in rest], op), "seq": number([item.seq for item in rest]),
        "proc": number([lanes.proc[item.lane] for item in rest]), "arrival_ns": number([item.arrival for item in rest]),
        "boot_id": text([lanes.host[item.lane] for item in rest], pa.array(names, pa.string())),
        "completed_ns": number([item.completed for item in rest]),
    }))  # fmt: skip
