"""What a process's journal says: who it is, which runs it joined, what the numbers in its records stand for.

Fed line by line, so that the agent can follow a growing journal and a reader can take a whole one. Costs a few us a
line.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from . import paths
from .decode import Names
from .journal import JournalLine, complete_bytes, decode

Row = dict[str, Any]


class Join(NamedTuple):
    """A process joined a run: its rows from ring record `from_record` on belong to `incarnation`.

    line: ordinal of the journal line, which orders it against rows of the journal.
    """

    run_id: str
    run_dir: str
    incarnation: int
    from_record: int
    rank: int | None
    body: Row
    line: int

    @property
    def is_alone(self) -> bool:
        """It joined nothing, and seemed to be the only process."""
        return bool(self.body.get("is_alone"))


class JournalRow(NamedTuple):
    """A row that came by the journal. line: ordinal of its line, from 0; group rows keep no other identity."""

    table: str
    line: int
    body: Row


class HookState(NamedTuple):
    """The last that the journal said about a hook. slot: of its counters in the ring file, -1 unknown."""

    slot: int
    tier: str | None
    is_on: bool


class RunRef(NamedTuple):
    """A run and the directory (or address) it is written to."""

    run_id: str
    run_dir: str


@dataclass(slots=True)
class ProcessState:
    """One process, as far as its journal goes. Times are CLOCK_MONOTONIC ns."""

    path: str
    process: Row = field(default_factory=dict)
    ring_path: str = ""
    ring_capacity: int = 0
    is_tmpfs: bool | None = None
    joins: list[Join] = field(default_factory=list)
    names: Names = field(default_factory=Names)
    groups: dict[int, Row] = field(default_factory=dict)
    """The last line about each group, by the number that the process's records have for it."""
    run_row: Row = field(default_factory=dict)
    """What it said of its run (rank 0 does); empty if it said nothing."""
    hooks: dict[str, HookState] = field(default_factory=dict)
    rows: list[JournalRow] = field(default_factory=list)
    num_lines: int = 0
    num_bad_lines: int = 0
    num_records: int | None = None
    ended_ns: int | None = None
    error: str | None = None
    last_ns: int = 0

    def feed(self, lines: Iterable[JournalLine | None]) -> None:
        """Take note of further lines, in file order. A line with wrong contents is counted as bad, like a torn one."""
        for line in lines:
            try:
                if line is None:
                    self.num_bad_lines += 1
                else:
                    self.last_ns = max(self.last_ns, line.time_ns)
                    self._take(line)
            except (KeyError, TypeError, ValueError):
                self.num_bad_lines += 1
            self.num_lines += 1

    @property
    def proc(self) -> int:
        """The process's hash: from its line, else from the journal's name."""
        stem = os.path.basename(self.path).split(".", 1)[0]
        return int(self.process.get("proc") or (stem if stem.isdigit() else 0))

    @property
    def node(self) -> str:
        """The node's id."""
        known = self.process
        given = known.get("node")
        return str(given or paths.node_id(str(known.get("host") or "unknown"), str(known.get("boot_id") or "")))

    @property
    def lock_path(self) -> str:
        """The file whose record lock says that the process lives."""
        return self.ring_path if self.ring_capacity else self.path

    @property
    def exit_kind(self) -> str:
        """How it ended, once it is known to have: see column exit_kind of table process."""
        if self.ended_ns is None:
            return "killed"
        return "failed" if self.error else "clean"

    @property
    def run(self) -> RunRef | None:
        """The run of its last join; None if it never joined."""
        return RunRef(self.joins[-1].run_id, self.joins[-1].run_dir) if self.joins else None

    def join_of_record(self, record: int) -> Join | None:
        """The join that ring record `record` belongs to: the last one at or before it, else the first."""
        before = [join for join in self.joins if join.from_record <= record]
        return before[-1] if before else (self.joins[0] if self.joins else None)

    def join_of_line(self, line: int) -> Join | None:
        """The join that a row of the journal belongs to."""
        before = [join for join in self.joins if join.line <= line]
        return before[-1] if before else (self.joins[0] if self.joins else None)

    def _take(self, line: JournalLine) -> None:
        body = line.body
        if line.kind == "process":
            self.process = body
        elif line.kind == "ring":
            self.ring_path, self.ring_capacity = str(body.get("path") or ""), int(body.get("capacity") or 0)
            self.is_tmpfs = body.get("is_tmpfs")
            if not self.ring_capacity:
                self._note(line, body.get("why"))
        elif line.kind == "join":
            if self.joins and self.joins[-1].is_alone:  # it was not: what it did before belongs to the group as well
                self.joins.pop()
            self.joins.append(_join(body, self.num_lines))
        elif line.kind == "name":
            self.names.names[int(body["id"])] = str(body["value"])
        elif line.kind == "thread":
            self.names.threads[int(body["id"])] = int(body["native"])
        elif line.kind == "exit":
            self.ended_ns, self.num_records, self.error = line.time_ns, body.get("num_records"), body.get("error")
        else:
            self._take_row(line)

    def _take_row(self, line: JournalLine) -> None:
        body = line.body
        if line.kind == "group":
            self.names.groups[int(body["id"])] = str(body["group_id"])
            self.groups[int(body["id"])] = body
            if body.get("member_starts"):
                self._row("process_group", {"created_ns": line.time_ns, **body})
        elif line.kind == "hook":
            known = self.hooks.get(body["hook"])
            index = int(body.get("index", known.slot if known else -1))
            tier = body.get("tier") or (known.tier if known else None)
            self.hooks[body["hook"]] = HookState(index, tier, bool(body.get("is_on", True)))
            self._row("capture", {"time_ns": line.time_ns, "tier": tier, **body})
        elif line.kind == "clock":
            self._row("clock", {"monotonic_ns": line.time_ns, **body})
        elif line.kind == "run":
            self.run_row = body
            self._row("run", body)
        elif line.kind == "row":
            self._row(str(body["table"]), dict(body["row"]))
        elif line.kind == "note":
            self._note(line, body.get("text"))

    def _note(self, line: JournalLine, text: object) -> None:
        self._row("capture", {"time_ns": line.time_ns, "hook": "note", "why": text})

    def _row(self, table: str, body: Row) -> None:
        self.rows.append(JournalRow(table, self.num_lines, body))


def read_journal(path: str) -> ProcessState:
    """The state of the process whose journal lies at `path`. Raises OSError."""
    with open(path, "rb") as file:
        data = file.read()
    state = ProcessState(path)
    state.feed(decode(data[: complete_bytes(data)]))
    return state


def _join(body: Row, line: int) -> Join:
    rank = body.get("rank")
    return Join(str(body["run_id"]), str(body["run_dir"]), int(body.get("incarnation") or 0),
                int(body.get("from_record") or 0), None if rank is None else int(rank), body, line)  # fmt: skip
