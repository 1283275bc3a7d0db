"""Two hosts on this one, by their clocks: a time namespace in which CLOCK_MONOTONIC is ahead, with its own boot id.

The offset between the two is exact, and there is no drift: what an estimate must contain.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

AHEAD_SECONDS = 50
"""How far the second host's clock is ahead of the first one's."""
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_OTHER = "0c10c000-0000-4000-8000-000000000002"


def start_rank(place: Path, host: int, script: Path, rank: int, world_size: int) -> str:
    """A shell command that runs one rank on host 0 or 1."""
    settings = f"RANK={rank} WORLD_SIZE={world_size} LOCAL_RANK={rank % 2} MASTER_ADDR=127.0.0.1 MASTER_PORT={_port()}"
    command = f"env {settings} RANKSCOPE_LOCAL_DIR={place}/local{host} {sys.executable} {script}"
    return f"{_elsewhere()} '{_moved(place)} && exec {command}'" if host else command


def skip_where_clocks_cannot_be_moved(place: Path) -> None:
    """It takes root, `unshare` of util-linux 2.36 or later, and Linux 5.6 or later."""
    (place / "boot_id").write_text(_OTHER + "\n")
    try:
        probe = f"{_elsewhere()} '{_moved(place)} && cat {_BOOT_ID}'"
        found = subprocess.run(["bash", "-c", probe], capture_output=True, timeout=20, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no time namespaces here: {getattr(error, 'stderr', '') or error}")
    assert found.strip() == _OTHER


def _elsewhere() -> str:
    return f"unshare --time --monotonic {AHEAD_SECONDS} --mount --uts --fork --kill-child sh -c"


def _moved(place: Path) -> str:
    return f"mount --bind {place}/boot_id {_BOOT_ID} && hostname second-host"


def _port() -> int:
    return 20_000 + os.getpid() % 20_000
