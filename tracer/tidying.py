"""What dead launches left on this machine: the next agent of the same user seals it, and deletes what is sealed.

Where everything was killed at once, journals and rings (4 MB of memory each in /dev/shm) stay behind. A launch folder
is taken up if nobody holds its lock, no process of it lives, and nothing in it was written for QUIET_SECONDS. An agent
drains it as it would have at the time: rows go to the run directory, and files are deleted once all of them are sealed
there. Where that cannot be done (the run directory cannot be written, or the place where it lay is gone) everything
stays as it is until it is EVIDENCE_SECONDS old; so does a ring without a journal, which nobody can read. Runs after an
agent's own work, for about PATIENCE_SECONDS; the rest is for the next one.
"""

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rankscope.schema import decode, paths
from rankscope.schema.errors import InputError
from rankscope.schema.leftovers import folder_leftovers
from rankscope.schema.liveness import is_alive

from .drain import local_files
from .launch import take_lock

QUIET_SECONDS: Final = 60.0
EVIDENCE_SECONDS: Final = 7 * 86_400.0
"""Unsealed files younger than this are never deleted."""
PATIENCE_SECONDS: Final = 1.0
"""No further folder is begun after this time."""

Drain = Callable[[Path, threading.Event], None]
"""Runs an agent on a folder; the event is set: it is to seal what is there and leave."""


def tidy(own: Path, drain: Drain) -> None:
    """Take up the launch folders of this user other than `own`, whose agent has left. Raises nothing for a folder."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    for folder in paths.local_folders():
        if time.monotonic() > deadline:
            return
        if folder.name != own.name:
            with contextlib.suppress(OSError):
                _take_up(folder, drain)


def _take_up(folder: Path, drain: Drain) -> None:
    files = _files(folder)
    if not files or _age_seconds(files) < QUIET_SECONDS or any(map(is_alive, map(str, files))):
        return
    lock = take_lock(folder)
    if lock is None:
        return
    try:
        if any(_can_be_there(leftover.run.run_dir) for leftover in folder_leftovers(folder)):
            over = threading.Event()
            over.set()
            drain(folder, over)
        _delete_old(folder)
    finally:
        os.close(lock)


def _files(folder: Path) -> list[Path]:
    """The evidence of a launch: journals, spooled streams, and the rings in this folder or named by its journals."""
    found = {path for path in folder.rglob("*") if path.name not in (paths.AGENT_LOCK, paths.AGENT_LOG)}
    for leftover in folder_leftovers(folder):
        found |= {Path(name) for name in local_files(leftover.state)} if leftover.state is not None else set()
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def _age_seconds(files: list[Path]) -> float:
    """Since the last sign of the launch. Writing to a mapped ring leaves no trace in its file's times: it is read."""
    return min(min(time.time() - path.stat().st_mtime, _quiet_seconds(path)) for path in files)


def _quiet_seconds(path: Path) -> float:
    """Since the last record of a ring that this boot wrote; infinite for other files."""
    if path.suffix != ".ring":
        return math.inf
    try:
        header, view = decode.open_ring(str(path))
    except InputError:
        return math.inf
    with view:
        times = decode.base_times(decode.snapshot(view, header)[0])
    quiet = (time.monotonic_ns() - int(times.max())) / 1e9 if len(times) else math.inf
    return quiet if quiet >= 0 else math.inf


def _can_be_there(run_dir: str) -> bool:
    """The run directory, or the place where it was to be made, still exists: what was deleted does not come back."""
    place = Path(run_dir)
    return "://" in run_dir or any(path.is_dir() for path in (place, *list(place.parents)[:2]) if path != Path("/"))


def _delete_old(folder: Path) -> None:
    files = _files(folder)
    if files and _age_seconds(files) > EVIDENCE_SECONDS:
        for path in files:
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        if not _files(folder) and folder.parent == paths.tmpfs_base():
            (folder / paths.AGENT_LOCK).unlink(missing_ok=True)
            folder.rmdir()
