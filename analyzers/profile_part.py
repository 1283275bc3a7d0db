"""Counts, sums and extremes of a part's rows: what the statements of `profile.sql` define, over numpy arrays.

The collectives of some processes at a time are brought into the order of process, group, operation and mechanism by
counting; then each aggregate is one pass over a column: about 70 ns a row for all, a sixth of what the statement takes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .columns import (
    NULL,
    Columns,
    Flags,
    are_told,
    coded_text,
    difference,
    is_null,
    is_repeated,
    nullable,
    stable_order,
)
from .intervals import Ints, heads
from .part import Part
from .relations import COLUMNS

_LARGE: Final = 1 << 62


def offer_profile(part: Part) -> None:
    """part_profile: one row for each process, incarnation, rank, group, operation and mechanism. part_open: the part's
    collectives, if any of them is unfinished or failed; else nothing.
    """
    pieces = part.columns("collective", COLUMNS["part_profile"]["collective"]).pieces()
    found = pa.concat_tables([_profile(piece) for piece in pieces])
    if any(pc.max(found.column(name)).as_py() for name in ("num_unfinished", "num_failed")):
        part.views("collective")
        part.connection.execute("CREATE OR REPLACE TEMP VIEW part_open AS SELECT * FROM collective")
    else:
        part.offer_none("part_open", "collective")
    part.offer("part_profile", found)


def offer_spans(part: Part) -> None:
    """part_spans: one row for each process, incarnation and kind."""
    rows = part.columns("span", COLUMNS["part_spans"]["span"])
    kinds = _Kinds.by(rows.processes[0] * (len(rows.texts["kind"]) + 1) + rows.codes["kind"] + 1)
    begins, ends, record = (kinds.ordered(rows.numbers[name]) for name in ("start_ns", "end_ns", "record"))
    recorded = _only(begins, ~is_null(record))
    first = kinds.order[kinds.heads]
    counts = {"num_closed": are_told(begins, ends), "num_records": ~is_null(record)}
    extremes = {
        "last_record": kinds.most(record), "first_recorded_ns": kinds.least(recorded),
        "last_recorded_ns": kinds.most(recorded), "first_ns": kinds.least(begins),
        "last_ns": kinds.most(np.where(is_null(ends), begins, ends)),
    }  # fmt: skip
    part.offer("part_spans", pa.table({
        **{name: nullable(rows.numbers[name][first]) for name in ("incarnation", "proc")},
        "kind": coded_text(rows.codes["kind"][first], rows.texts["kind"]),
        **{name: kinds.num(flags) for name, flags in counts.items()},
        **{name: nullable(values) for name, values in extremes.items()},
    }))  # fmt: skip


def offer_stages(part: Part) -> None:
    """part_stages(stage): those that spans tell."""
    stages = np.unique(part.columns("span", COLUMNS["part_stages"]["span"]).numbers["stage"])
    part.offer("part_stages", pa.table({"stage": nullable(stages[stages != NULL], pa.int32())}))


def offer_steps(part: Part) -> None:
    """part_steps: one row for each process and incarnation with steps that count."""
    rows = part.counted_steps
    kinds = _Kinds(np.arange(rows.num_rows), rows.heads)
    part.offer("part_steps", pa.table({
        **{name: nullable(rows.numbers[name][kinds.heads]) for name in ("incarnation", "proc")},
        "rank": nullable(kinds.least(rows.numbers["rank"]), pa.int32()),
        "step_ns": pa.array(kinds.sum(rows.numbers["end_ns"] - rows.numbers["start_ns"]), pa.int64()),
        "num_steps": kinds.num(np.ones(rows.num_rows, np.bool_)),
    }))  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Rows by kind. order: rows by kind; heads: where in it each kind begins."""

    order: Ints
    heads: Ints

    @classmethod
    def of(cls, rows: Columns) -> "_Kinds":
        """Each process, incarnation, rank, group, operation and mechanism that occurs."""
        key = rows.lanes
        for name in ("op", "tier"):
            if not is_repeated(rows.codes[name]):
                key = key * (len(rows.texts[name]) + 1) + rows.codes[name] + 1
        if _is_mixed(rows):
            ranks, rank = np.unique(rows.numbers["rank"], return_inverse=True)
            key = key * len(ranks) + rank.reshape(-1)
        return cls.by(key)

    @classmethod
    def by(cls, key: Ints) -> "_Kinds":
        """Each value of `key`."""
        order = stable_order(key)
        return cls(order, heads(key.take(order)))

    def ordered(self, values: Ints) -> Ints:
        """Values of the rows, by kind."""
        return values if is_repeated(values) else values.take(self.order)

    def count(self, chosen: Flags) -> Ints:
        """How many rows of each kind are chosen. chosen: of the rows as they stand."""
        if not chosen.any():
            return np.zeros(len(self.heads), np.int64)
        if chosen.all():
            return np.diff(np.append(self.heads, len(self.order)))
        return self.num(chosen.take(self.order))

    def num(self, chosen: Flags) -> Ints:
        """The same, of rows by kind."""
        found: Ints = np.add.reduceat(chosen, self.heads, dtype=np.int64) if len(self.heads) else self.heads
        return found

    def sum(self, values: Ints) -> list[int]:
        """Exact sums, however large; NULL counts as nothing."""
        if len(values) and values.min() == NULL:
            values = np.where(values == NULL, 0, values)
        if len(values) and int(np.abs(values).max()) * len(values) < _LARGE:
            return [int(one) for one in self._of(np.add, values)]
        high, low = (self._of(np.add, part) for part in (values >> 32, values & 0xFFFFFFFF))
        return [(int(one) << 32) + int(other) for one, other in zip(high, low, strict=True)]

    def most(self, values: Ints) -> Ints:
        """The largest; NULL where none is known."""
        return self._of(np.maximum, values)

    def least(self, values: Ints) -> Ints:
        """The smallest; NULL where none is known."""
        if not len(values) or values.min() != NULL:
            return self._of(np.minimum, values)
        last = np.iinfo(np.int64).max
        found = self._of(np.minimum, np.where(values == NULL, last, values))
        return np.where(found == last, NULL, found)

    def _of(self, function: np.ufunc, values: Ints) -> Ints:
        found: Ints = function.reduceat(values, self.heads) if len(self.heads) else self.heads
        return found


def _is_mixed(rows: Columns) -> bool:
    """A process has rows of several ranks."""
    rank = rows.numbers["rank"]
    return not is_repeated(rank) and any((rank[low:high] != rank[low]).any() for low, high in rows.runs)


def _profile(rows: Columns) -> pa.Table:
    kinds = _Kinds.of(rows)
    return pa.table({**_about(rows, kinds), **_counts(rows, kinds), **_extremes(rows, kinds)})


def _about(rows: Columns, kinds: _Kinds) -> dict[str, pa.Array]:
    first = kinds.order[kinds.heads]
    told = {name: nullable(rows.numbers[name][first]) for name in ("incarnation", "proc")}
    told["rank"] = nullable(rows.numbers["rank"][first], pa.int32())
    return told | {name: coded_text(rows.codes[name][first], rows.texts[name]) for name in ("group_id", "op", "tier")}


def _counts(rows: Columns, kinds: _Kinds) -> dict[str, pa.Array]:
    unknown = {name: is_null(rows.numbers[name])
               for name in ("completed_ns", "seq", "bytes_in", "wait_begin_ns", "stage", "record")}  # fmt: skip
    by_device = [text for text in rows.texts["timing_source"] if text not in ("wait", "poll", "none")]
    is_open = rows.is_any("state", ("issued",)) & (rows.codes["timing_source"] < 0) & unknown["completed_ns"]
    chosen = {
        "num_operations": np.ones(rows.num_rows, np.bool_), "num_with_bytes": ~unknown["bytes_in"],
        "num_unfinished": is_open, "num_failed": rows.is_any("state", ("failed",)),
        "num_wait": rows.is_any("timing_source", ("wait",)), "num_poll": rows.is_any("timing_source", ("poll",)),
        "num_device": rows.is_any("timing_source", by_device),
        "num_device_event": rows.is_any("timing_source", ("device_event",)),
        "num_inside_backward": rows.is_any("phase", ("backward",)) & unknown["wait_begin_ns"],
        "num_numbered": ~(unknown["seq"] | rows.is_any("tier", ("imported",))),
        "num_staged": ~unknown["stage"] & (rows.codes["role"] >= 0),
        "num_collectives": _is_collective(rows), "num_records": ~unknown["record"],
    }  # fmt: skip
    return {name: pa.array(kinds.count(flags), pa.int64()) for name, flags in chosen.items()}


def _extremes(rows: Columns, kinds: _Kinds) -> dict[str, pa.Array]:
    numbers = {
        name: kinds.ordered(rows.numbers[name])
        for name in ("bytes_in", "issued_ns", "completed_ns", "wait_begin_ns", "wait_end_ns", "record")
    }
    bytes_in, issued, completed, record = (
        numbers[name] for name in ("bytes_in", "issued_ns", "completed_ns", "record")
    )
    unfinished = is_null(completed)
    is_collective = _is_collective(rows)
    of_collectives = kinds.ordered(_only(rows.numbers["seq"], is_collective))
    recorded = _only(issued, ~is_null(record))
    most_bytes = kinds.most(bytes_in)
    asked: dict[str, tuple[Callable[[Ints], Ints], Ints]] = {
        "least_bytes": (kinds.least, bytes_in), "longest_ns": (kinds.most, difference(issued, completed)),
        "longest_wait_ns": (kinds.most, difference(numbers["wait_begin_ns"], numbers["wait_end_ns"])),
        "last_seq": (kinds.most, of_collectives),
        "last_completed_seq": (kinds.most, _only(of_collectives, ~unfinished)),
        "last_record": (kinds.most, record), "first_recorded_ns": (kinds.least, recorded),
        "last_recorded_ns": (kinds.most, recorded), "first_ns": (kinds.least, issued),
        "last_ns": (kinds.most, np.where(unfinished, issued, completed) if unfinished.any() else completed),
        "last_moment_ns": (kinds.most, np.maximum(issued, completed)),
    }  # fmt: skip
    sums = pa.array(kinds.sum(bytes_in), pa.decimal128(38, 0))
    return {
        "bytes_in": pc.if_else(pa.array(most_bytes != NULL), sums, None), "most_bytes": nullable(most_bytes),
        **{name: nullable(function(values)) for name, (function, values) in asked.items()},
    }  # fmt: skip


def _is_collective(rows: Columns) -> Flags:
    return is_null(rows.numbers["src"]) & is_null(rows.numbers["dst"])


def _only(values: Ints, chosen: Flags) -> Ints:
    return values if chosen.all() else np.where(chosen, values, NULL)
