"""Which files make up a run, and which of them cannot be used and why.

Every sealed file is opened once for its footer (about 0.3 ms each): the table it says it holds, the ontology it was
written under, its rows and columns. What is truncated, foreign or forbidden becomes a `Fault`, named beside every
number as lower coverage; a file of a newer major ontology refuses the whole run, since it may mean something else.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from rankscope.schema.errors import NewerOntology, UnreadableFile
from rankscope.schema.paths import INDEX, LIVE, REPLACES, RUN_FILE, TRUTH, parse_stream_name
from rankscope.schema.tables import TABLES
from rankscope.schema.version import readable

from .place import Place

_FACT: Final = re.compile(
    r"(?P<table>\w+)/incarnation=(?P<incarnation>-?\d+)/node=(?P<node>[^/]+)/(?P<k>[^/.]+)\.parquet"
)
_ENTITY: Final = re.compile(r"(?P<table>\w+)/(?P<node>[^/]+)\.parquet")
_LIVE: Final = re.compile(LIVE + r"/node=(?P<node>[^/]+)/(?P<name>[^/]+)")
_NOT_DATA: Final = re.compile(r"(^|/)\.|\.beat$")
"""Files that are not whole yet are hidden; a beat says that an agent lives."""
FOREIGN: Final = "not a file of a run"
_READERS: Final = 8
"""Threads that read files: on shared file systems the wait is latency."""
_BUNDLE: Final = 16
"""Files that a thread reads before it asks for more."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunFile:
    """One usable file. incarnation is None for entities; k as in `schema.paths`; num_rows 0 for streams (not known
    yet).

    replaces: the k of the files that it stands for. procs: the least and the highest process of collectives, if told.
    """

    path: str
    table: str
    incarnation: int | None
    node: str
    k: str
    num_rows: int = 0
    num_bytes: int = 0
    columns: frozenset[str] = frozenset()
    replaces: frozenset[str] = frozenset()
    procs: tuple[int, int] | None = None

    @property
    def partition(self) -> tuple[int | None, str]:
        """Rows of one process never lie in two partitions."""
        return self.incarnation, self.node


@dataclass(frozen=True, slots=True)
class Fault:
    """A file that cannot be used, with the reason in words."""

    path: str
    reason: str


def unusable(num_faults: int) -> str:
    """What to add to a sentence about rows that are not there; "" where all files could be read."""
    return f"; {num_faults:,} of its files cannot be used: rankscope verify names them" if num_faults else ""


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
        if relative in (RUN_FILE, TRUTH) or _NOT_DATA.search(relative):
            continue
        if (stream := _stream(relative, info)) is not None:
            streams.append(stream)
        elif relative.startswith(INDEX + "/"):
            index.append(info.path)
        elif (file := _sealed(relative, info)) is not None:
            sealed.append(file)
        else:
            faults.append(Fault(relative, FOREIGN))
    answers = in_threads(lambda item: _read_footer(place, item), sealed)
    good = [answer for answer in answers if isinstance(answer, RunFile)]
    bad = [answer for answer in answers if isinstance(answer, Fault)]
    replaced = {(item.table, item.partition, k) for item in good for k in item.replaces - {item.k}}
    kept = tuple(item for item in good if (item.table, item.partition, item.k) not in replaced)
    replaced |= {(item.table, item.partition, item.k) for item in kept} | {
        (item.table, item.partition, k) for item in good for k in item.replaces
    }
    alone = tuple(item for item in streams if (item.table, item.partition, item.k) not in replaced)
    return Listing(kept, tuple(sorted(alone, key=_written)), tuple(index), (*faults, *bad), _document(place, infos))


def relative_path(place: Place, path: str) -> str:
    """`path` as it reads inside the run directory."""
    return path.removeprefix(place.root).lstrip("/")


def is_entity(table: str) -> bool:
    """Entities and conclusions lie in one file a node, facts and readings in partitions by incarnation and node."""
    return TABLES[table].table_class in ("entity", "conclusion")


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


def _sealed(relative: str, info: fs.FileInfo) -> RunFile | None:
    match = _FACT.fullmatch(relative)
    if match and match["table"] in TABLES and not is_entity(match["table"]):
        return RunFile(
            info.path, match["table"], int(match["incarnation"]), match["node"], match["k"], 0, int(info.size or 0)
        )
    match = _ENTITY.fullmatch(relative)
    if match and match["table"] in TABLES and is_entity(match["table"]):
        return RunFile(info.path, match["table"], None, match["node"], "", 0, int(info.size or 0))
    return None


def _stream(relative: str, info: fs.FileInfo) -> RunFile | None:
    match = _LIVE.fullmatch(relative)
    name = parse_stream_name(match["name"]) if match else None
    if match is None or name is None or name.table not in TABLES or is_entity(name.table) != (name.incarnation is None):
        return None
    return RunFile(info.path, name.table, name.incarnation, match["node"], name.k, 0, int(info.size or 0))


def _written(item: RunFile) -> tuple[str, tuple[tuple[int, str], ...]]:
    """Order of writing: k ends in a number that rises."""
    parts = re.findall(r"\d+|\D+", item.k)
    return item.path.rpartition("/")[0], tuple((int(part), "") if part.isdigit() else (-1, part) for part in parts)


def in_threads(read: Callable[[RunFile], T], files: Sequence[RunFile]) -> list[T]:
    """What `read` returns for each file: of many they are read side by side."""
    if len(files) <= _READERS:
        return [read(item) for item in files]
    from concurrent.futures import ThreadPoolExecutor

    bundles = [files[low : low + _BUNDLE] for low in range(0, len(files), _BUNDLE)]
    with ThreadPoolExecutor(_READERS) as pool:
        found = pool.map(lambda bundle: [read(item) for item in bundle], bundles)
        return [answer for answers in found for answer in answers]


def _read_footer(place: Place, item: RunFile) -> RunFile | Fault:
    relative = relative_path(place, item.path)
    try:
        with place.filesystem.open_input_file(item.path) as source:
            footer = pq.ParquetFile(source).metadata
            columns = _columns(footer)
    except (OSError, pa.ArrowException) as error:
        return Fault(relative, _reason(error))
    stored = {key.decode(): value.decode(errors="replace") for key, value in (footer.metadata or {}).items()}
    if stored.get("rankscope.table") != item.table:
        return Fault(relative, f"foreign: it does not say that it holds table {item.table}")
    check_ontology(relative, stored.get("rankscope.ontology", ""))
    replaces = frozenset(filter(None, stored.get(REPLACES, "").split(",")))
    procs = _processes(footer) if item.table == "collective" else None
    return replace(item, num_rows=footer.num_rows, columns=columns, replaces=replaces, procs=procs)


def _processes(footer: pq.FileMetaData) -> tuple[int, int] | None:
    if "proc" not in footer.schema.names:
        return None
    leaf = footer.schema.names.index("proc")
    told = [footer.row_group(number).column(leaf).statistics for number in range(footer.num_row_groups)]
    if not told or not all(item is not None and item.has_min_max for item in told):
        return None
    return min(item.min for item in told), max(item.max for item in told)


_known_columns: Final[dict[tuple[str, ...], frozenset[str]]] = {}
"""By the names of the leaves: a run has many files of few kinds, and an Arrow schema of each doubles the time."""


def _columns(footer: pq.FileMetaData) -> frozenset[str]:
    leaves = tuple(footer.schema.names)
    if leaves not in _known_columns:
        _known_columns[leaves] = frozenset(footer.schema.to_arrow_schema().names)
    return _known_columns[leaves]


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
