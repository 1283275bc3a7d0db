"""Does every file of a run still hold what its agent wrote? Each sealed file is compared with the index of its node.

Reads every byte of the run once. Cannot see rows that were never written: that is what coverage says.
"""

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from rankscope.schema import paths
from rankscope.schema.errors import InputError, NotARun
from rankscope.schema.index import IndexEntry
from rankscope.schema.streams import stream_batches
from rankscope.schema.tables import TABLES

from .index import decode_index_file
from .rundir import RunDir
from .sealed_file import read_footer, stream_digest

Kind = Literal["missing", "changed", "unreadable", "not in the index", "not sealed"]


@dataclass(frozen=True, slots=True)
class FileProblem:
    """One thing that is not as it should be. "not sealed" is no damage: `rankscope seal` mends it."""

    file: str
    kind: Kind
    detail: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What was checked: sealed files, their rows and bytes, live streams; and the problems in order of their files."""

    run_id: str
    num_files: int
    num_rows: int
    num_bytes: int
    num_streams: int
    problems: tuple[FileProblem, ...]

    @property
    def is_intact(self) -> bool:
        """No file is missing, changed, unreadable or unknown."""
        return all(problem.kind == "not sealed" for problem in self.problems)


def verify(run_dir: str) -> Verification:
    """Check every file of the run at `run_dir` (path or address). Raises NotARun, UnreadableFile (no permission)."""
    place = RunDir(run_dir)
    run_id = readable_run_id(place)
    problems: list[FileProblem] = []
    entries = _entries(place, problems)
    for entry in entries.values():
        problems += _check_entry(place, entry)
    for name in sealed_names(place):
        if name not in entries:
            problems.append(_unknown(place, name))
    streams = list(_streams(place))
    problems += [problem for name, table in streams for problem in _check_stream(place, name, table)]
    return Verification(
        run_id, len(entries), sum(entry.num_rows for entry in entries.values()),
        sum(entry.num_bytes for entry in entries.values()), len(streams),
        tuple(sorted(problems, key=lambda problem: problem.file)),
    )  # fmt: skip


def readable_run_id(place: RunDir) -> str:
    """The run's id. Raises NotARun where there is no run."""
    try:
        run_id = place.run_id()
    except OSError as error:
        raise NotARun(f"{place.address}: {error.strerror or error}") from error
    if run_id is None:
        raise NotARun(f"{place.address} is no run directory: it has no {paths.RUN_FILE}")
    return run_id


def sealed_names(place: RunDir) -> list[str]:
    """Every sealed file of a run, facts and entities."""
    found = []
    for table in place.list(""):
        if table not in TABLES:
            continue
        for part in place.list(table):
            if part.endswith(".parquet"):
                found.append(f"{table}/{part}")
            for node in place.list(f"{table}/{part}") if "=" in part else []:
                folder = f"{table}/{part}/{node}"
                found += [f"{folder}/{name}" for name in place.list(folder) if name.endswith(".parquet")]
    return found


def _entries(place: RunDir, problems: list[FileProblem]) -> dict[str, IndexEntry]:
    found: dict[str, IndexEntry] = {}
    for name in place.list(paths.INDEX):
        if not name.endswith(".parquet"):
            continue
        try:
            found |= {entry.file: entry for entry in decode_index_file(place, f"{paths.INDEX}/{name}")}
        except InputError as error:
            problems.append(FileProblem(f"{paths.INDEX}/{name}", "unreadable", str(error)))
    return found


def _check_entry(place: RunDir, entry: IndexEntry) -> list[FileProblem]:
    try:
        with place.open(entry.file) as file:
            digest = stream_digest(file)
    except FileNotFoundError:
        return [FileProblem(entry.file, "missing", f"{entry.num_rows} rows")]
    except OSError as error:
        return [FileProblem(entry.file, "unreadable", error.strerror or str(error))]
    if digest == entry.digest:
        return []
    return [FileProblem(entry.file, "changed", f"digest {digest}, the index says {entry.digest}")]


def _unknown(place: RunDir, name: str) -> FileProblem:
    try:
        with place.open(name) as file:
            rows = read_footer(file).num_rows
        return FileProblem(name, "not in the index", f"{rows} rows")
    except (OSError, pa.ArrowException) as error:
        return FileProblem(name, "unreadable", str(error).splitlines()[0])


def _streams(place: RunDir) -> list[tuple[str, str]]:
    found = []
    for node in place.list(paths.LIVE):
        for name in place.list(f"{paths.LIVE}/{node}"):
            stream = paths.parse_stream_name(name)
            if stream is not None:
                found.append((f"{paths.LIVE}/{node}/{name}", stream.table))
    return found


def _check_stream(place: RunDir, name: str, table: str) -> list[FileProblem]:
    try:
        with place.open(name) as file:
            rows = sum(batch.num_rows for batch in stream_batches(file, table, name))
        return [FileProblem(name, "not sealed", f"{rows} rows")]
    except (InputError, OSError) as error:
        return [FileProblem(name, "unreadable", str(error).splitlines()[0])]
