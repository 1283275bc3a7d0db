"""What lies on this machine and is not, or not certainly, in the run directory: rings, journals, and spooled streams.

Processes that still run, that died and whose agent died too, or whose run directory could not be written. Everything is
decoded in memory; nothing is written, moved or locked. Rows may be in the run directory as well: `Table.key` tells.
Costs about 30 ms for a full ring of 32,768 records. Cannot see other machines' local disks.
"""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from . import decode, paths
from .arrow import rows_to_table
from .errors import InputError
from .liveness import is_alive
from .merge import merge_rows
from .process_rows import PlacedRow, capture_rows, incarnation_slices, journal_rows, node_row, process_rows
from .process_state import ProcessState, RunRef, read_journal
from .streams import read_stream
from .tables import RING_TABLES

TableKey = tuple[str, int | None, str]
"""(table, incarnation, node); incarnation is None for entities."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """One process's journal and ring, or (state None) the streams that an agent spooled in a launch folder.

    source: the journal, or the spool's folder. problems: what could not be read, in words; filled by `tables`.
    """

    run: RunRef
    source: str
    state: ProcessState | None
    is_alive: bool
    streams: tuple[str, ...]
    problems: list[str]

    def tables(self) -> dict[TableKey, pa.Table]:
        """Everything that is there, one row per key. What cannot be read is named in `problems`."""
        if self.state is not None:
            return process_tables(self.state, self.is_alive, self.problems)
        return _spooled_tables(self.streams, self.problems)


def find_leftovers(run_dir: str) -> list[Leftover]:
    """The leftovers of the run at `run_dir` (path or address) in all launch folders of this user on this machine."""
    wanted, own_place = _same_place(run_dir), cache(_own_place)
    return [leftover for leftover in all_leftovers() if _same_place(own_place(leftover.run)) == wanted]


def is_wanted(run_dir: str) -> bool:
    """A living process was given this directory, whichever run lies there, or its rows will be written there."""
    wanted = _same_place(run_dir)
    living = [leftover.run for leftover in all_leftovers() if leftover.is_alive]
    return any(wanted in (_same_place(run.run_dir), _same_place(_own_place(run))) for run in living)


def leftover_runs() -> list[RunRef]:
    """The runs that have leftovers on this machine, each once, in order of their ids."""
    return sorted({RunRef(run.run_id, _own_place(run)) for run in {leftover.run for leftover in all_leftovers()}})


def all_leftovers() -> list[Leftover]:
    """The leftovers of every run. A process that joined nothing belongs to the run of its launch folder, if any."""
    return [leftover for folder in paths.local_folders() for leftover in folder_leftovers(folder)]


def folder_leftovers(folder: Path) -> list[Leftover]:
    """The leftovers in one launch folder."""
    states = [state for path in sorted(folder.glob("*.journal")) if (state := _journal(path)) is not None]
    adopted = folder_run(states)
    found = []
    for state in states:
        run = run_of(state, adopted)
        if run is not None:
            found.append(Leftover(run, state.path, state, is_alive(state.lock_path), (), []))
    return [*found, *_spools(folder)]


def folder_run(states: list[ProcessState]) -> RunRef | None:
    """The run that processes without a join adopt: the latest one joined in their launch folder."""
    joined = [(state.last_ns, state.run) for state in states if state.run is not None]
    return max(joined)[1] if joined else None


def run_of(state: ProcessState, adopted: RunRef | None) -> RunRef | None:
    """The run of a process: the one it joined; its own if nobody launched it as one of several; else its folder's."""
    own = fallback_run(state)
    return state.run or (own if state.process.get("is_solo") else None) or adopted or own


def fallback_run(state: ProcessState) -> RunRef | None:
    """Where a process goes that joined nothing, in a folder where nobody did: what its own first line says, if any."""
    run_id, run_dir = state.process.get("run_id"), state.process.get("run_dir")
    return RunRef(str(run_id), str(run_dir)) if run_id and run_dir else None


def process_tables(state: ProcessState, alive: bool, problems: list[str]) -> dict[TableKey, pa.Table]:
    """The rows of one process: its journal's and its whole ring's. Unreadable rings are named in `problems`."""
    found: dict[TableKey, list[pa.Table]] = {}
    rows = [*journal_rows(state, state.rows), node_row(state)]
    num_records = state.num_records
    if state.ring_capacity:
        try:
            records, numbers, counters = _ring(state)
        except InputError as error:
            problems.append(str(error))
        else:
            num_records = num_records if num_records is not None else (int(numbers[-1]) + 1 if len(numbers) else 0)
            rows += capture_rows(state, counters, _last_moment(state, records))
            _decode_ring(state, records, numbers, found)
    exit_kind = "running" if alive else state.exit_kind
    rows += process_rows(state, exit_kind, num_records, 0)
    for key, table in _row_tables(state.node, rows).items():
        found.setdefault(key, []).append(table)
    return {key: merge_rows(pa.concat_tables(parts).unify_dictionaries(), key[0]) for key, parts in found.items()}


def _decode_ring(
    state: ProcessState, records: decode.Records, numbers: decode.Numbers, found: dict[TableKey, list[pa.Table]]
) -> None:
    for incarnation, rank, part in incarnation_slices(state, numbers):
        for kind in RING_TABLES:
            table = decode.to_arrow(records[part], numbers[part], kind, state.proc, rank, state.names)
            if table.num_rows:
                found.setdefault((RING_TABLES[kind].name, incarnation, state.node), []).append(table)


def _row_tables(node: str, rows: list[PlacedRow]) -> dict[TableKey, pa.Table]:
    by_key: dict[TableKey, list[dict[str, object]]] = {}
    for placed in rows:
        by_key.setdefault((placed.table, placed.incarnation, node), []).append(placed.row)
    return {key: rows_to_table(key[0], found) for key, found in by_key.items()}


def _ring(state: ProcessState) -> tuple[decode.Records, decode.Numbers, npt.NDArray[np.uint64]]:
    header, view = decode.open_ring(state.ring_path)
    with view:
        records, numbers = decode.snapshot(view, header)
        return records, numbers, decode.counters(view)


def _last_moment(state: ProcessState, records: decode.Records) -> int:
    times = decode.base_times(records)
    return max(state.last_ns, int(times.max()) if len(times) else 0)


def _journal(path: Path) -> ProcessState | None:
    try:
        return read_journal(str(path))
    except OSError:
        return None


def _spools(folder: Path) -> list[Leftover]:
    found = []
    for place in sorted(folder.glob(f"{paths.SPOOL}/*")):
        run = paths.read_run_file(place / paths.RUN_FILE)
        streams = tuple(str(path) for path in sorted(place.glob(f"{paths.LIVE}/node=*/*.arrows")))
        if run is not None and streams:
            found.append(Leftover(RunRef(*run), str(place), None, False, streams, []))
    return found


def _spooled_tables(streams: tuple[str, ...], problems: list[str]) -> dict[TableKey, pa.Table]:
    found: dict[TableKey, list[pa.Table]] = {}
    for path in streams:
        named = paths.parse_stream_name(os.path.basename(path))
        if named is None:
            continue
        node = os.path.basename(os.path.dirname(path)).removeprefix("node=")
        try:
            found.setdefault((named.table, named.incarnation, node), []).append(read_stream(path, named.table))
        except InputError as error:
            problems.append(str(error))
    return {key: merge_rows(pa.concat_tables(parts).unify_dictionaries(), key[0]) for key, parts in found.items()}


def _own_place(run: RunRef) -> str:
    """Its directory, or the one beside it, where its agent will write it since another run lies there."""
    known = None if "://" in run.run_dir else paths.read_run_file(Path(run.run_dir, paths.RUN_FILE))
    return run.run_dir if known is None or known[0] == run.run_id else paths.beside(run.run_dir, run.run_id)


def _same_place(run_dir: str) -> str:
    return run_dir.rstrip("/") if "://" in run_dir else os.path.realpath(run_dir)
