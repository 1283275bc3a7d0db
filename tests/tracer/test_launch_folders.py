"""Old launch folders without data go; young ones, locked ones and those with data stay."""

import os
import time
from pathlib import Path

import pytest

from rankscope.schema import paths
from rankscope.tracer.launch import take_lock
from rankscope.tracer.launch_folders import STALE_SECONDS, remove_stale


@pytest.mark.parametrize(
    ("files", "age_seconds", "is_locked", "stays"),
    [
        ((paths.AGENT_LOCK, paths.AGENT_LOG), 2 * STALE_SECONDS, False, False),
        ((paths.AGENT_LOCK,), STALE_SECONDS / 2, False, True),
        ((paths.AGENT_LOCK,), 2 * STALE_SECONDS, True, True),
        ((paths.AGENT_LOCK, "1.journal"), 2 * STALE_SECONDS, False, True),
    ],
)
def test_what_is_removed(
    tmp_path: Path, files: tuple[str, ...], age_seconds: float, is_locked: bool, stays: bool
) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    for name in files:
        (other / name).touch()
    lock = take_lock(other) if is_locked else None
    os.utime(other, (time.time() - age_seconds,) * 2)
    remove_stale(own)
    assert other.exists() == stays and own.exists()
    if lock is not None:
        os.close(lock)
