"""Which runs there are in a folder, newest first: only what their `run` rows say, not their facts."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope.schema.errors import InputError, NotARun, UnreadableFile
from rankscope.schema.leftovers import all_leftovers
from rankscope.schema.paths import LIVE, RUN_FILE

from .listing import Listing, RunFile, list_run
from .place import Place, locate
from .unsealed import read_unsealed

SEALED, UNSEALED, RUNNING, UNREADABLE = "sealed", "not sealed", "running", "unreadable"


@dataclass(frozen=True, slots=True)
class FoundRun:
    """One run. created_ns: ns since 1970, from its own row, else from its files. problem: why it cannot be read."""

    run_id: str
    path: str
    state: str
    created_ns: int
    world_size: int | None = None
    job_id: str | None = None
    num_bytes: int = 0
    problem: str = ""


def find_runs(folder: str) -> list[FoundRun]:
    """The runs in `folder`, or the one that it is, and runs begun here that wrote nothing there yet; newest first.

    Raises NotARun (no such folder, no run in it) or UnreadableFile (no permission).
    """
    found = runs_in(folder)
    if not found:
        raise NotARun(f"{folder}: no run in it")
    return found


def runs_in(folder: str) -> list[FoundRun]:
    """The same, empty where there is no run, yet or any more. Raises NotARun (no such folder) or UnreadableFile."""
    path = Path(folder)
    try:
        if not path.is_dir():
            raise NotARun(f"{folder}: {'not a folder' if path.exists() else 'no such folder'}")
        places = (
            [path] if _is_run(path) else sorted(entry for entry in path.iterdir() if entry.is_dir() and _is_run(entry))
        )
    except OSError as error:
        raise UnreadableFile(f"{folder}: {error.strerror or error}") from error
    alive = {
        leftover.run.run_dir: leftover.is_alive for leftover in sorted(all_leftovers(), key=lambda item: item.is_alive)
    }
    begun = [
        Path(run_dir) for run_dir in alive if Path(run_dir).parent == path.resolve() and not Path(run_dir).exists()
    ]
    found = [_describe(place, alive.get(str(place.resolve()))) for place in (*places, *begun)]
    return sorted(found, key=lambda run: (-run.created_ns, run.run_id))


def _is_run(folder: Path) -> bool:
    """Other programs write a run.json, too: what can be read must name a run, as ours does; damage is shown as such."""
    file = folder / RUN_FILE
    if file.exists():
        try:
            document = json.loads(file.read_bytes())
        except (OSError, ValueError):
            return True
        if isinstance(document, dict) and "run_id" in document and "ontology_version" in document:
            return True
    if any(any((folder / name).glob("*.parquet")) for name in ("run", "process")):
        return True
    live = folder / LIVE
    return live.is_dir() and not (live / RUN_FILE).exists()  # a run of that name lies in a folder of runs


def _describe(path: Path, alive: bool | None) -> FoundRun:
    try:
        place = locate(str(path))
        listing = list_run(place) if place.is_there else Listing((), (), (), (), {})
        row = _run_row(place, listing)
    except InputError as error:
        return FoundRun(path.name, str(path), UNREADABLE, 0, problem=str(error))
    state = RUNNING if alive else UNSEALED if alive is not None or listing.streams else SEALED
    run_id = str(row.get("run_id") or listing.document.get("run_id") or path.name)
    created_ns = int(row.get("created_ns") or (path.stat().st_mtime_ns if path.exists() else 0))
    num_bytes = sum(item.num_bytes for item in (*listing.sealed, *listing.streams))
    return FoundRun(run_id, str(path), state, created_ns, row.get("world_size"), row.get("job_id"), num_bytes)


def _run_row(place: Place, listing: Listing) -> dict[str, Any]:
    def only_run(items: tuple[RunFile, ...]) -> tuple[RunFile, ...]:
        return tuple(item for item in items if item.table == "run")

    narrow = Listing(only_run(listing.sealed), only_run(listing.streams), (), (), listing.document)
    rows = read_unsealed(place, narrow).entities.get("run")
    return rows.to_pylist()[0] if rows is not None and rows.num_rows else {}
