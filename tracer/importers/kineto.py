"""`rankscope import kineto`: traces of torch.profiler, one file or folders of ranks, become an ordinary run.

File after file, so memory is that of one. A file that cannot be read, or whose rank nobody knows, is left out with its
reason and never costs the others. Several files of one rank follow one another; where they overlap in time they are the
same window twice, and only the first counts. Times are those of the traces: nanoseconds since 1970.

Ranks whose devices are all different, and no more than one host's, are taken for ranks of one host with one clock;
else each is a host of its own, unless the traces name their hosts.
"""

import os
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from rankscope.schema.errors import InputError, NoEvidence
from rankscope.schema.paths import hash63
from rankscope.schema.process_state import Row
from rankscope.schema.version import ONTOLOGY_VERSION

from .imported_run import INCARNATION, ImportedRun
from .kineto_rows import RankState, Told, rows_of
from .kineto_trace import Trace, read_trace
from .request import FileReport, Imported, Request, files_of
from .trace_rank import ENDINGS, MAX_RANKS, NO_RANK, clash, days_apart, rank_of

NODE: Final = "imported"


@dataclass(slots=True)
class _Work:
    """What the files have told so far."""

    states: dict[int, RankState] = field(default_factory=dict)
    groups: dict[str, Told] = field(default_factory=dict)
    reports: list[FileReport] = field(default_factory=list)
    hosts: dict[int, str] = field(default_factory=dict)
    backends: list[str] = field(default_factory=list)
    world_size: int = 0


def import_kineto(request: Request) -> Imported:
    """Import the traces. Raises InputError (nothing there, nothing that can be imported, no place to write)."""
    files = files_of(request.paths, ENDINGS)
    told = [(os.path.basename(path), os.path.getsize(path)) for path in files]
    run_id = f"kineto-{hash63(*told):016x}"
    work = _Work()
    with ImportedRun(request.out, run_id, NODE) as run:
        for path in files:
            work.reports.append(_import_file(path, request, run, work))
        if not work.states:
            raise NoEvidence(_nothing(work.reports))
        num_rows = run.finish(_entities(run_id, work))
    size = max(work.world_size, max(work.states) + 1)
    missing = tuple(rank for rank in range(size) if rank not in work.states)
    return Imported(run_id, request.out, tuple(work.reports), num_rows, size, missing)


def _import_file(path: str, request: Request, run: ImportedRun, work: _Work) -> FileReport:
    size = os.path.getsize(path)
    try:
        trace = read_trace(path, lambda num_read: request.progress(path, num_read, size))
    except (InputError, OSError) as error:
        return _left_out(path, None, None, str(error).removeprefix(f"{path}: "))
    told = trace.metadata.distributed
    rank = rank_of(path, request.ranks, told.rank if told else None, trace.comms_rank)
    if rank is None:
        return _left_out(path, None, trace, NO_RANK)
    window = trace.bounds
    if window is None:
        return _left_out(path, rank, trace, "; ".join(["it has no activity, annotation or step", *trace.damage.notes]))
    state = work.states.get(rank)
    if why := clash(rank, [] if state is None else state.windows, window):
        return _left_out(path, rank, trace, why)
    doubt = _other_job(trace, window, work)
    if state is None:
        state = RankState(rank, hash63("imported", run.run.run_id, rank))
    try:
        found = rows_of(trace, state, request.classes, work.groups)
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        return _left_out(path, rank, trace, f"its events make no rows ({error})")
    work.states[rank] = state
    state.windows.append(window)
    state.num_dropped += trace.num_lost
    num_rows = 0
    for table, rows in found.items():
        run.add(table, rows)
        num_rows += rows.num_rows
    _note_job(trace, rank, work)
    return FileReport(path, rank, trace.num_events, num_rows, trace.damage.num_skipped + trace.num_incomplete,
                      len(trace.quarantined), True, "; ".join(filter(None, (doubt, trace.notes))))  # fmt: skip


def _other_job(trace: Trace, window: tuple[int, int], work: _Work) -> str:
    """Why the trace seems to be of another job than those before it; "" if it does not."""
    told = trace.metadata.distributed
    if told is not None and told.world_size and work.world_size and told.world_size != work.world_size:
        return f"of another job, it seems: there it has {told.world_size} ranks, in another file {work.world_size}"
    days = days_apart([known for state in work.states.values() for known in state.windows], window)
    return f"of another job, it seems: {days:,} days apart from the other files" if days else ""


def _left_out(path: str, rank: int | None, trace: Trace | None, why: str) -> FileReport:
    skipped = trace.damage.num_skipped if trace else 0
    return FileReport(path, rank, trace.num_events if trace else 0, 0, skipped, 0, False, why)


def _note_job(trace: Trace, rank: int, work: _Work) -> None:
    told = trace.metadata.distributed
    if told is not None:
        if told.world_size is not None and told.world_size <= MAX_RANKS:
            work.world_size = max(work.world_size, told.world_size)
        if told.backend:
            work.backends.append(told.backend)
    if trace.metadata.host_name:
        work.hosts[rank] = trace.metadata.host_name


def _nothing(reports: list[FileReport]) -> str:
    first = reports[0]
    more = f" (and {len(reports) - 1} more files)" if len(reports) > 1 else ""
    return f"{first.path}: {first.note}{more}"


def _entities(run_id: str, work: _Work) -> dict[str, list[Row]]:
    states = [work.states[rank] for rank in sorted(work.states)]
    size = max(work.world_size, states[-1].rank + 1)
    hosts = _hosts(states, work.hosts)
    rows: dict[str, list[Row]] = {
        "run": [_run_row(run_id, size, states, work)],
        "process": [_process_row(state, hosts[state.rank]) for state in states],
        "node": [{"node": host or NODE, "host": host} for host in dict.fromkeys(hosts.values())],
    }
    if work.groups:
        backend = work.backends[0] if work.backends else None
        everyone = tuple(state.rank for state in states)
        rows["process_group"] = [_group_row(key, told, backend, everyone, size) for key, told in work.groups.items()]
    return rows


def _run_row(run_id: str, size: int, states: list[RankState], work: _Work) -> Row:
    lost = [{"file": os.path.basename(item.path), "why": item.note} for item in work.reports if item.note]
    return {
        "run_id": run_id, "world_size": size, "ontology_version": ONTOLOGY_VERSION,
        "created_ns": min(start for state in states for start, _ in state.windows),
        "manifest": {"imported": {"format": "kineto", "files": len(work.reports), "notes": lost}},
    }  # fmt: skip


def _process_row(state: RankState, host: str | None) -> Row:
    return {
        "proc": state.proc, "rank": state.rank, "node": host or NODE, "host": host, "boot_id": host or NODE,
        "incarnation": INCARNATION, "num_records": state.num_records + state.num_dropped,
        "num_dropped": state.num_dropped,
        "device_uuid": f"device {min(state.devices)}" if len(state.devices) == 1 else None,
    }  # fmt: skip


def _hosts(states: list[RankState], named: dict[int, str]) -> dict[int, str | None]:
    """Each rank's host; None: the one host that all are taken to share."""
    devices = [device for state in states for device in state.devices]
    is_one = len(set(devices)) == len(devices)
    return {state.rank: named.get(state.rank) or (None if is_one else f"unknown-host-of-rank-{state.rank}")
            for state in states}  # fmt: skip


def _group_row(key: str, told: Told, backend: str | None, everyone: tuple[int, ...], size: int) -> Row:
    """The members of a group that no trace tells are taken to be the ranks at hand: at least two, or the whole job.

    A rank that communicates has peers, so one rank at hand of several is no group of one.
    """
    members = told.members or (everyone if len(everyone) > 1 or size == 1 else ())
    starts, strides, counts = run_length(members)
    row: dict[str, Any] = {
        "group_id": key, "incarnation": INCARNATION, "member_starts": starts, "member_strides": strides,
        "member_counts": counts, "size": len(members) or None, "backend": backend,
        "description": told.description or told.name,
    }  # fmt: skip
    return row


def run_length(members: tuple[int, ...]) -> tuple[list[int], list[int], list[int]]:
    """Members as runs: starts, strides, counts. (0, 2, 4, 9) is 0 with stride 2, three times, and 9 once."""
    starts, strides, counts = list[int](), list[int](), list[int]()
    at = 0
    while at < len(members):
        stride = members[at + 1] - members[at] if at + 1 < len(members) else 1
        last = at
        while last + 1 < len(members) and members[last + 1] - members[last] == stride:
            last += 1
        starts.append(members[at])
        strides.append(stride)
        counts.append(last - at + 1)
        at = last + 1
    return starts, strides, counts
