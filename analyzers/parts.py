"""How a run is cut into parts: some nodes each; of a node of more than PART_ROWS rows, some processes.

A part is read once for all partials. Rows of one process lie on one node, so every part has whole processes. A run of
one part is read through its own connection: no file is opened anew, no process started.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from .listing import RunFile
from .place import Place
from .unsealed import Partition
from .views import quoted

if TYPE_CHECKING:
    from .partials import Partial
    from .run import Run

PART_ROWS: Final = 2_500_000
"""Rows of the large tables in a part, about: 600 MB while it is read, two seconds of work."""
LARGE: Final = ("collective", "span", "kernel", "sample_batch")
_ALWAYS: Final = ("step",)
"""Read beside the large tables: which steps count."""
_ENTITIES: Final = ("process", "process_group")
READ: Final = (*LARGE, *_ALWAYS, *_ENTITIES)
"""The tables that a part has."""


Bounds = tuple[int | None, int | None]
"""First and, not included, last process; None: no bound."""


@dataclass(frozen=True, slots=True)
class Task:
    """What to read and compute for one part; travels to another process.

    entities: of the whole run, as far as partials need them. given: small tables of the run that partials read. procs:
    of a part of a node.
    """

    place: Place
    partials: "tuple[Partial, ...]"
    sealed: tuple[RunFile, ...]
    facts: dict[str, dict[Partition, pa.Table]]
    entities: dict[str, pa.Table]
    given: dict[str, pa.Table]
    procs: Bounds | None = None
    is_whole_run: bool = False


def plan(run: "Run", partials: "tuple[Partial, ...]", part_rows: int | None = None) -> list[Task]:
    """The parts of `run` for `partials`, in an order that does not depend on anything but its nodes' names."""
    limit = part_rows or PART_ROWS
    nodes = _nodes(run, partials)
    whole = _task(run, partials)
    if sum(nodes.values()) <= limit:
        return [replace(whole, is_whole_run=not any(item.only for item in partials))]
    tasks: list[Task] = []
    gathered: list[str] = []
    for node, num_rows in sorted(nodes.items()):
        if num_rows > limit:
            part = _of_nodes(whole, [node])
            tasks += [replace(part, procs=bounds) for bounds in _processes(run, node, -(-num_rows // limit))]
            continue
        if sum(nodes[name] for name in gathered) + num_rows > limit:
            tasks.append(_of_nodes(whole, gathered))
            gathered = []
        gathered.append(node)
    return [*tasks, *([_of_nodes(whole, gathered)] if gathered else [])]


def part_of(run: "Run", partials: "tuple[Partial, ...]", nodes: list[str], bounds: Bounds) -> Task:
    """The part of `run` that is these nodes with the processes within `bounds`."""
    return replace(_of_nodes(_task(run, partials), nodes), procs=bounds)


def given_of(partials: "Iterable[Partial]") -> dict[str, str]:
    """The statements of the small tables that `partials` read, by name."""
    return {item.name: item.sql for partial in partials for item in partial.given}


def nodes_of(run: "Run", partials: "tuple[Partial, ...]") -> list[str]:
    """The nodes that have rows for `partials`."""
    return sorted(_nodes(run, partials))


def _nodes(run: "Run", partials: "tuple[Partial, ...]") -> dict[str, int]:
    """Rows of the large tables by node; a node with rows of small ones only has 0."""
    tables = {table for item in partials for table in item.tables}
    found: dict[str, int] = defaultdict(int)
    for item in _files(run, partials, tables):
        found[item.node] += item.num_rows
    for table in tables & set(run.unsealed.facts):
        for (_, node), rows in run.unsealed.facts[table].items():
            found[node] += rows.num_rows
    return dict(found)


def _files(run: "Run", partials: "tuple[Partial, ...]", tables: set[str]) -> list[RunFile]:
    """The sealed files that partials need: those that may hold one of the processes, where that is all they need."""
    files = [item for item in run.listing.sealed if item.table in tables]
    [only, *others] = {item.only for item in partials}
    if others or not only:
        return files
    procs = sorted(row[0] for row in run.rows(given_of(partials)[only]))
    return [item for item in files if item.procs is None or _has_any(procs, *item.procs)]


def _has_any(values: list[int], least: int, most: int) -> bool:
    """One of `values`, sorted, lies in these bounds."""
    return bisect_left(values, least) < bisect_right(values, most)


def _task(run: "Run", partials: "tuple[Partial, ...]") -> Task:
    """The whole run as one part."""
    tables = {*_ALWAYS, *(table for item in partials for table in item.tables)}
    facts = {table: parts for table, parts in run.unsealed.facts.items() if table in tables}
    entities = {name: rows for name, rows in run.unsealed.entities.items() if name in _ENTITIES}
    small = {name: run.connection.sql(sql).to_arrow_table() for name, sql in given_of(partials).items()}
    sealed = tuple(_files(run, partials, tables))
    return Task(run.place, partials, sealed, facts, entities, small)


def _of_nodes(whole: Task, nodes: list[str]) -> Task:
    """What of `whole` these nodes wrote."""
    chosen = set(nodes)
    sealed = tuple(item for item in whole.sealed if item.node in chosen)
    facts = {table: {key: rows for key, rows in parts.items() if key[1] in chosen}
             for table, parts in whole.facts.items()}  # fmt: skip
    entities = dict(whole.entities)
    if "process" in entities:
        rows = entities["process"]
        entities["process"] = rows.filter(pc.is_in(rows.column("node"), pa.array(sorted(chosen), pa.string())))
    return replace(whole, sealed=sealed, facts=facts, entities=entities)


def _processes(run: "Run", node: str, num_parts: int) -> list[Bounds]:
    procs = [row[0] for row in run.rows(f"SELECT DISTINCT proc FROM step WHERE node = {quoted(node)} ORDER BY proc")]
    each = max(1, -(-len(procs) // num_parts))
    return list(pairwise([None, *procs[each::each], None]))
