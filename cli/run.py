"""`rankscope run -- CMD`: the job, observed, without an edit of its script.

The job gets a folder first on its PYTHONPATH (`rankscope.tracer.site`), and is left alone otherwise: output, terminal,
signals and status are its own. What is said about it goes to standard error.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Final

from rankscope.schema.paths import local_base
from rankscope.tracer.api import is_off
from rankscope.tracer.python_command import python_command
from rankscope.tracer.rank_or_not import CLAIM
from rankscope.tracer.site import job_path
from rankscope.tracer.telling import TOLD, told

from .arguments import Argument
from .child_process import NOT_EXECUTABLE, NOT_FOUND, die_of, run_command

_BLIND: Final = {"S": "imports no sitecustomize", "I": "takes no PYTHONPATH", "E": "takes no PYTHONPATH"}
"""The interpreter's options with which nothing of ours can be loaded."""


def command(
    job: Annotated[list[str], Argument(metavar="-- CMD...", help="The command that starts the training.")],
) -> int:
    """Run a training and observe it, without an edit of its script.

    Leaves with the status of the command. Example: rankscope run -- torchrun --nproc-per-node=8 train.py
    """
    is_watched = not is_off(os.environ)
    if is_watched and (why := blindness(job)):
        _say(f"nothing can be captured: {why}; leave that option out")
    with _told_file() as path:
        try:
            status = run_command(job, job_environment(os.environ, path) if is_watched else os.environ)
        except OSError as error:
            return _not_started(job[0], error)
        _say(_place(path) if is_watched else "off: RANKSCOPE=0")
    if status < 0:
        sys.stdout.flush()
        die_of(-status)
    return status


def job_environment(environment: Mapping[str, str], told_file: Path | None) -> dict[str, str]:
    """The environment of an observed job. told_file: where its processes tell the places of their runs."""
    found = {name: value for name, value in environment.items() if name not in (CLAIM, TOLD)}
    found["PYTHONPATH"] = job_path(found.get("PYTHONPATH", ""))
    return found if told_file is None else found | {TOLD: str(told_file)}


def blindness(job: Sequence[str]) -> str:
    """Why a Python started as `job` could load nothing of ours; "" where it can, or where `job` is something else."""
    if not Path(job[0]).name.startswith(("python", "pypy")):
        return ""
    letters = [letter for letter in python_command(job).options if letter in _BLIND]
    return f"{Path(job[0]).name} -{letters[0]} {_BLIND[letters[0]]}" if letters else ""


@contextmanager
def _told_file() -> Iterator[Path | None]:
    """An empty file of this user alone in the folder for temporary files; None where there can be none."""
    path: Path | None = None
    with suppress(OSError):
        descriptor, name = tempfile.mkstemp(prefix="rankscope-told-")
        os.close(descriptor)
        path = Path(name)
    try:
        yield path
    finally:
        if path is not None:
            path.unlink(missing_ok=True)


def _place(path: Path | None) -> str:
    places = told(path) if path is not None and path.exists() else []
    if path is None:
        return "where the run lies was not told: no folder for temporary files can be written; see rankscope runs"
    if not places and path.stat().st_size:
        return (
            "rows were recorded, but none of the job's processes learnt which run they belong to (no rank 0 joined a "
            f"process group); they are below {local_base()}"
        )
    if not places:
        return "nothing was captured: no process of the job both loaded rankscope and trained; see rankscope doctor"
    if len(places) == 1:
        return f"the run is at {places[0]}"
    return f"{len(places)} runs are at {', '.join(places)}"


def _not_started(name: str, error: OSError) -> int:
    is_missing = isinstance(error, FileNotFoundError)
    _say(f"{name}: command not found" if is_missing else f"{name}: {error.strerror or error}")
    return NOT_FOUND if is_missing else NOT_EXECUTABLE


def _say(text: str) -> None:
    with suppress(OSError, ValueError):
        print(f"rankscope: {text}", file=sys.stderr, flush=True)
