"""Draining one process: its growing journal and its ring become rows, each placed in its table and incarnation.

The ring is read before the journal: names, groups and joins are journalled before the records that use them. Rows whose
names are not known yet (the journal could not be written, the disk is full) wait. Nothing here writes to disk.
"""

import logging
import os
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from rankscope.schema import decode, ring
from rankscope.schema.errors import InputError
from rankscope.schema.journal import complete_bytes
from rankscope.schema.journal import decode as decode_journal
from rankscope.schema.liveness import is_alive
from rankscope.schema.process_rows import (
    PlacedRow,
    capture_rows,
    incarnation_slices,
    journal_rows,
    node_row,
    process_rows,
)
from rankscope.schema.process_state import Join, ProcessState
from rankscope.schema.ring_rows import Part
from rankscope.schema.tables import RING_TABLES

from .identity import pid_namespace
from .ring_drain import Mask, Records, RingDrain

CAPTURE_NS: Final = 60_000_000_000
"""A reading of the hooks' counters is taken this often, and when the process ends."""
KERNEL_WINDOW: Final = "kernel_window"
"""Table of the journal rows in which the hook of that name tells where a trace lies."""
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_log = logging.getLogger(__name__)
_CHUNK: Final = 1 << 20
_NOTHING: Final = Records(np.empty(0, np.dtype((np.void, ring.RECORD_BYTES))), np.empty(0, np.int64))


class PlacedPart(NamedTuple):
    """Records of one ring kind and incarnation. is_final: nothing will change them."""

    kind: int
    incarnation: int
    part: Part
    is_final: bool


class PlacedTable(NamedTuple):
    """Rows that are complete, and many."""

    table: str
    incarnation: int
    rows: Any


@dataclass(slots=True)
class Batch:
    """What one pass over one process gave: ring records, rows that are complete, and tables of such."""

    parts: list[PlacedPart] = field(default_factory=list)
    rows: list[PlacedRow] = field(default_factory=list)
    tables: list[PlacedTable] = field(default_factory=list)


class ProcessDrain:
    """One process of the launch folder, by its journal.

    The agent's own process (thread mode) lives until it says otherwise, and its files are never closed: closing any
    descriptor of a file drops this process's record locks on it.
    """

    def __init__(self, journal: str) -> None:
        self.state = ProcessState(journal)
        self.ring: RingDrain | None = None
        self.problem = ""
        self.is_alive, self.is_finished = True, False
        self._journal: int | None = None
        self._offset, self._captured_ns = 0, 0
        self._told_joins: list[Join] = []
        self._columns = {kind: _name_columns(kind) for kind in RING_TABLES}

    def look(self) -> None:
        """Read what the journal has gained, open the ring once it is named, and see whether the process lives."""
        self._read_journal()
        if self.ring is None and self.state.ring_capacity and not self.problem:
            self._open_ring()
        if not self.is_own:
            self.is_alive = is_alive(self.state.lock_path)

    @property
    def is_own(self) -> bool:
        """This very process is the one that is drained."""
        process = self.state.process
        return process.get("pid") == os.getpid() and process.get("pid_namespace") in (None, pid_namespace())

    def read(self, now_ns: int, is_last: bool) -> Batch:
        """One pass. is_last: the process is dead; all that is left comes, and the process row says how it ended."""
        drained = self.ring.read(now_ns, is_last) if self.ring else None
        self._read_journal()
        if drained is None and self.state.ring_capacity and not self.problem:
            self._open_ring()
            drained = self.ring.read(now_ns, is_last) if self.ring else None
        batch = Batch()
        if drained is not None:
            self._place(drained.provisional, False, batch)
            self._place(drained.final, True, batch)
        self._add_rows(batch, now_ns, is_last)
        self.is_finished = is_last
        return batch

    def is_filling(self) -> bool:
        """The ring holds more than half a turn that was not read: it must not be left alone much longer."""
        return self.ring is not None and self.ring.is_half_full()

    def pending_numbers(self) -> decode.Numbers:
        """Records that are not final yet."""
        return self.ring.pending_numbers if self.ring else _NOTHING.numbers

    def forget_written(self) -> None:
        """See `RingDrain.forget_written`."""
        if self.ring is not None:
            self.ring.forget_written()

    def close(self) -> None:
        """Unmap the ring and close the journal."""
        if self.is_own:
            return
        if self.ring is not None:
            self.ring.close()
            self.ring = None
        if self._journal is not None:
            os.close(self._journal)
            self._journal = None

    def _read_journal(self) -> None:
        try:
            if self._journal is None:
                self._journal = os.open(self.state.path, _READ)
            while data := os.pread(self._journal, _CHUNK, self._offset):
                whole = complete_bytes(data)
                self.state.feed(decode_journal(data[:whole]))
                self._offset += whole
                if len(data) < _CHUNK:
                    break
        except OSError as error:
            self.problem = self.problem or f"{self.state.path}: {error.strerror}"

    def _open_ring(self) -> None:
        path = self.state.ring_path
        try:
            if self.is_own:
                header, view = decode.map_ring(path, os.open(path, _READ))
            else:
                header, view = decode.open_ring(path)
        except (InputError, OSError) as error:
            self.problem = str(error)
            return
        self.ring = RingDrain(header, view, self._is_named)

    def _is_named(self, raw: decode.Records) -> Mask:
        named = np.ones(len(raw), np.bool_)
        data = raw.view(np.uint8).reshape(len(raw), ring.RECORD_BYTES)
        for kind in np.flatnonzero(np.bincount(data[:, 4], minlength=1)):
            chosen = np.flatnonzero(data[:, 4] == kind)
            for offset, is_group in self._columns[int(kind)]:
                known = self.state.names.groups if is_group else self.state.names.names
                numbers = np.ascontiguousarray(data[chosen, offset : offset + 4]).view("<u4").reshape(-1)
                if numbers.max() > len(known) or len(known) not in known:  # else they are 1, 2, 3, ... all of them
                    named[chosen[~np.isin(numbers, [0, *known])]] = False
        return named

    def _place(self, records: Records, is_final: bool, batch: Batch) -> None:
        state = self.state
        for incarnation, rank, part in incarnation_slices(state, records.numbers):
            raw, numbers = records.raw[part], records.numbers[part]
            kinds = raw.view(np.uint8).reshape(len(raw), ring.RECORD_BYTES)[:, 4]
            for kind in np.flatnonzero(np.bincount(kinds)):
                chosen = kinds == kind
                found = Part(raw[chosen], numbers[chosen], state.proc, rank, state.names)
                batch.parts.append(PlacedPart(int(kind), incarnation, found, is_final))

    def _add_rows(self, batch: Batch, now_ns: int, is_last: bool) -> None:
        state = self.state
        batch.tables += kernel_windows(state)
        batch.rows += journal_rows(state, state.rows)
        state.rows.clear()
        if is_last or state.joins != self._told_joins:
            exit_kind = state.exit_kind if is_last else "running"
            batch.rows += [node_row(state), *process_rows(state, exit_kind, self._num_records(), self._num_dropped())]
            self._told_joins = list(state.joins)
        if self.ring is not None and (is_last or now_ns - self._captured_ns >= CAPTURE_NS):
            batch.rows += capture_rows(state, self.ring.counters(), self._reading_ns(now_ns, is_last))
            self._captured_ns = now_ns

    def _reading_ns(self, now_ns: int, is_last: bool) -> int:
        """The last reading carries the moment of the process's last sign, so that it is the same whoever takes it."""
        return max(self.state.last_ns, self.ring.last_ns if self.ring else 0) if is_last else now_ns

    def _num_records(self) -> int | None:
        told = self.state.num_records
        return told if told is not None else (self.ring.num_seen if self.ring else None)

    def _num_dropped(self) -> int:
        return self.ring.num_dropped if self.ring else 0


def kernel_windows(state: ProcessState) -> list[PlacedTable]:
    """The kernels of the windows that the journal has told of since; a trace that cannot be read gives none."""
    found = []
    for told in [row for row in state.rows if row.table == KERNEL_WINDOW]:
        from .importers.kineto_window import window_rows  # only where windows are asked for

        join = state.join_of_line(told.line)
        try:
            rows = window_rows(told, state.proc, join.rank if join else None)
        except (InputError, OSError, KeyError, TypeError, ValueError) as error:
            _log.warning("kernel window of process %s: %s", state.proc, error)
            continue
        if rows is not None:
            found.append(PlacedTable("kernel", join.incarnation if join else 0, rows))
    return found


def local_files(state: ProcessState) -> list[str]:
    """The files of a process on this machine: its ring, then its journal (which names the ring)."""
    return [path for path in (state.ring_path, state.path) if path]


def remove_files(state: ProcessState) -> None:
    """Delete them. Only after everything in them is safely in the run directory."""
    for path in local_files(state):
        try:
            os.unlink(path)
        except OSError:
            continue


def _name_columns(kind: int) -> list[tuple[int, bool]]:
    """Offsets of the interned columns of a ring kind, and whether each is a group."""
    fields = ring.layout(kind).fields.values()
    return [(f.offset, f.encoding == "group") for f in fields if f.encoding in ("intern", "group")]
