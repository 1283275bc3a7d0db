"""Operations of a part matched over its ranks: what `arrival` and `matched_operation` define, without their sorts.

Each group of the part is taken by itself. Its members nearly always have the same numbers in the same order: then their
rows are a matrix, members by operations, and last arrival, median completion and waits are taken over its columns.
Otherwise the rows are sorted by operation first. Groups with members elsewhere are left alone, unless the same host
has several parts: then the rows of operations that are not whole here travel, to be matched in `merge`.

About 40 ns a row beside reading it.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from .bucket_counts import BucketCounts
from .columns import NULL, Columns, Flags, coded_text, is_null, joined, nullable, repeated
from .intervals import Ints, segments
from .part import Part
from .relations import COLUMNS
from .statements import statement

TOGETHER: Final = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor", "all_to_all",
    "all_to_all_single", "barrier", "all_reduce_coalesced", "all_gather_coalesced", "all_gather_into_tensor_coalesced",
    "reduce_scatter_coalesced", "reduce_scatter_tensor_coalesced",
)  # fmt: skip
"""Operations after which all members go on together; the same list as in `derived.sql`."""
_LONGEST: Final = pa.schema([("group_id", pa.string()), ("op", pa.string()), ("longest_transfer_ns", pa.int64()),
                             ("longest_wait_ns", pa.int64())])  # fmt: skip
_Bounds = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows in the order of (lane, seq). lane: code of process, incarnation and group."""

    lane: Ints
    op: Ints
    seq: Ints
    arrival: Ints
    completed: Ints
    is_device: Flags

    def take(self, index: Ints | Flags) -> "_Rows":
        """Some of the rows."""
        return _Rows(self.lane[index], self.op[index], self.seq[index], self.arrival[index], self.completed[index],
                     self.is_device[index])  # fmt: skip


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

    group: int
    op: Ints
    arrivals: Ints
    completed: Ints


def offer_matched(part: Part) -> None:
    """part_transfers (how many operations took how long), part_arrival_waits (how many of their ranks waited how long),
    part_matched_maxima (the longest of both), and part_unmatched_arrival.
    """
    rows = _read(part)
    hosts, names = _hosts(part)
    can = _can_be_matched(rows)
    lanes = _lanes(part, rows, hosts, names, can)
    ordered = _ordered(rows, _wanted(rows, lanes, can))
    together = np.array([text in TOGETHER for text in rows.texts["op"]] + [False], np.bool_)
    first = (part.task.bounds.window or (None, None))[0]
    found, rest = [], []
    for bounds in _by_group(ordered, lanes):
        matched, others = _match(ordered, bounds, lanes, together, first)
        found += matched
        rest += [others] if others is not None and lanes.is_open[ordered.lane[bounds[0][0]]] else []
    _offer(part, rows, names, lanes, found, rest)


def _read(part: Part) -> Columns:
    """The part's rows; with a window, the last row before it of each process and group too."""
    window, names = part.task.bounds.window, COLUMNS["part_transfers"]["collective"]
    if window is None or window[0] is None:
        return part.columns("collective", names)
    carried = statement("communication", "carried").replace("{first}", str(window[0]))
    return part.selected(
        f"SELECT incarnation, {', '.join(names)} FROM collective UNION ALL BY NAME {carried}", "collective"
    )


def _hosts(part: Part) -> tuple[dict[int, int], list[str]]:
    """(code of the boot id by process, the boot ids)."""
    rows = part.rows("SELECT proc, min(boot_id) FROM process WHERE boot_id IS NOT NULL GROUP BY proc", "process")
    names = sorted({str(boot_id) for _, boot_id in rows})
    codes = {name: code for code, name in enumerate(names)}
    return {int(proc): codes[str(boot_id)] for proc, boot_id in rows}, names


def _on_device(rows: Columns) -> Flags:
    """Rows whose operation has device times."""
    return ~(is_null(rows.numbers["device_start_ns"]) | is_null(rows.numbers["device_end_ns"]))


def _can_be_matched(rows: Columns) -> Flags:
    """Rows of collectives that have a group, a number and a begin."""
    found: Flags = ~rows.is_any("op", ("send", "recv")) & (rows.codes["op"] >= 0) & (rows.codes["group_id"] >= 0)
    return found & ~is_null(rows.numbers["seq"]) & (~is_null(rows.numbers["issued_ns"]) | _on_device(rows))


def _lanes(part: Part, rows: Columns, hosts: dict[int, int], names: list[str], can: Flags) -> _Lanes:
    groups, pairs = rows.texts["group_id"], rows.processes[1]
    sizes = dict(part.rows("SELECT group_id, max(size) FROM process_group GROUP BY group_id", "process_group"))
    num_rows = np.bincount(rows.lanes if can.all() else rows.lanes[can], minlength=len(pairs) * rows.num_groups)
    code = np.arange(len(num_rows))
    process, group = code // rows.num_groups, code % rows.num_groups - 1
    incarnation, proc = pairs[process, 0], pairs[process, 1]
    host = np.array([hosts.get(int(one), -1) for one in pairs[:, 1]], np.int64)[process]
    size = np.array([0] + [sizes.get(text) or 0 for text in groups], np.int64)[group + 1]
    shared = np.array([name in part.task.shared_hosts for name in names] + [False], np.bool_)
    team = code % rows.num_groups + (incarnation - incarnation.min(initial=0)) * rows.num_groups
    here = np.bincount(team, weights=num_rows > 0)[team]
    is_open = np.bincount(team, weights=shared[host] & (num_rows > 0))[team] > 0
    return _Lanes(proc, incarnation, group, host, size, is_open, (size > 0) & ((here >= size) | is_open))


def _wanted(rows: Columns, lanes: _Lanes, can: Flags) -> Ints:
    """The rows that can be matched here, by lane."""
    ends = np.cumsum(np.bincount(rows.lanes, minlength=len(lanes.is_wanted)))
    bounds = [(int(ends[lane - 1]) if lane else 0, int(ends[lane])) for lane in np.flatnonzero(lanes.is_wanted)]
    order = joined([rows.by_lane[low:high] for low, high in bounds])
    return order if can.all() else order[can[order]]


def _ordered(rows: Columns, order: Ints) -> _Rows:
    """Rows in `order`, with their arrivals."""
    lane, seq = rows.lanes.take(order), rows.numbers["seq"].take(order)
    is_same = lane[1:] == lane[:-1]
    if np.any(is_same & (seq[1:] <= seq[:-1])):
        again = np.lexsort((rows.numbers["record"][order], seq, lane))
        order, lane, seq = order[again], lane[again], seq[again]
        is_same = lane[1:] == lane[:-1]
    arrival, completed = rows.numbers["issued_ns"].take(order), rows.numbers["completed_ns"].take(order)
    is_device = _on_device(rows).take(order)
    if is_device.any():
        arrival = np.where(is_device, rows.numbers["device_start_ns"].take(order), arrival)
        completed = np.where(is_device, rows.numbers["device_end_ns"].take(order), completed)
    behind = np.minimum(completed[:-1], completed[1:])  # NULL, of which nothing is matched, is less than any
    np.maximum(arrival[1:], behind, out=arrival[1:], where=is_same)
    return _Rows(lane, rows.codes["op"].take(order), seq, arrival, completed, is_device)


def _by_group(rows: _Rows, lanes: _Lanes) -> list[list[_Bounds]]:
    """The lanes of each group and incarnation: first row and the row after the last of each."""
    teams: dict[tuple[int, int], list[_Bounds]] = defaultdict(list)
    for lane, low, high in segments(rows.lane):
        teams[int(lanes.incarnation[lane]), int(lanes.group[lane])].append((low, high))
    return list(teams.values())


def _match(
    rows: _Rows, bounds: list[_Bounds], lanes: _Lanes, together: Flags, first: int | None
) -> tuple[list[_Matched], _Rows | None]:
    """What of one group is whole here, and the rows of what is not. first: rows before it are only carried over."""
    size = int(lanes.size[rows.lane[bounds[0][0]]])
    if first is None and _is_alike(rows, bounds, size, together):
        members = np.array([low for low, _ in bounds])
        places = members[:, None] + np.arange(bounds[0][1] - bounds[0][0])
        return _whole(rows, lanes, places, lanes.host[rows.lane[members]][:, None]), None
    index = np.concatenate([np.arange(low, high) for low, high in bounds])
    chosen = together[rows.op[index]]
    rows = rows.take(index[chosen if first is None else chosen & (rows.seq[index] >= first)])
    rows = rows.take(np.lexsort((rows.lane, rows.seq, rows.op)))
    key = np.cumsum(np.concatenate([[0], (rows.seq[1:] != rows.seq[:-1]) | (rows.op[1:] != rows.op[:-1])]))
    runs = np.array([(low, high) for _, low, high in segments(key[: len(rows.seq)])], np.int64).reshape(-1, 2)
    is_full = runs[:, 1] - runs[:, 0] == size
    places = runs[is_full, 0][None, :] + np.arange(size)[:, None]
    is_apart = (rows.lane[places[1:]] != rows.lane[places[:-1]]).all(axis=0)
    is_short = np.repeat(runs[:, 1] - runs[:, 0] < size, runs[:, 1] - runs[:, 0])
    places = places[:, is_apart]
    return _whole(rows, lanes, places, lanes.host[rows.lane[places]]), rows.take(is_short)


def _is_alike(rows: _Rows, bounds: list[_Bounds], size: int, together: Flags) -> bool:
    """All members have the same numbers and operations in the same order."""
    (low, high), num = bounds[0], len(bounds)
    if num != size or any(end - start != high - low for start, end in bounds) or not together[rows.op[low:high]].all():
        return False
    seq, op = rows.seq[low:high], rows.op[low:high]
    return bool((seq[1:] > seq[:-1]).all()) and all(
        np.array_equal(rows.seq[start:end], seq) and np.array_equal(rows.op[start:end], op) for start, end in bounds[1:]
    )


def _whole(rows: _Rows, lanes: _Lanes, places: Ints, host: Ints) -> list[_Matched]:
    """The operations whose rows stand at places[member, operation], if all are complete and on one host."""
    completed = rows.completed[places]
    arrival, is_device = rows.arrival[places], rows.is_device[places]
    middle = (len(places) - 1) // 2
    ended = np.partition(np.ascontiguousarray(completed.T), middle, axis=1)[:, middle]
    good = (completed != NULL).all(axis=0) & (host == host[0]).all(axis=0) & (host[0] >= 0)
    good &= (is_device == is_device[0]).all(axis=0) & (ended >= arrival.max(axis=0))
    if not good.any():
        return []
    group = int(lanes.group[rows.lane[places[0, 0]]])
    return [_Matched(group, rows.op[places[0]][good], arrival[:, good], ended[good])]


def _offer(
    part: Part, rows: Columns, names: list[str], lanes: _Lanes, found: list[_Matched], rest: list[_Rows]
) -> None:
    groups, ops = rows.texts["group_id"], rows.texts["op"]
    waits, transfers, longest = BucketCounts(rows), BucketCounts(rows), list[tuple[str, str, int, int]]()
    for item in found:
        last, first = item.arrivals.max(axis=0), item.arrivals.min(axis=0)
        transfer, group = item.completed - last, repeated(item.group, len(last))
        transfers.add(group, item.op, transfer)
        for op in np.flatnonzero(np.bincount(item.op)).tolist():
            chosen = item.op == op
            longest.append(
                (groups[item.group], ops[op], int(transfer[chosen].max()), int((last - first)[chosen].max()))
            )
        for arrivals in item.arrivals:
            waits.add(group, item.op, last - arrivals)
    part.offer("part_transfers", transfers.table())
    part.offer("part_arrival_waits", waits.table())
    part.offer("part_matched_maxima", pa.Table.from_pylist(
        [dict(zip(_LONGEST.names, row, strict=True)) for row in longest], _LONGEST
    ))  # fmt: skip
    part.offer("part_unmatched_arrival", pa.table({
        "incarnation": nullable(joined([lanes.incarnation[item.lane] for item in rest])),
        "group_id": coded_text(joined([lanes.group[item.lane] for item in rest]), groups),
        "op": coded_text(joined([item.op for item in rest]), ops),
        "seq": nullable(joined([item.seq for item in rest])),
        "proc": nullable(joined([lanes.proc[item.lane] for item in rest])),
        "arrival_ns": nullable(joined([item.arrival for item in rest])),
        "boot_id": coded_text(joined([lanes.host[item.lane] for item in rest]), names),
        "completed_ns": nullable(joined([item.completed for item in rest])),
        "is_device": pa.array(joined([item.is_device.astype(np.int64) for item in rest]) > 0),
    }))  # fmt: skip
