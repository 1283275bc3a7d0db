"""How long each rank waits at each operation, each instant charged once: windows over rows in several orders.

The same windows in SQL take ten times as long, since each sorts all columns. In: the rows of statement `waiting`, one
for each rank and operation. Out: the arrays of a table with a row for each of them, in the same order:

turn: the rank's operations in the order in which it arrived at them, from 1.
wait: until the last arrival, each instant charged once, to the operation that the rank blocks on, and of operations in
flight together only as far as it grows.
waited: its waits in all since the operation before in the same group, which it left together with the others.
since_turn: the turn of that operation; 0 if there is none.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .columns import NULL, numbered, stable_order
from .intervals import Ints, bundles, segments

_SMALL: Final = 1 << 16
_PIECE: Final = 30_000
"""Rows of a piece, about."""
COLUMNS: Final = (
    "operation",
    "incarnation",
    "proc",
    "team",
    "pair",
    "flight",
    "is_left_together",
    "begin_ns",
    "arrival_ns",
    "until_ns",
)


def waits(rows: pa.Table) -> pa.Table:
    """turn, wait_ns, waited_ns and since_turn of `rows`, which has the columns COLUMNS.

    All of it is of each process by itself, so that some are taken at a time: what is sorted stays near the processor.
    """
    process = _codes(rows, "incarnation", "proc")
    order = stable_order(process)
    columns = {name: _array(rows, name)[order] for name in COLUMNS if name not in ("incarnation", "proc")}
    columns["process"] = process[order]
    found = {name: np.empty(rows.num_rows, np.int64) for name in ("turn", "wait_ns", "waited_ns", "since_turn")}
    for low, high in bundles((end for _, _, end in segments(columns["process"])), _PIECE):
        for name, values in _waits({name: values[low:high] for name, values in columns.items()}).items():
            found[name][order[low:high]] = values
    return pa.table(found)


def _waits(rows: dict[str, NDArray[Any]]) -> dict[str, Ints]:
    operation, begin, arrival, until = (rows[name] for name in ("operation", "begin_ns", "arrival_ns", "until_ns"))
    process = rows["process"]
    same = _joined(process, _joined(_code(rows["team"]), _code(rows["pair"])))
    flight = _joined(same, _code(rows["flight"]))
    by_operation = stable_order(operation)
    own = by_operation[stable_order(arrival[by_operation])]
    own = own[stable_order(process[own])]
    heads = _heads(process[own])
    turn, charged = np.empty(len(own), np.int64), np.empty(len(own), np.int64)
    turn[own] = np.arange(len(own)) - heads + 1
    before = _most_before(until[own], heads)
    charged[own] = np.maximum(0, until[own] - np.maximum(arrival[own], before))
    together = by_operation[stable_order(flight[by_operation])]
    length = (until - begin)[together]
    grown = np.empty(len(own), np.int64)
    grown[together] = np.maximum(0, length - np.maximum(_most_before(length, _heads(flight[together])), 0))
    wait = np.minimum(charged, grown)
    total = np.empty(len(own), np.int64)
    running = np.cumsum(wait[own])
    total[own] = running - (running - wait[own])[heads]
    in_turn = own[stable_order(same[own])]
    heads = _heads(same[in_turn])
    is_left = rows["is_left_together"][in_turn]
    waited, since = np.empty(len(own), np.int64), np.empty(len(own), np.int64)
    waited[in_turn] = np.maximum(_most_before(np.where(is_left, total[in_turn], NULL), heads), 0)
    since[in_turn] = np.maximum(_most_before(np.where(is_left, turn[in_turn], NULL), heads), 0)
    return {"turn": turn, "wait_ns": wait, "waited_ns": total - wait - waited, "since_turn": since}


def _array(rows: pa.Table, name: str) -> NDArray[Any]:
    """Numbers as whole ones, signed; flags and codes as they are."""
    found: NDArray[Any] = rows.column(name).to_numpy()
    return found.astype(np.int64, copy=False) if name.endswith("_ns") or name == "operation" else found


def _codes(rows: pa.Table, *names: str) -> Ints:
    """A number for each combination of values."""
    found = np.zeros(rows.num_rows, np.int64)
    for name in names:
        found = _joined(found, _code(rows.column(name).to_numpy()))
    return found


def _joined(first: Ints, second: Ints) -> Ints:
    num = int(second.max(initial=0)) + 1
    if (int(first.max(initial=0)) + 1) * num >= 1 << 62:
        first, second = numbered(first), numbered(second)
        num = len(second) + 1
    return first * num + second


def _code(values: Ints) -> Ints:
    """Small numbers as they are, others by a number from 0."""
    if not len(values) or (values == values[0]).all():
        return np.zeros(len(values), np.int64)
    if values.min() >= 0 and values.max() <= _SMALL:
        return values.astype(np.int64, copy=False)
    return numbered(values)


def _heads(codes: Ints) -> Ints:
    """Of each row the first row with the same code; equal ones stand together."""
    is_head = np.ones(len(codes), np.bool_)
    is_head[1:] = codes[1:] != codes[:-1]
    found: Ints = np.maximum.accumulate(np.where(is_head, np.arange(len(codes)), 0))
    return found


def _most_before(values: Ints, heads: Ints) -> Ints:
    """The largest value before each row since its head; NULL if there is none."""
    found = np.full(len(values), NULL, np.int64)
    if not len(values):
        return found
    known = values[values != NULL]
    low, high = (int(known.min()), int(known.max())) if len(known) else (0, 0)
    rank = np.cumsum(heads == np.arange(len(values))) - 1
    span = high - low + 2
    if (int(rank[-1]) + 1) * span >= 1 << 62:
        for start, end in zip(
            starts := np.flatnonzero(heads == np.arange(len(values))), [*starts[1:], len(values)], strict=True
        ):
            found[start + 1 : end] = np.maximum.accumulate(values[start : end - 1])
        return found
    raised = np.where(values == NULL, 0, values - low + 1) + rank * span  # each run lies above the one before it
    reach = np.maximum.accumulate(raised)
    before = reach[:-1] - (rank * span)[1:]
    found[1:] = np.where(before > 0, before + low - 1, NULL)
    return found
