"""Tidying up launch folders on this machine: what an agent removes when it leaves, and what others left long ago."""

import contextlib
import os
import time
from pathlib import Path
from typing import Final

from rankscope.schema import paths

from .launch import take_lock

STALE_SECONDS: Final = 86_400.0
"""A folder without any data is removed when it is this old; its lock file may still be wanted before."""


def remove_stale(folder: Path) -> None:
    """Remove the launch folders beside `folder` that are a day old and hold nothing but a free lock and a log."""
    for other in folder.parent.iterdir():
        try:
            if other == folder or not other.is_dir() or time.time() - other.stat().st_mtime < STALE_SECONDS:
                continue
            if {entry.name for entry in other.iterdir()} <= {paths.AGENT_LOCK, paths.AGENT_LOG}:
                _remove(other)
        except OSError:
            continue


def clean(folder: Path) -> None:
    """Remove the launch's folder on the tmpfs, and an empty log. The lock stays: a rank may be about to take it."""
    with contextlib.suppress(OSError):
        (paths.TMPFS_BASE / folder.parent.name / folder.name).rmdir()
    with contextlib.suppress(OSError):
        if (folder / paths.AGENT_LOG).stat().st_size == 0:
            (folder / paths.AGENT_LOG).unlink()


def _remove(folder: Path) -> None:
    lock = take_lock(folder)
    if lock is None:
        return
    try:
        for entry in folder.iterdir():
            entry.unlink()
        folder.rmdir()
    finally:
        os.close(lock)
