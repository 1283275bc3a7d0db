"""`rankscope import flight-recorder`: dumps of PyTorch's flight recorder, one file a rank, become an ordinary run.

Every entry is a row of `collective`. What a process group's status says beyond the entries (the last operation that was
issued, and the last that completed) is a row without an operation's name: a rank that dumps no entry at all, because
its interpreter was locked, still tells so how far it had come. Status counters also count P2P, so a group's are taken
only if they agree with the entries of every rank that has any. Groups are the union of what the ranks' tables say.

P2P: a dump counts the operations of its own rank, so `seq` of two ends does not match. Times are the dumps': ns since
1970, discovered by NCCL's watchdog, null where it never saw a start or an end. Source: torch/csrc/distributed/c10d
FlightRecorder (2.9 dumps); status ids are the rank's own ordinals of groups, names are the job's: see `_names_by_id`.
"""

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from rankscope.schema.arrow import rows_to_table
from rankscope.schema.enums import DTYPES
from rankscope.schema.errors import InputError, NoEvidence
from rankscope.schema.paths import hash63
from rankscope.schema.process_state import Row
from rankscope.schema.version import ONTOLOGY_VERSION

from .flight_recorder_dump import Dump, read_dump
from .imported_run import INCARNATION, ImportedRun
from .kineto import run_length
from .request import FileReport, Imported, Request, files_of
from .trace_rank import rank_of

NODE: Final = "imported"
NO_RANK: Final = "its rank is not at the end of its name; give it with --rank-map"
_NUMBER: Final = re.compile(r"(\d+)(?:\.(?:json|pickle|pkl))?$")
_MOST_BYTES: Final = 1 << 60
"""No operation moves more."""
_P2P: Final = re.compile(r"^\w+:(send|recv) (\d+)(?:->|<-)(\d+)$")
_STATES: Final = {"scheduled": "issued", "started": "issued", "completed": "completed"}
_OPS: Final = {
    "all_reduce": "all_reduce", "all_reduce_barrier": "barrier", "_all_gather_base": "all_gather_into_tensor",
    "all_gather": "all_gather", "_reduce_scatter_base": "reduce_scatter_tensor", "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all", "broadcast": "broadcast", "_broadcast_oop": "broadcast", "reduce": "reduce",
    "_reduce_oop": "reduce", "gather": "gather", "scatter": "scatter", "barrier": "barrier", "coalesced": "coalesced",
    "allreduce_coalesced": "all_reduce_coalesced", "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor_coalesced",
    "all_gather_into_tensor_coalesced": "all_gather_into_tensor_coalesced", "all_reduce_sparse": "all_reduce_sparse",
}  # fmt: skip
"""Profiling names, without the backend before the colon."""
_DTYPES: Final = {
    "Float": ("float32", 4), "Double": ("float64", 8), "Half": ("float16", 2), "BFloat16": ("bfloat16", 2),
    "Char": ("int8", 1), "Byte": ("uint8", 1), "Short": ("int16", 2), "Int": ("int32", 4), "Long": ("int64", 8),
    "Bool": ("bool", 1), "ComplexFloat": ("complex64", 8), "ComplexDouble": ("complex128", 16),
    "Float8_e4m3fn": ("float8_e4m3fn", 1), "UInt16": ("uint16", 2), "UInt32": ("uint32", 4), "UInt64": ("uint64", 8),
}  # fmt: skip
"""c10 scalar types: ours and bytes per element."""


@dataclass(slots=True)
class _Work:
    """What the dumps have told so far. groups: name -> (description, members)."""

    dumps: dict[int, Dump] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    reports: list[FileReport] = field(default_factory=list)
    groups: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)


def import_flight_recorder(request: Request) -> Imported:
    """Import the dumps. Raises InputError (nothing there, nothing that can be imported, no place to write)."""
    files = [path for path in files_of(request.paths, ("",)) if _is_dump(path, request)]
    if not files:
        raise NoEvidence(f"{', '.join(request.paths)}: no file whose name ends in a rank")
    names = (part for path in files for part in (os.path.basename(path), os.path.getsize(path)))
    run_id = f"flight-recorder-{hash63(*names):016x}"
    work = _Work()
    for path in files:
        work.reports.append(_read(path, request, work))
    if not work.dumps:
        raise NoEvidence(f"{work.reports[0].path}: {work.reports[0].note}")
    with ImportedRun(request.out, run_id, NODE) as run:
        trusted = _trusted(work.dumps)
        for rank, dump in sorted(work.dumps.items()):
            proc = hash63("imported", run_id, rank)
            found = [*_entry_rows(dump, work.groups), *_status_rows(dump, trusted)]
            rows: list[Row] = [{"proc": proc, "rank": rank, "record": i} | row for i, row in enumerate(found)]
            work.counts[rank] = len(rows)
            run.add("collective", rows_to_table("collective", rows))
        size = max(*work.dumps, *(max(members, default=0) for _, members in work.groups.values()), 0) + 1
        num_rows = run.finish(_entities(run_id, size, work))
    reports = tuple(_with_rows(report, work) for report in work.reports)
    missing = tuple(rank for rank in range(size) if rank not in work.dumps)
    return Imported(run_id, request.out, reports, num_rows, size, missing)


def _is_dump(path: str, request: Request) -> bool:
    """A file is taken if it was named, or if its name ends in a rank: logs beside the dumps do not."""
    name = os.path.basename(path)
    return path in request.paths or path in request.ranks or name in request.ranks or bool(_NUMBER.search(name))


def _read(path: str, request: Request, work: _Work) -> FileReport:
    size = os.path.getsize(path)
    try:
        dump = read_dump(path)
    except (InputError, OSError) as error:
        return FileReport(path, None, 0, 0, 0, 0, False, str(error).removeprefix(f"{path}: "))
    request.progress(path, size, size)
    found = _NUMBER.search(os.path.basename(path))
    rank = rank_of(path, request.ranks, None, int(found[1]) if found else None)
    if rank is None:
        return FileReport(path, None, len(dump.entries), 0, dump.num_skipped, 0, False, NO_RANK)
    if rank in work.dumps:
        return FileReport(path, rank, len(dump.entries), 0, 0, 0, False, f"another file is of rank {rank}")
    work.dumps[rank] = dump
    for name, (description, members) in dump.groups.items():
        known = work.groups.get(name, ("", ()))
        work.groups[name] = (known[0] or description, tuple(sorted({*known[1], *members})))
    note = f"{dump.num_skipped:,} damaged entries were skipped" if dump.num_skipped else ""
    note = note if dump.entries or note else "an empty record: its process could not tell what it was doing"
    return FileReport(path, rank, len(dump.entries), 0, dump.num_skipped, 0, True, note)


def _with_rows(report: FileReport, work: _Work) -> FileReport:
    if not report.is_imported or report.rank is None:
        return report
    return FileReport(report.path, report.rank, report.num_events, work.counts[report.rank], report.num_skipped, 0,
                      True, report.note)  # fmt: skip


def _trusted(dumps: dict[int, Dump]) -> set[str]:
    """The groups whose status counts collectives only: where a rank has entries of one, it is the last one's number."""
    good, bad = set[str](), set[str]()
    for dump in dumps.values():
        names = _names_by_id(dump)
        last: dict[str, int] = {}
        for entry in dump.entries:
            name = _group_of(entry)
            last[name] = max(last.get(name, -1), int(entry["collective_seq_id"]))
            if entry.get("is_p2p"):
                bad.add(name)
        for pg_id, status in dump.status.items():
            name = names.get(pg_id, "")
            if name in last:
                (good if status.get("last_enqueued_collective") == last[name] else bad).add(name)
    return good - bad


def _entry_rows(dump: Dump, groups: dict[str, tuple[str, tuple[int, ...]]]) -> Iterator[Row]:
    for entry in dump.entries:
        yield _entry_row(entry, groups)


def _status_rows(dump: Dump, trusted: set[str]) -> Iterator[Row]:
    """What the status says of operations that no entry is about."""
    seen = {(_group_of(entry), int(entry["collective_seq_id"])) for entry in dump.entries}
    names = _names_by_id(dump)
    for pg_id, status in sorted(dump.status.items()):
        name = names.get(pg_id, "")
        for key, state in (("last_completed_collective", "completed"), ("last_enqueued_collective", "issued")):
            seq = status.get(key, -1)
            if name not in trusted or seq < 0 or (name, seq) in seen:
                continue
            seen.add((name, seq))
            yield {"group_id": group_id(name), "seq": seq, "state": state, "tier": "imported",
                   "timing_source": "flight_recorder" if state == "completed" else None}  # fmt: skip


def _names_by_id(dump: Dump) -> dict[int, str]:
    """The job's name of each group by the rank's ordinal of it.

    The entries tell it; for the others: both are in order of creation, so where a table has as many groups as the
    status, and every entry agrees, they are paired in that order.
    """
    told = {int(entry["pg_id"]): _group_of(entry) for entry in dump.entries if "pg_id" in entry}
    if len(dump.status) != len(dump.groups) or not all(name.isdigit() for name in dump.groups):
        return told
    paired = dict(zip(sorted(dump.status), sorted(dump.groups, key=int), strict=True))
    return paired if all(paired.get(key) == name for key, name in told.items()) else told


def _group_of(entry: dict[str, Any]) -> str:
    group = entry.get("process_group")
    return str(group[0]) if isinstance(group, list | tuple) and group else ""


def group_id(name: str) -> str:
    """The id of the group that the job calls `name`."""
    return f"{hash63('flight recorder', name):016x}"


def _entry_row(entry: dict[str, Any], groups: dict[str, tuple[str, tuple[int, ...]]]) -> Row:
    name = str(entry.get("profiling_name", ""))
    members = groups.get(_group_of(entry), ("", ()))[1]
    op, src, dst = _operation(name, members)
    dtype, num_in = _tensors(entry.get("input_sizes"), entry.get("input_dtypes"))
    _, num_out = _tensors(entry.get("output_sizes"), entry.get("output_dtypes"))
    state = _STATES.get(str(entry.get("state")), "issued")
    return {
        "group_id": group_id(_group_of(entry)), "op": op, "src": src, "dst": dst,
        "seq": int(entry["p2p_seq_id"] if entry.get("is_p2p") else entry["collective_seq_id"]),
        "dtype": dtype, "bytes_in": num_in, "bytes_out": num_out,
        "issued_ns": entry.get("time_created_ns"), "device_start_ns": entry.get("time_discovered_started_ns"),
        "completed_ns": entry.get("time_discovered_completed_ns"), "state": state, "tier": "imported",
        "timing_source": None if state == "issued" else "flight_recorder",
    }  # fmt: skip


def _operation(name: str, members: tuple[int, ...]) -> tuple[str, int | None, int | None]:
    """Our name of the operation; for P2P the global ranks of its ends (the dump has ranks in the group)."""
    found = _P2P.match(name)
    if found is None:
        return _OPS.get(name.partition(":")[2], "other"), None, None
    mine, peer = (_global(int(found[i]), members) for i in (2, 3))
    return (found[1], mine, peer) if found[1] == "send" else (found[1], peer, mine)


def _global(rank: int, members: tuple[int, ...]) -> int | None:
    return members[rank] if rank < len(members) else None


def _tensors(sizes: Any, dtypes: Any) -> tuple[str | None, int | None]:
    """The first tensor's type and the bytes of all; None where they are not told."""
    if not isinstance(sizes, list | tuple) or not isinstance(dtypes, list | tuple) or not dtypes:
        return None, None
    known = [_DTYPES.get(str(dtype)) for dtype in dtypes]
    first = known[0][0] if known[0] else "other"
    if len(known) != len(sizes) or any(item is None for item in known) or not all(map(_is_shape, sizes)):
        return first, None
    total = sum(math.prod(size) * item[1] for size, item in zip(sizes, known, strict=True) if item)
    return (first if first in DTYPES else "other"), (total if total < _MOST_BYTES else None)


def _is_shape(size: object) -> bool:
    return isinstance(size, list | tuple) and all(type(length) is int and length >= 0 for length in size)


def _entities(run_id: str, size: int, work: _Work) -> dict[str, list[Row]]:
    processes: list[Row] = [{
        "proc": hash63("imported", run_id, rank), "rank": rank, "node": NODE, "boot_id": NODE,
        "incarnation": INCARNATION, "num_records": work.counts[rank] + work.dumps[rank].num_skipped,
        "num_dropped": work.dumps[rank].num_skipped,
    } for rank in sorted(work.dumps)]  # fmt: skip
    groups: list[Row] = []
    for name, (description, members) in work.groups.items():
        starts, strides, counts = run_length(members)
        groups.append({
            "group_id": group_id(name), "incarnation": INCARNATION, "member_starts": starts, "member_strides": strides,
            "member_counts": counts, "size": len(members), "backend": "nccl", "description": description or name,
        })  # fmt: skip
    versions = sorted({dump.version for dump in work.dumps.values()})
    lost = [{"file": os.path.basename(item.path), "why": item.note} for item in work.reports if item.note]
    run = {"run_id": run_id, "world_size": size, "ontology_version": ONTOLOGY_VERSION, "manifest": {
        "imported": {"format": "flight-recorder", "versions": versions, "files": len(work.reports), "notes": lost},
    }}  # fmt: skip
    return {"run": [run], "process": processes, "node": [{"node": NODE}], "process_group": groups}
