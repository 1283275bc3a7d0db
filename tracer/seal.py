"""`rankscope seal`: what dead agents and dead processes left becomes sealed files, as if the agent had left in peace.

Takes the streams of dead agents in the run directory, and on this machine the spools, journals and rings of launches
whose lock is free; then merges. What still has a living agent or process is left alone and named. Sealing twice changes
nothing. Local files are deleted only after their rows are sealed.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from rankscope.schema import paths
from rankscope.schema.errors import InputError, UnreadableFile
from rankscope.schema.leftovers import Leftover, find_leftovers
from rankscope.schema.process_rows import this_boot

from .adopt import Batches, Orphans, adopt
from .compact import compact
from .drain import remove_files
from .launch import take_lock
from .orphans import collect, is_agent_alive, live_nodes, remove_beat, tokens
from .rundir import RunDir
from .verify import readable_run_id, sealed_names

OrphansByKey = dict[tuple[str, int | None], Orphans]


@dataclass(frozen=True, slots=True)
class Sealing:
    """What was done. num_rows: newly sealed; left_alone: what still lives, and what could not be read, in words."""

    run_id: str
    num_rows: int
    num_files: int
    nodes: tuple[str, ...]
    left_alone: tuple[str, ...]


@dataclass(slots=True)
class _Work:
    """The orphans of each node, and what to delete once they are sealed."""

    orphans: dict[str, OrphansByKey] = field(default_factory=dict)
    streams: list[str] = field(default_factory=list)
    beats: list[tuple[str, str]] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def seal(run_dir: str) -> Sealing:
    """Seal the run at `run_dir` (path or address). Raises NotARun, UnreadableFile (it cannot be written)."""
    place = RunDir(run_dir)
    found = find_leftovers(run_dir)
    try:
        if found:
            place.prepare(found[0].run)
        run_id = readable_run_id(place)
        with contextlib.ExitStack() as locks:
            return _seal(place, run_id, found, locks)
    except OSError as error:
        raise UnreadableFile(f"{run_dir}: {error.strerror or error}") from error


def _seal(place: RunDir, run_id: str, found: list[Leftover], locks: contextlib.ExitStack) -> Sealing:
    work = _Work()
    running = {leftover.state.node for leftover in found if leftover.state is not None and leftover.is_alive}
    for node in live_nodes(place):
        if node not in running:  # rows in the streams may still change, and an agent will come for them
            _take_streams(place, node, work)
    for folder, leftovers in _by_folder(found):
        _take_leftovers(folder, leftovers, work, locks)
    num_rows, token = 0, f"{paths.hash63(os.getpid(), time.time_ns()):016x}"[:8]
    for orphans in work.orphans.values():
        for number, each in enumerate(orphans.values()):
            num_rows += adopt(place, each, f"{token}-{number:04d}", _staging(place))
    _delete(place, work)
    nodes = sorted({*work.orphans, *_sealed_nodes(place)})
    for node in nodes:
        compact(place, node, f"{token}-merged", _staging(place))
    return Sealing(run_id, num_rows, len(sealed_names(place)), tuple(nodes), tuple(work.notes))


def _take_streams(place: RunDir, node: str, work: _Work) -> None:
    dead = [token for token in tokens(place, node) if not is_agent_alive(place, node, token, this_boot())]
    alive = len(tokens(place, node)) - len(dead)
    if alive:
        work.notes.append(f"node {node}: {alive} agent(s) still at work, or silent for less than a minute")
    work.streams += collect(place, node, dead, work.orphans.setdefault(node, {}), work.notes)
    work.beats += [(node, token) for token in dead]


def _take_leftovers(folder: Path, leftovers: list[Leftover], work: _Work, locks: contextlib.ExitStack) -> None:
    lock = take_lock(folder)
    if lock is None:
        work.notes.append(f"{folder}: its agent is still at work")
        return
    locks.callback(os.close, lock)
    for leftover in leftovers:
        if leftover.is_alive:
            work.notes.append(f"{leftover.source}: its process still runs")
            continue
        for (table, incarnation, node), rows in leftover.tables().items():
            orphans = work.orphans.setdefault(node, {})
            orphans.setdefault((table, incarnation), Orphans(table, incarnation, node)).sources.append(_again(rows))
        work.notes += leftover.problems
        if not leftover.problems:
            work.leftovers.append(leftover)


def _delete(place: RunDir, work: _Work) -> None:
    for name in work.streams:
        place.remove(name)
    for node, token in work.beats:
        remove_beat(place, node, token)
    for leftover in work.leftovers:
        if leftover.state is not None:
            remove_files(leftover.state)
            continue
        spool = RunDir(leftover.source)
        for stream in leftover.streams:
            with contextlib.suppress(OSError):
                os.unlink(stream)
        with contextlib.suppress(OSError, InputError):
            spool.remove(paths.RUN_FILE)
            for node in live_nodes(spool):
                spool.remove_empty(f"{paths.LIVE}/node={node}")
            os.rmdir(leftover.source)


def _by_folder(found: list[Leftover]) -> Iterator[tuple[Path, list[Leftover]]]:
    folders: dict[Path, list[Leftover]] = {}
    for leftover in found:
        source = Path(leftover.source)
        folder = source.parent if leftover.state is not None else source.parent.parent
        folders.setdefault(folder, []).append(leftover)
    yield from folders.items()


def _sealed_nodes(place: RunDir) -> set[str]:
    return {
        part.removeprefix("node=") for name in sealed_names(place) for part in name.split("/") if part[:5] == "node="
    }


def _again(rows: pa.Table) -> Batches:
    def batches() -> Iterator[pa.Table]:
        yield rows

    return batches


def _staging(place: RunDir) -> str:
    """Where files for an object store are written first; a local run directory has no use for it."""
    return "" if place.is_local else str(paths.local_base() / paths.SPOOL)
