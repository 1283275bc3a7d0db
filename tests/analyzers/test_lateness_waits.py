"""Waits over arrays against a walk through the rows, one by one."""

import random
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rankscope.analyzers import lateness_waits
from rankscope.analyzers.lateness_waits import COLUMNS, waits

Row = dict[str, Any]


def rows_of(chance: random.Random, far: int) -> list[Row]:
    """Rows of some processes in some groups, in any order, with ties; each process once at each operation."""
    found: list[Row] = []
    for operation in range(chance.randrange(1, 30)):
        about = {
            "operation": operation,
            "team": chance.randrange(3),
            "pair": chance.choice((0, 7 << 40)),
            "incarnation": 0,
        }
        about |= {"flight": chance.randrange(3), "is_left_together": chance.random() < 0.7}
        until = chance.randrange(40) * far
        for proc in chance.sample(range(4), chance.randrange(1, 4)):
            begin = chance.randrange(40) * far
            arrival = max(begin, chance.randrange(40) * far)
            found.append(
                about | {"proc": proc << 33, "begin_ns": begin, "arrival_ns": arrival, "until_ns": max(until, arrival)}
            )
    chance.shuffle(found)
    return found


def walked(rows: list[Row]) -> dict[tuple[int, int], tuple[int, int, int, int]]:
    """(turn, wait, waited, since_turn) by process and operation."""
    grown: dict[tuple[int, int], int] = {}
    longest: dict[tuple[int, ...], int] = defaultdict(int)
    for row in sorted(rows, key=lambda row: row["operation"]):
        key = (row["proc"], row["team"], row["pair"], row["flight"])
        length = row["until_ns"] - row["begin_ns"]
        grown[row["proc"], row["operation"]] = max(0, length - longest[key])
        longest[key] = max(longest[key], length)
    found = {}
    for proc in {row["proc"] for row in rows}:
        own = sorted(
            (row for row in rows if row["proc"] == proc), key=lambda row: (row["arrival_ns"], row["operation"])
        )
        reach, total = -1, 0
        left: dict[tuple[int, int], tuple[int, int]] = {}
        for turn, row in enumerate(own, 1):
            wait = min(max(0, row["until_ns"] - max(row["arrival_ns"], reach)), grown[proc, row["operation"]])
            reach, group = max(reach, row["until_ns"]), (row["team"], row["pair"])
            before, since = left.get(group, (0, 0))
            found[proc, row["operation"]] = (turn, wait, total - before, since)
            total += wait
            if row["is_left_together"]:
                left[group] = (total, turn)
    return found


@pytest.mark.parametrize("far", [1, 1 << 55])  # so far apart that the runs cannot be laid one above the other
def test_as_walked_through_row_by_row(far: int) -> None:
    for seed in range(60):
        rows = rows_of(random.Random(seed), far)
        table = pa.Table.from_pylist(rows).select(COLUMNS)
        found = waits(table).to_pylist()
        told = {(row["proc"], row["operation"]): tuple(new.values()) for row, new in zip(rows, found, strict=True)}
        assert told == walked(rows), seed


def test_no_row() -> None:
    empty = pa.table({name: pa.array([], pa.bool_() if name == "is_left_together" else pa.int64()) for name in COLUMNS})
    assert waits(empty).num_rows == 0


def test_large_keys_are_told_apart() -> None:
    first, second = np.array([1 << 40, 0, 0]), np.array([5, 5, (1 << 40) - 1])  # multiplied they would wrap around
    assert len(set(lateness_waits._joined(first, second).tolist())) == 3
