"""`rankscope run` is told where the runs of its job lie: every process that joins a run appends the place to a file.

The file is named by a variable that `run` sets, and lies in a private local folder. One append of a short line is
whole. Costs nothing where the variable is not set. An empty line says that a process records, and not yet where to.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

TOLD: Final = "_RANKSCOPE_TOLD"
"""Path of the file."""


def tell(run_dir: str) -> None:
    """Append a run's place, if somebody wants to know. Never raises."""
    path = os.environ.get(TOLD)
    if not path:
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.write(descriptor, run_dir.encode(errors="surrogateescape") + b"\n")
        finally:
            os.close(descriptor)
    except OSError:  # the file is gone: nobody waits any more
        return


def tell_recording() -> None:
    """Say that this process records rows, of whichever run. Never raises."""
    tell("")


def told(path: Path) -> list[str]:
    """The places that were told, each once, the first one first."""
    lines: Iterable[str] = path.read_text(errors="surrogateescape").splitlines()
    return list(dict.fromkeys(line for line in lines if line))
