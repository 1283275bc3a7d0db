"""The rows that a process's journal and counters give: tables without ring records, and the tables of entities.

Everything here is a pure function of what was read, so the agent, recovery and the reader write the same rows.
"""

import os
import platform
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .process_state import JournalRow, ProcessState, Row
from .ring import MAX_HOOKS
from .tables import TABLES
from .version import ONTOLOGY_VERSION

_US2_IN_NS2 = 1_000_000


class PlacedRow(NamedTuple):
    """A row and the incarnation whose folder it goes to; None for entities."""

    table: str
    incarnation: int | None
    row: Row


def journal_rows(state: ProcessState, rows: Iterable[JournalRow]) -> list[PlacedRow]:
    """`rows` of the journal, completed by the process's key and placed. A table that is not ours is left out.

    A row without a record number gets the ordinal of its line, so that reading a journal twice gives the same rows.
    A checkpoint that was loaded is also an artifact of the run. What a process that seemed to be alone said of a run of
    its own is left out once it has joined another.
    """
    known = [row for row in rows if row.table in TABLES and not _is_of_another_run(state, row)]
    loaded = [JournalRow("artifact", row.line, _loaded(row.body)) for row in known if _is_load(row)]
    return [_placed(state, row) for row in (*known, *loaded)]


def process_rows(state: ProcessState, exit_kind: str, num_records: int | None, num_dropped: int) -> list[PlacedRow]:
    """One row of table process for each join (or one without, of incarnation 0)."""
    started = [join.from_record for join in state.joins[1:]]
    common = {"proc": state.proc, "node": state.node, "exit_kind": exit_kind, "exit_error": state.error or None,
              "num_dropped": num_dropped, "num_records": num_records, "ended_ns": state.ended_ns}  # fmt: skip
    if not state.joins:
        return [PlacedRow("process", None, {**state.process, **common, "incarnation": 0})]
    found = []
    for join, until in zip(state.joins, [*started, None], strict=True):
        row = {**state.process, **_known(join.body), **common, "incarnation": join.incarnation}
        if until is not None:
            row |= {"exit_kind": "clean", "exit_error": None, "num_records": until}
        found.append(PlacedRow("process", None, row))
    return found


def capture_rows(state: ProcessState, counters: npt.NDArray[np.uint64], time_ns: int) -> list[PlacedRow]:
    """A reading of the hooks' counters, one row per hook that was entered. counters: see `decode.counters`."""
    join = state.joins[-1] if state.joins else None
    found = []
    for hook, known in state.hooks.items():
        if not 0 <= known.slot < min(MAX_HOOKS, len(counters)):
            continue
        calls, timed, spent, squares, rows, dropped, errors, is_off = (int(word) for word in counters[known.slot])
        row = {"proc": state.proc, "rank": _rank(state, join.rank if join else None), "time_ns": time_ns, "hook": hook,
               "tier": known.tier, "is_on": known.is_on and not is_off, "num_rows": rows, "num_dropped": dropped,
               "num_errors": errors, "num_calls": calls, "num_timed_calls": timed, "timed_ns": spent,
               "timed_ns_squared": float(squares) * _US2_IN_NS2, "ring_path": state.ring_path,
               "is_tmpfs": state.is_tmpfs}  # fmt: skip
        found.append(PlacedRow("capture", join.incarnation if join else 0, row))
    return found


def node_row(state: ProcessState) -> PlacedRow:
    """The row of the process's node: what this machine says, if it is the one, else only its name."""
    row: Row = {"node": state.node, "host": state.process.get("host"), "boot_id": state.process.get("boot_id")}
    if row["boot_id"] == this_boot():
        row |= {"num_cpus": os.cpu_count(), "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
                "kernel": platform.release(), "os": platform.system()}  # fmt: skip
    return PlacedRow("node", None, row)


def incarnation_slices(state: ProcessState, numbers: npt.NDArray[np.int64]) -> list[tuple[int, int | None, slice]]:
    """The parts of ascending record `numbers` by incarnation: (incarnation, rank, slice), none empty."""
    if not len(numbers):
        return []
    if not state.joins:
        return [(0, _rank(state, None), slice(0, len(numbers)))]
    edges = _edges([join.from_record for join in state.joins[1:]], numbers)
    return [
        (join.incarnation, _rank(state, join.rank), slice(first, last))
        for join, first, last in zip(state.joins, edges[:-1], edges[1:], strict=True)
        if last > first
    ]  # fmt: skip


def _edges(starts: Sequence[int], numbers: npt.NDArray[np.int64]) -> list[int]:
    rising = np.maximum.accumulate(np.array(starts, np.int64))
    return [0, *(int(edge) for edge in np.searchsorted(numbers, rising)), len(numbers)]


def _placed(state: ProcessState, source: JournalRow) -> PlacedRow:
    table, join = TABLES[source.table], state.join_of_line(source.line)
    row = dict(source.body)
    if table.table_class == "entity":
        if source.table == "process_group":
            row.setdefault("incarnation", join.incarnation if join else 0)
        elif source.table == "artifact" and row.get("kind") == "seed":
            row["source"] = f"{row.get('source')}, rank {_rank(state, join.rank if join else None)}"
        elif source.table == "run":
            row |= {"ontology_version": ONTOLOGY_VERSION}
            row.setdefault("run_id", join.run_id if join else None)
        return PlacedRow(source.table, None, row)
    if "proc" in table.names:
        row |= {"proc": state.proc, "rank": row.get("rank", _rank(state, join.rank if join else None))}
    if "record" in table.names:
        row.setdefault("record", source.line)
    return PlacedRow(source.table, join.incarnation if join else 0, row)


def _is_of_another_run(state: ProcessState, row: JournalRow) -> bool:
    return row.table == "run" and state.run is not None and row.body.get("run_id") not in (None, state.run.run_id)


def _is_load(row: JournalRow) -> bool:
    body = row.body
    is_done = body.get("outcome") not in ("unfinished", "failed")
    return row.table == "checkpoint" and body.get("action") == "load" and bool(body.get("path")) and is_done


def _loaded(body: Row) -> Row:
    step = body.get("global_step")
    return {"kind": "checkpoint", "name": str(body["path"]), "version": None if step is None else f"step {step}",
            "digest": body.get("digest"), "source": f"loaded ({body.get('format') or 'unknown format'})"}  # fmt: skip


def _known(body: Row) -> Row:
    return {key: value for key, value in body.items() if value is not None}


def _rank(state: ProcessState, joined: int | None) -> int | None:
    given = state.process.get("rank")
    return joined if joined is not None else (int(given) if given is not None else None)


def this_boot() -> str:
    """The boot id of this machine; "" where the kernel does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
