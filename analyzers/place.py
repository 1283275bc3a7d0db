"""Where is the run that a command was asked about: a path, an object-store address, or an id under `./rankscope-runs`.

Costs one look at the file system. A run whose directory nobody has made yet (a job that has only just begun) is placed
where it will be; `run` then reads it from the local leftovers of its processes.
"""

from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs

from rankscope.schema.errors import NotARun, UnreadableFile
from rankscope.schema.paths import RUNS_FOLDER


@dataclass(frozen=True, slots=True)
class Place:
    """A run directory. root: as `filesystem` spells it. address: as a person would; is_there: it exists."""

    root: str
    address: str
    filesystem: fs.FileSystem
    is_local: bool
    is_there: bool = True


def locate(run: str) -> Place:
    """The place of `run`. is_there is False for one of which only leftovers on this machine are known.

    Raises UnreadableFile (no such store, no permission) or NotARun (nothing there, a file, an empty name).
    """
    if not run:
        raise NotARun("no run was named: give a run directory, its address, or an id under ./" + RUNS_FOLDER)
    if "://" in run:
        return _remote(run)
    try:
        return _local(run)
    except OSError as error:
        raise UnreadableFile(f"{run}: {error.strerror or error}") from error


def _local(run: str) -> Place:
    candidates = [Path(run), Path(RUNS_FOLDER) / run]
    for candidate in candidates:
        if candidate.is_dir():
            return _place(candidate, is_there=True)
        if candidate.exists():
            raise NotARun(f"{candidate}: a file, not a run directory")
    from rankscope.schema.leftovers import leftover_runs

    for begun in leftover_runs():
        if begun.run_id == run or begun.run_dir in {str(candidate.resolve()) for candidate in candidates}:
            return _place(Path(begun.run_dir), is_there=Path(begun.run_dir).is_dir())
    where = f" here or under ./{RUNS_FOLDER}" if "/" not in run else ""
    raise NotARun(f"{run}: no such run{where}")


def _place(folder: Path, is_there: bool) -> Place:
    path = str(folder.resolve())
    return Place(path, path, fs.LocalFileSystem(), is_local=True, is_there=is_there)


def _remote(address: str) -> Place:
    try:
        filesystem, root = fs.FileSystem.from_uri(address)
        is_there = filesystem.get_file_info(root.rstrip("/")).type == fs.FileType.Directory
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"{address}: {_first_line(error)}") from error
    local = isinstance(filesystem, fs.LocalFileSystem)
    return Place(root.rstrip("/"), address, filesystem, is_local=local, is_there=is_there)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
