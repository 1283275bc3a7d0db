"""What an importer is asked, and what it answers: the same for every format."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from rankscope.schema.errors import NotARun, UnreadableFile
from rankscope.schema.kernel_classes import Classes

from .trace_rank import RankMap


def _silent(path: str, num_read: int, num_bytes: int) -> None:
    """No progress is shown."""


@dataclass(frozen=True, slots=True)
class Request:
    """paths: files and folders. out: the run's folder or address. progress: (file, bytes read, its size)."""

    paths: tuple[str, ...]
    out: str
    ranks: RankMap = field(default_factory=dict)
    classes: Classes = field(default_factory=Classes)
    progress: Callable[[str, int, int], None] = _silent


@dataclass(frozen=True, slots=True)
class FileReport:
    """One file. note: why it was left out, or what was wrong with it; "" if nothing was."""

    path: str
    rank: int | None
    num_events: int
    num_rows: int
    num_skipped: int
    num_quarantined: int
    is_imported: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class Imported:
    """What was written. missing: ranks below the job's size of which there is no file."""

    run_id: str
    address: str
    files: tuple[FileReport, ...]
    num_rows: int
    world_size: int
    missing: tuple[int, ...]


class Importer(Protocol):
    """Reads one format and writes a run. Raises InputError if nothing could be imported."""

    def __call__(self, request: Request, /) -> Imported: ...


def files_of(paths: tuple[str, ...], endings: tuple[str, ...]) -> list[str]:
    """The files that `paths` name, those in folders by their ending; sorted, each once.

    Raises UnreadableFile (a path that is not there), NotARun (no file at all).
    """
    found: dict[str, None] = {}
    for path in map(_plain, paths):
        if os.path.isdir(path):
            inside = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
            found |= dict.fromkeys(sorted(name for name in inside if name.endswith(endings) and os.path.isfile(name)))
        elif os.path.exists(path):
            found[path] = None
        else:
            raise UnreadableFile(f"{path}: no such file or folder")
    if not found:
        what = f"file that ends in {' or '.join(endings)}" if any(endings) else "file"
        raise NotARun(f"{', '.join(paths)}: no {what}")
    return list(found)


def _plain(path: str) -> str:
    """Without what says nothing ("./", "//", a slash at the end)."""
    return path if ".." in path.split(os.sep) else os.path.normpath(path)
