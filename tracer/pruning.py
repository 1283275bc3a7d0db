"""Old runs are deleted: which ones, and what of them.

Only what rankscope writes is deleted, `run.json` last, so that what an interruption leaves is still known as a run; a
file of somebody else in a run directory stays, and the directory with it. A run is left alone while a process or an
agent of it lives, on this machine (by their locks) or on another (by the age of the agent's beat).
"""

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rankscope.schema import paths
from rankscope.schema.leftovers import find_leftovers, is_wanted
from rankscope.schema.process_rows import this_boot
from rankscope.schema.tables import TABLES

from .drain import remove_files
from .orphans import is_agent_alive, live_nodes, tokens
from .rundir import RunDir

OWN_FOLDERS: Final = (*TABLES, paths.INDEX, paths.LIVE)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A run that could be deleted. written_ns: when it was last written to, since 1970; num_bytes: of its own files."""

    run_id: str
    path: str
    written_ns: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was, or with is_dry_run would be, deleted, the oldest first; and what was left alone although it was due."""

    deleted: list[Candidate] = field(default_factory=list)
    left_alone: list[tuple[str, str]] = field(default_factory=list)
    is_dry_run: bool = False

    @property
    def freed_bytes(self) -> int:
        """Bytes of the deleted runs."""
        return sum(run.num_bytes for run in self.deleted)


def candidate(folder: Path) -> Candidate | None:
    """The run in `folder`; None where it is not certain that there is one."""
    named = paths.read_run_file(folder / paths.RUN_FILE)
    if named is None or folder.is_symlink():
        return None
    found = [entry.lstat() for entry in own_files(folder)]
    written_ns = max(entry.st_mtime_ns for entry in found)
    return Candidate(named[0], str(folder), written_ns, sum(entry.st_size for entry in found))


def own_files(folder: Path) -> list[Path]:
    """The files of the run in `folder` that rankscope wrote."""
    found = [folder / paths.RUN_FILE]
    for name in OWN_FOLDERS:
        for parent, _, files in os.walk(folder / name):
            found += [Path(parent) / file for file in files]
    return found


def due(runs: Sequence[Candidate], before_ns: int | None, max_bytes: int | None) -> list[Candidate]:
    """The runs last written before `before_ns`, and the oldest of the others until they fit; the oldest first."""
    oldest_first = sorted(runs, key=lambda run: (run.written_ns, run.path))
    chosen = [run for run in oldest_first if before_ns is not None and run.written_ns < before_ns]
    kept = [run for run in oldest_first if run not in chosen]
    while max_bytes is not None and kept and sum(run.num_bytes for run in kept) > max_bytes:
        chosen.append(kept.pop(0))
    return chosen


def prune(folders: Sequence[Path], before_ns: int | None, max_bytes: int | None, is_dry_run: bool) -> Pruned:
    """Delete what is due of the runs in `folders`, leaving alone what still runs. Raises OSError."""
    done, runs, room = Pruned(is_dry_run=is_dry_run), list[Candidate](), max_bytes
    for folder in folders:
        run = candidate(folder)
        if run is None:
            done.left_alone.append((str(folder), "it has no run.json that says what it is"))
        elif why := why_alive(folder):
            done.left_alone.append((str(folder), why))
            room = None if room is None else max(0, room - run.num_bytes)
        else:
            runs.append(run)
    for run in due(runs, before_ns, room):
        if not is_dry_run and (stays := delete(Path(run.path))):
            done.left_alone.append((run.path, stays))
        done.deleted.append(run)
    return done


def why_alive(folder: Path) -> str:
    """Why the run in `folder` must not be touched; "" where nobody works on it."""
    if is_wanted(str(folder)):
        return "it is running on this machine"
    place = RunDir(str(folder))
    for node in live_nodes(place):
        if any(is_agent_alive(place, node, token, this_boot()) for token in tokens(place, node)):
            return f"an agent on {node} is writing it"
    return ""


def delete(folder: Path) -> str:
    """Delete the run in `folder`, and what dead processes left of it on this machine. Returns what stayed, in words."""
    leftovers = find_leftovers(str(folder))
    for name in OWN_FOLDERS:
        if (folder / name).is_dir() and not (folder / name).is_symlink():
            shutil.rmtree(folder / name)
    (folder / paths.RUN_FILE).unlink()
    for leftover in leftovers:
        if leftover.state is not None:
            remove_files(leftover.state)
        else:
            shutil.rmtree(leftover.source, ignore_errors=True)
    with suppress(OSError):
        folder.rmdir()
    return "files that are not the run's stay there" if folder.exists() else ""
