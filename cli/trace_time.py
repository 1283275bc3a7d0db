"""`rankscope time TRACES`: Kineto traces answered at once, without a run: the same numbers as import and then time."""

import hashlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rankscope.schema.errors import InputError, NoEvidence

from .printing import print_drawn, print_json

if TYPE_CHECKING:
    from rankscope.analyzers.trace_time import DeviceActivities
    from rankscope.tracer.importers.kineto_trace import Trace
    from rankscope.tracer.importers.trace_rank import RankMap


@dataclass(slots=True)
class _Work:
    """What the files have told so far. windows: begin and end of each file, by rank; left_out: one line a file."""

    found: "list[DeviceActivities]" = field(default_factory=list)
    windows: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    num_lost: int = 0


def are_traces(path: str) -> bool:
    """A file that ends like a trace, or a folder with such files that is no run."""
    if os.path.isfile(path):
        return path.endswith((".json", ".json.gz"))
    try:
        names = os.listdir(path)
    except OSError:
        return False
    return "run.json" not in names and any(name.endswith((".json", ".json.gz")) for name in names)


def trace_time_command(path: str, rank_map: str, json: bool) -> None:
    """Print where the time went in the traces at `path`. A single file without a rank is rank 0. Raises InputError."""
    from rankscope.analyzers.trace_time import TraceEvidence, trace_times
    from rankscope.tracer.importers.request import files_of
    from rankscope.tracer.importers.trace_rank import ENDINGS, read_rank_map

    files = files_of((path,), ENDINGS)
    ranks = read_rank_map(rank_map) if rank_map else {}
    work = _Work()
    for name in files:
        _take(name, ranks, work, is_only=len(files) == 1)
    if not work.found:
        raise NoEvidence((work.left_out or [f"{path}: no activity of a device"])[0])
    num_rows = sum(len(item.start) for item in work.found)
    digest = hashlib.blake2b("\n".join(sorted(work.digests)).encode(), digest_size=16).hexdigest()
    share = num_rows / (num_rows + work.num_lost)
    found = trace_times(TraceEvidence(digest, len(work.digests), num_rows, share), work.found)
    if json:
        names = [{"class": item.kernel_class, "name": item.name, "num": item.num, "total_ns": item.total_ns}
                 for item in found.names]  # fmt: skip
        print_json({
            "run": {"run_id": None, "address": path, "dataset_digest": digest},
            "measurements": [item.as_json() for item in found.measurements], "verdicts": [], "names": names,
            "reason": found.reason, "left_out": work.left_out,
        })  # fmt: skip
        return
    from .time_view import time_section

    print_drawn(time_section(found))
    for line in work.left_out:
        print(f"left out: {line}")


def _take(path: str, ranks: "RankMap", work: _Work, is_only: bool) -> None:
    from rankscope.tracer.importers.kineto_trace import read_trace
    from rankscope.tracer.importers.trace_rank import NO_RANK, clash, rank_of

    try:
        trace = read_trace(path, with_operators=False)
        digest = _digest(path)
    except (InputError, OSError) as error:
        work.left_out.append(f"{path}: {str(error).removeprefix(f'{path}: ')}")
        return
    told = trace.metadata.distributed
    rank = rank_of(path, ranks, told.rank if told else None, trace.comms_rank)
    rank = 0 if rank is None and is_only else rank
    if rank is None or not len(trace.device):
        why = NO_RANK if rank is None else "; ".join(["no activity of a device", *trace.damage.notes])
        work.left_out.append(f"{path}: {why}")
        return
    window = trace.bounds or (0, 0)  # it has activities
    known = work.windows.setdefault(rank, [])
    if why := clash(rank, known, window):
        work.left_out.append(f"{path}: {why}")
        return
    known.append(window)
    work.found.append(_activities(trace, rank))
    work.digests.append(digest)
    work.num_lost += trace.num_lost
    if trace.notes:
        work.left_out.append(f"{path}: a part of it: {trace.notes}")


def _activities(trace: "Trace", rank: int) -> "DeviceActivities":
    from rankscope.analyzers.trace_time import DeviceActivities
    from rankscope.schema.kernel_classes import Classes

    device, classes = trace.device, Classes()
    names, categories = list(device.names), list(device.categories)
    told: dict[tuple[int, int], int] = {}
    kind = [told.setdefault(pair, len(told)) for pair in zip(device.category, device.name, strict=True)]
    words = [(categories[category], names[name]) for category, name in told]
    return DeviceActivities(
        rank, device.start, device.end, device.device, kind,
        [(classes.of(category, name), name) for category, name in words],
    )  # fmt: skip


def _digest(path: str) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
