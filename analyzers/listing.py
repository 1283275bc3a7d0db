"""Which files make up a run, and which of them cannot be used and why.

Every sealed file is opened once for its footer (about 0.3 ms each): the table it says it holds, the ontology it was
written under, its rows and columns. What is truncated, foreign or forbidden becomes a `Fault`, named beside every number
as lower coverage; a file of a newer major ontology refuses the whole run, since it may mean something else.
"""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from rankscope.schema.errors import NewerOntology, UnreadableFile
from rankscope.schema.paths import INDEX, LIVE, RUN_FILE
from rankscope.schema.tables import TABLES
from rankscope.schema.version import readable

from .place import Place

_FACT: Final = re.compile(r"(?P<table>\w+)/incarnation=(?P<incarnation>-?\d+)/node=(?P<node>[^/]+)/(?P<number>\d+)\.parquet")
_ENTITY: Final = re.compile(r"(?P<table>\w+)/(?P<node>[^/]+)\.parquet")
_STREAM: Final = re.compile(LIVE + r"/node=(?P<node>[^/]+)/(?P<table>\w+)(?:\.(?P<incarnation>-?\d+)\.(?P<number>\d+))?\.arrows")
_UNFINISHED: Final = re.compile(r"(^|/)\.|\.(tmp|part)$")
_READERS: Final = 8
"""Threads that read footers: on shared file systems the wait is latency."""


@dataclass(frozen=True, slots=True)
class RunFile:
    """One usable file. incarnation and number are None for entities; num_rows is 0 for streams (not known yet)."""

    path: str
    table: str
    incarnation: int | None
    node: str
    number: int | None
    num_rows: int = 0
    num_bytes: int = 0
    columns: frozenset[str] = frozenset()
    run_id: str = ""

    @property
    def partition(self) -> tuple[int | None, str]:
        """Rows of one process never lie in two partitions."""
        return self.incarnation, self.node


@dataclass(frozen=True, slots=True)
class Fault:
    """A file that cannot be used, with the reason in words."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Listing:
    """sealed: Parquet files, streams: Arrow streams without a sealed twin, index: index files; document: run.json."""

    sealed: tuple[RunFile, ...]
    streams: tuple[RunFile, ...]
    index: tuple[str, ...]
    faults: tuple[Fault, ...]
    document: dict[str, Any]


def list_run(place: Place) -> Listing:
    """The files of the run at `place`, in an order that does not depend on the file system.

    Raises UnreadableFile (the folder cannot be listed) or NewerOntology (any file).
    """
    infos = _walk(place)
    sealed, streams, faults, index = [], [], [], []
    for relative, info in infos:
        if (match := _STREAM.fullmatch(relative)) and match["table"] in TABLES:
            streams.append(_from_match(match, info))
        elif relative.startswith(INDEX + "/"):
            index.append(info.path)
        elif (match := _sealed(relative)) is not None:
            sealed.append(_from_match(match, info))
        elif relative != RUN_FILE and not _UNFINISHED.search(relative):
            faults.append(Fault(relative, "not a file of a run"))
    good, bad = _read_footers(place, sealed)
    twins = {(item.table, item.partition, item.number) for item in good if item.number is not None}
    alone = tuple(item for item in streams if (item.table, item.partition, item.number) not in twins)
    return Listing(good, alone, tuple(index), (*faults, *bad), _document(place, infos))


def relative_path(place: Place, path: str) -> str:
    """`path` as it reads inside the run directory."""
    return path.removeprefix(place.root).lstrip("/")


def check_ontology(path: str, version: str) -> None:
    """Raises NewerOntology if this code cannot read what was written under `version`."""
    if not readable(version):
        raise NewerOntology(f"{path}: written under ontology {version}; a newer rankscope is needed to read it")


def _walk(place: Place) -> list[tuple[str, fs.FileInfo]]:
    try:
        infos = place.filesystem.get_file_info(fs.FileSelector(place.root, recursive=True))
    except OSError as error:
        raise UnreadableFile(f"{place.address}: {_reason(error)}") from error
    found = [(relative_path(place, info.path), info) for info in infos if info.type == fs.FileType.File]
    return sorted(found, key=lambda pair: pair[0])


def _sealed(relative: str) -> re.Match[str] | None:
    match = _FACT.fullmatch(relative)
    if match and match["table"] in TABLES and TABLES[match["table"]].table_class != "entity":
        return match
    match = _ENTITY.fullmatch(relative)
    return match if match and match["table"] in TABLES and TABLES[match["table"]].table_class in ("entity", "conclusion") else None


def _from_match(match: re.Match[str], info: fs.FileInfo) -> RunFile:
    parts = match.groupdict()
    incarnation, number = parts.get("incarnation"), parts.get("number")
    return RunFile(
        info.path, parts["table"] or "", None if incarnation is None else int(incarnation), parts["node"] or "",
        None if number is None else int(number), num_bytes=int(info.size or 0),
    )  # fmt: skip


def _read_footers(place: Place, files: list[RunFile]) -> tuple[tuple[RunFile, ...], list[Fault]]:
    with ThreadPoolExecutor(_READERS) as pool:
        answers = list(pool.map(lambda item: _read_footer(place, item), files))
    good = tuple(answer for answer in answers if isinstance(answer, RunFile))
    return good, [answer for answer in answers if isinstance(answer, Fault)]


def _read_footer(place: Place, item: RunFile) -> RunFile | Fault:
    relative = relative_path(place, item.path)
    try:
        with place.filesystem.open_input_file(item.path) as source:
            footer = pq.ParquetFile(source).metadata
            schema = footer.schema.to_arrow_schema()
    except (OSError, pa.ArrowException) as error:
        return Fault(relative, _reason(error))
    stored = {key.decode(): value.decode(errors="replace") for key, value in (footer.metadata or {}).items()}
    if stored.get("rankscope.table") != item.table:
        return Fault(relative, f"foreign: it does not say that it holds table {item.table}")
    check_ontology(relative, stored.get("rankscope.ontology", ""))
    return RunFile(
        item.path, item.table, item.incarnation, item.node, item.number, footer.num_rows, item.num_bytes,
        frozenset(schema.names), stored.get("rankscope.run_id", ""),
    )  # fmt: skip


def _document(place: Place, infos: list[tuple[str, fs.FileInfo]]) -> dict[str, Any]:
    path = dict(infos).get(RUN_FILE)
    if path is None:
        return {}
    try:
        with place.filesystem.open_input_stream(path.path) as source:
            document = json.loads(source.read())
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"{path.path}: {_reason(error)}") from error
    if not isinstance(document, dict):
        raise UnreadableFile(f"{path.path}: not the description of a run")
    version = document.get("ontology_version") or document.get("ontology")
    if version:
        check_ontology(path.path, str(version))
    return document


def _reason(error: BaseException) -> str:
    if isinstance(error, PermissionError):
        return "no permission to read it"
    first = (str(error).splitlines() or [type(error).__name__])[0]
    if "Parquet magic bytes" in first or "Parquet file size" in first or "too small" in first:
        return "truncated or not a Parquet file"
    return first
