"""What goes wrong while it happens: ranks that die, and operations that stay open beyond the patience.

Fed with what the agent's passes give, so it sees what one node can: its own ranks. An operation is held against the
patience (RANKSCOPE_PATIENCE_SECONDS), or ten times the p99 of its kind on that rank where that is longer; only if its
completion could have been learnt at all. Each dead rank, and each operation of a group, is told once. Who is to blame
is for the analysis (`rankscope hang`), which has the other nodes' ranks. Cost: about 0.1 ms a pass and rank.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rankscope.schema import decode, ring
from rankscope.schema.enums import ENUMS
from rankscope.schema.process_rows import PlacedRow
from rankscope.schema.process_state import ProcessState, RunRef
from rankscope.schema.raw_records import body_dtype

from .drain import Batch
from .open_operations import OpenOperation, OpenOperations

COLLECTIVE: Final = ring.layout_of("collective").kind
DEAD_RANK, HANG = "dead_rank", "hang"
LONGER: Final = 10
"""An operation is late beyond so many times the p99 of its kind (where that is longer than the patience)."""
MIN_SEEN: Final = 20
"""Operations of a kind from which their p99 counts."""
_PER_OCTAVE: Final = 8
_P99: Final = 0.99
_EXITS: Final = {"killed": "was killed", "failed": "ended by an exception"}


class Incident(NamedTuple):
    """Something that went wrong on this node. since_ns: when it began, time_ns: when it was judged (CLOCK_MONOTONIC).

    ranks: for an operation, the local ones in it; for a dead rank, itself. group: its id.
    """

    run: RunRef
    incarnation: int
    kind: str
    ranks: tuple[int, ...]
    procs: tuple[int, ...]
    since_ns: int
    time_ns: int
    text: str
    table: str
    predicate: str
    rule: str
    group: str = ""
    op: str = ""
    seq: int = -1

    def row(self, proc: int, record: int) -> PlacedRow:
        """As a row of table incident. proc: the agent's own number; record: counts its incidents."""
        return PlacedRow("incident", self.incarnation, {
            "proc": proc, "rank": self.ranks[0] if self.ranks else None, "record": record, "time_ns": self.time_ns,
            "kind": self.kind, "severity": "critical", "procs": list(self.procs), "rule": self.rule,
            "evidence": {"table": self.table, "predicate": self.predicate, "text": self.text},
        })  # fmt: skip


@dataclass(slots=True)
class _Watched:
    """One living process."""

    run: RunRef
    state: ProcessState
    rank: int | None = None
    incarnation: int = 0
    last_ns: int = 0
    open: OpenOperations = field(default_factory=OpenOperations)
    lengths: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.zeros((len(ENUMS["op"]) + 1, 64 * _PER_OCTAVE), np.int64)
    )


class Watchdog:
    """The watch over the ranks of one agent."""

    def __init__(self, patience_s: float) -> None:
        self._patience_ns = int(patience_s * 1e9)
        self._watched: dict[int, _Watched] = {}
        self._told: set[tuple[Any, ...]] = set()
        self._found: list[Incident] = []

    def saw(self, run: RunRef, state: ProcessState, batch: Batch, now_ns: int, is_last: bool) -> None:
        """One pass over one process of `run`. is_last: it is dead."""
        watched = self._watched.setdefault(state.proc, _Watched(run, state))
        if state.joins:
            watched.rank, watched.incarnation = state.joins[-1].rank, state.joins[-1].incarnation
        for placed in batch.parts:
            if len(placed.part.records):
                watched.last_ns = max(watched.last_ns, int(decode.base_times(placed.part.records).max()))
            if placed.kind == COLLECTIVE and len(placed.part.records):
                body = placed.part.records.view(body_dtype(COLLECTIVE))
                over = (body["_state"] > ring.ISSUED) | placed.is_final
                watched.open.saw(body, placed.part.numbers, over)
                _learn(watched.lengths, body)
        if is_last:
            del self._watched[state.proc]
            self._died(watched, batch.rows, now_ns)

    def take(self, now_ns: int) -> list[Incident]:
        """What was found since the last call."""
        for watched in self._watched.values():
            for record, operation in watched.open.by_record.items():
                if operation.can_be_seen and now_ns - operation.issued_ns > self._patience(watched, operation):
                    self._hangs(watched, record, operation, now_ns)
        found, self._found = self._found, []
        return found

    def _patience(self, watched: _Watched, operation: OpenOperation) -> int:
        counts = watched.lengths[operation.op]
        total = int(counts.sum())
        if total < MIN_SEEN:
            return self._patience_ns
        place = int(np.searchsorted(np.cumsum(counts), _P99 * total))
        return max(self._patience_ns, LONGER * int(2 ** ((place + 1) / _PER_OCTAVE)))

    def _hangs(self, watched: _Watched, record: int, operation: OpenOperation, now_ns: int) -> None:
        group, name = self._group(watched, operation), ENUMS["op"][operation.op - 1] if operation.op else "operation"
        is_peer = name in ("send", "recv")
        key = (watched.run, watched.incarnation, group, operation.seq, watched.state.proc if is_peer else None)
        if key in self._told:
            return
        self._told.add(key)
        others = [other for other in self._watched.values() if not is_peer and other.run == watched.run
                  and any(self._group(other, item) == group and item.seq == operation.seq
                          for item in other.open.by_record.values())]  # fmt: skip
        those = others or [watched]
        ranks = tuple(sorted(other.rank for other in those if other.rank is not None))
        where = f"rank{'s' if len(ranks) != 1 else ''} {', '.join(map(str, ranks)) or 'unknown'}"
        text = f"{name} {operation.seq} has been open for {(now_ns - operation.issued_ns) / 1e9:.0f} s on {where}"
        self._found.append(Incident(
            watched.run, watched.incarnation, HANG, ranks, tuple(other.state.proc for other in those),
            operation.issued_ns, now_ns, text, "collective", f"proc = {watched.state.proc} AND record = {record}",
            "open longer than the patience", group, name, operation.seq,
        ))  # fmt: skip

    def _group(self, watched: _Watched, operation: OpenOperation) -> str:
        return watched.state.names.groups.get(operation.group, "")

    def _died(self, watched: _Watched, rows: Iterable[PlacedRow], now_ns: int) -> None:
        kinds = [placed.row.get("exit_kind") for placed in rows if placed.table == "process"]
        how = _EXITS.get(str(kinds[-1])) if kinds else None
        if how is None or watched.rank is None:
            return
        state, since_ns = watched.state, max(watched.state.last_ns, watched.last_ns) or now_ns
        text = f"rank {watched.rank} {how} (pid {state.process.get('pid')})"
        self._found.append(Incident(
            watched.run, watched.incarnation, DEAD_RANK, (watched.rank,), (state.proc,), since_ns, now_ns, text,
            "process", f"proc = {state.proc}", f"exit_kind is {kinds[-1]}",
        ))  # fmt: skip


def _learn(lengths: npt.NDArray[np.int64], body: npt.NDArray[Any]) -> None:
    """Count the lengths of finished operations, by kind, in logarithmic buckets (9 % wide)."""
    took = body["completed_ns"].astype(np.int64) - body["issued_ns"].astype(np.int64)
    done = (body["completed_ns"] > 0) & (took > 0)
    if done.any():
        places = (np.log2(took[done]) * _PER_OCTAVE).astype(np.int64)
        np.add.at(lengths, (body["op"][done], places), 1)
