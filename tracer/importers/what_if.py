"""`rankscope import what-if`: operation logs of pipeline- and data-parallel jobs (Parquet) become an ordinary run.

One row of a log (ByteDance-Seed/StragglerAnalysis) is one operation of one worker: dp_rank, stage, rank, step, optype,
start_ts and duration in seconds after the step's begin, seq_id, mc (model chunk in the stage), mb_id (micro-batch).
`meta-<name>.yaml` beside `trace-<name>.parquet` tells the job's sizes. Computation becomes spans, communication
collectives with a role. The logs do not tell the time between steps: these follow one another at once. Starts are
32-bit floats: a few microseconds in a step of a minute. Only one rank of each tensor-parallel group is logged.
"""

import os
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from rankscope.schema.arrow import conform
from rankscope.schema.errors import NoEvidence, UnreadableFile
from rankscope.schema.paths import hash63
from rankscope.schema.process_state import Row
from rankscope.schema.version import ONTOLOGY_VERSION

from .imported_run import INCARNATION, ImportedRun
from .kineto import run_length
from .request import FileReport, Imported, Request, files_of
from .trace_rank import MAX_DIGITS, MAX_RANKS

NODE: Final = "imported"
COLUMNS: Final = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc", "mb_id")
SPANS: Final = {
    "forward-compute": "microbatch_forward", "backward-compute": "backward", "optimizer": "optimizer", "gc": "gc",
}  # fmt: skip
COLLECTIVES: Final = {
    "forward-send": ("send", "activations"), "forward-recv": ("recv", "activations"),
    "backward-send": ("send", "gradients"), "backward-recv": ("recv", "gradients"),
    "params-all-gather": ("all_gather_into_tensor", "parameters"),
    "grads-reduce-scatter": ("reduce_scatter_tensor", "gradients"),
    "embedding-grads-all-reduce": ("all_reduce", "embedding"),
    "layernorm-grads-all-reduce": ("all_reduce", "gradients"), "optimizer-clip-main-grad": ("all_reduce", "other"),
}  # fmt: skip
_SIZES: Final = {"world_size": "world_size", "dp": "dp_size", "tp": "tp_size", "pp": "pp_size", "vpp": "vpp_size"}
_WHOLE: Final = ("dp_rank", "stage", "rank", "step", "seq_id", "mc", "mb_id")
_MOST_SECONDS: Final = 1e7
"""Four months: no step is as long."""
_MOST_NUMBER: Final = 1 << 40
"""Of steps and operations."""
_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Log:
    """The columns of a log, of the operations that are known. start, end: ns after the first step's begin."""

    dp: _Ints
    stage: _Ints
    rank: _Ints
    step: _Ints
    global_step: _Ints
    kind: npt.NDArray[np.object_]
    start: _Ints
    end: _Ints
    seq: _Ints
    chunk: _Ints
    microbatch: _Ints
    num_skipped: int


def import_what_if(request: Request) -> Imported:
    """Import one log. Raises InputError (nothing there, several jobs, not such a log, no place to write)."""
    files = files_of(request.paths, (".parquet",))
    if len(files) > 1:
        names = ", ".join(map(os.path.basename, files))
        raise NoEvidence(f"{len(files)} logs are as many jobs; import one at a time: {names}")
    (path,) = files
    log = _read(path)
    request.progress(path, os.path.getsize(path), os.path.getsize(path))
    run_id = f"what-if-{hash63(os.path.basename(path), os.path.getsize(path)):016x}"
    workers = {int(rank): (int(dp), int(stage)) for rank, dp, stage in
               np.unique(np.stack([log.rank, log.dp, log.stage], 1), axis=0)}  # fmt: skip
    with ImportedRun(request.out, run_id, NODE) as run:
        record = np.zeros(len(log.rank), np.int64)
        for rank in workers:
            mine = log.rank == rank
            record[mine] = np.arange(mine.sum())
        tables = {"span": _spans(log, record, run_id), "collective": _collectives(log, record, run_id, workers)}
        tables["step"] = _steps(log, record, run_id)
        for table, rows in tables.items():
            run.add(table, conform(rows, table))
        meta = _meta(path)
        size = max(meta.get("world_size", 0), *(rank + 1 for rank in workers))
        num_rows = run.finish(_entities(run_id, meta | {"world_size": size}, workers, log))
    report = FileReport(
        path,
        None,
        len(log.rank) + log.num_skipped,
        num_rows,
        log.num_skipped,
        0,
        True,
        f"{log.num_skipped:,} unknown or damaged operations were skipped" if log.num_skipped else "",
    )
    return Imported(run_id, request.out, (report,), num_rows, size,
                    tuple(rank for rank in range(size) if rank not in workers))  # fmt: skip


def _read(path: str) -> _Log:
    try:
        table = pq.read_table(path, columns=None)
    except (pa.ArrowException, OSError) as error:
        raise UnreadableFile(f"{path}: {str(error).splitlines()[0]}") from error
    lacking = [name for name in COLUMNS if name not in table.column_names]
    if lacking:
        raise UnreadableFile(f"{path}: not a what-if log: no column {', '.join(lacking)}")
    kinds = np.array(table["optype"].to_pylist(), dtype=object)
    known = np.array([isinstance(kind, str) and (kind in SPANS or kind in COLLECTIVES) for kind in kinds], np.bool_)
    column = _columns(path, table)
    good = known & _is_good(column)
    if not good.any():
        raise UnreadableFile(f"{path}: {int(known.sum())} of {int(known.sum())} known operations have no time")
    column = {name: values[good] for name, values in column.items()}
    begin, finish = (_ns(values) for values in (column["start_ts"], column["start_ts"] + column["duration"]))
    steps, ordinal = np.unique(column["step"], return_inverse=True)
    lengths = np.array([finish[ordinal == i].max() for i in range(len(steps))], np.int64)
    offset = np.concatenate([[0], np.cumsum(lengths)[:-1]])[ordinal]
    ints = {name: column[name].astype(np.int64) for name in _WHOLE}
    return _Log(ints["dp_rank"], ints["stage"], ints["rank"], ordinal.astype(np.int64), ints["step"], kinds[good],
                begin + offset, finish + offset, ints["seq_id"], ints["mc"], ints["mb_id"],
                int((~good).sum()))  # fmt: skip


def _columns(path: str, table: pa.Table) -> dict[str, _Floats]:
    """The numbers, not a number where there is none. 64-bit floats hold all that the logs hold."""
    try:
        return {name: table[name].cast(pa.float64()).to_numpy().astype(np.float64)
                for name in COLUMNS if name != "optype"}  # fmt: skip
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise UnreadableFile(f"{path}: not a what-if log: {str(error).splitlines()[0]}") from error


def _is_good(column: dict[str, _Floats]) -> npt.NDArray[np.bool_]:
    """The rows whose place and time make sense: the others are skipped and counted."""
    good = (np.abs(column["start_ts"]) < _MOST_SECONDS) & (column["duration"] >= 0)
    good &= column["duration"] < _MOST_SECONDS
    for name in _WHOLE:
        least = -1 if name in ("mc", "mb_id") else 0
        most = MAX_RANKS if name in ("dp_rank", "stage", "rank") else _MOST_NUMBER
        good &= (column[name] >= least) & (column[name] < most)
    found: npt.NDArray[np.bool_] = good
    return found


def _ns(seconds: npt.NDArray[np.floating]) -> _Ints:
    return np.rint(seconds.astype(np.float64) * 1e9).astype(np.int64)


def _key(log: _Log, record: _Ints, run_id: str, mine: npt.NDArray[np.bool_]) -> dict[str, pa.Array]:
    procs = {int(rank): hash63("imported", run_id, int(rank)) for rank in np.unique(log.rank)}
    return {
        "proc": pa.array([procs[int(rank)] for rank in log.rank[mine]], pa.int64()), "rank": pa.array(log.rank[mine]),
        "record": pa.array(record[mine]), "step": pa.array(log.step[mine]), "stage": pa.array(log.stage[mine]),
        "chunk": pa.array(log.chunk[mine], mask=log.chunk[mine] < 0),
        "microbatch": pa.array(log.microbatch[mine], mask=log.microbatch[mine] < 0),
    }  # fmt: skip


def _spans(log: _Log, record: _Ints, run_id: str) -> pa.Table:
    mine = np.array([kind in SPANS for kind in log.kind], dtype=np.bool_)
    return pa.table(_key(log, record, run_id, mine) | {
        "kind": pa.array([SPANS[kind] for kind in log.kind[mine]]), "name": pa.array(list(log.kind[mine])),
        "start_ns": pa.array(log.start[mine]), "end_ns": pa.array(log.end[mine]),
    })  # fmt: skip


def _collectives(log: _Log, record: _Ints, run_id: str, workers: dict[int, tuple[int, int]]) -> pa.Table:
    mine = np.array([kind in COLLECTIVES for kind in log.kind], dtype=np.bool_)
    kinds, places = log.kind[mine], zip(log.dp[mine], log.stage[mine], log.rank[mine], strict=True)
    told = [COLLECTIVES[kind] for kind in kinds]
    groups = [
        _group(kind, int(dp), int(stage), int(rank)) for kind, (dp, stage, rank) in zip(kinds, places, strict=True)
    ]
    src, dst = _ends(kinds, log, mine, workers)
    per_step = int(log.seq.max()) + 1
    return pa.table(_key(log, record, run_id, mine) | {
        "group_id": pa.array(groups), "op": pa.array([op for op, _ in told]),
        "role": pa.array([role for _, role in told]),
        "seq": pa.array(log.step[mine] * per_step + log.seq[mine]), "src": src, "dst": dst,
        "issued_ns": pa.array(log.start[mine]), "completed_ns": pa.array(log.end[mine]),
        "state": pa.array(["completed"] * len(kinds)), "tier": pa.array(["imported"] * len(kinds)),
        "timing_source": pa.array(["trace"] * len(kinds)),
    })  # fmt: skip


def _ends(
    kinds: npt.NDArray[np.object_], log: _Log, mine: npt.NDArray[np.bool_], workers: dict[int, tuple[int, int]]
) -> tuple[pa.Array, pa.Array]:
    """Source and destination of P2P: the neighbouring stage of the same data-parallel rank."""
    ranks = {place: rank for rank, place in workers.items()}
    num_stages = 1 + max(stage for _, stage in workers.values())
    src, dst = list[int | None](), list[int | None]()
    for kind, dp, stage, rank in zip(kinds, log.dp[mine], log.stage[mine], log.rank[mine], strict=True):
        toward = {"forward-send": 1, "forward-recv": -1, "backward-send": -1, "backward-recv": 1}.get(kind)
        peer = None if toward is None else ranks.get((int(dp), (int(stage) + toward) % num_stages))
        own = None if toward is None else int(rank)
        src.append(own if kind.endswith("send") else peer)
        dst.append(peer if kind.endswith("send") else own)
    return pa.array(src, pa.int32()), pa.array(dst, pa.int32())


def _group(kind: str, dp: int, stage: int, rank: int) -> str:
    if kind in ("params-all-gather", "grads-reduce-scatter"):
        return f"dp of stage {stage}"
    if kind == "optimizer-clip-main-grad":
        return "world"
    if kind == "embedding-grads-all-reduce":
        return f"embedding of dp {dp}"
    return f"tp of rank {rank}" if kind.startswith("layernorm") else f"{kind.partition('-')[0]} of dp {dp}"


def _steps(log: _Log, record: _Ints, run_id: str) -> pa.Table:
    """One step of each worker, from the step's begin of all to the worker's last end."""
    rows: list[Row] = []
    last = {int(rank): int(record[log.rank == rank].max()) for rank in np.unique(log.rank)}
    for step in np.unique(log.step):
        here = log.step == step
        begin, number = int(log.start[here].min()), int(log.global_step[here][0])
        for rank in np.unique(log.rank[here]):
            last[int(rank)] += 1
            rows.append({
                "proc": hash63("imported", run_id, int(rank)), "rank": int(rank), "record": last[int(rank)],
                "step": int(step), "global_step": number, "start_ns": begin,
                "end_ns": int(log.end[here & (log.rank == rank)].max()), "boundary": "framework",
            })  # fmt: skip
    return pa.Table.from_pylist(rows)


def _meta(path: str) -> dict[str, int]:
    """The sizes of `meta-<name>.yaml` beside the log: lines "key: number". Empty where there is none."""
    name = os.path.basename(path).removeprefix("trace-").removesuffix(".parquet")
    try:
        with open(os.path.join(os.path.dirname(path), f"meta-{name}.yaml"), encoding="utf-8") as file:
            lines = [line.partition(":") for line in file]
    except (OSError, UnicodeDecodeError):
        return {}
    told = {key.strip(): value.strip() for key, _, value in lines}
    sizes = {key: int(value) for key, value in told.items() if value.isdecimal() and len(value) < MAX_DIGITS}
    return {key: value for key, value in sizes.items() if 0 < value <= MAX_RANKS}


def _entities(
    run_id: str, meta: dict[str, int], workers: dict[int, tuple[int, int]], log: _Log
) -> dict[str, list[Row]]:
    counts = {rank: int((log.rank == rank).sum() + len(np.unique(log.step[log.rank == rank]))) for rank in workers}
    processes: list[Row] = [{
        "proc": hash63("imported", run_id, rank), "rank": rank, "node": NODE, "boot_id": NODE, "mesh_dp": dp,
        "mesh_pp": stage, "incarnation": INCARNATION, "num_records": counts[rank], "num_dropped": 0,
    } for rank, (dp, stage) in workers.items()]  # fmt: skip
    members: dict[str, list[int]] = {}
    for kind in np.unique(log.kind[[kind in COLLECTIVES for kind in log.kind]]):
        for rank, (dp, stage) in workers.items():
            if ((log.rank == rank) & (log.kind == kind)).any():
                members.setdefault(_group(kind, dp, stage, rank), []).append(rank)
    groups: list[Row] = []
    for group, ranks in members.items():
        starts, strides, sizes = run_length(tuple(sorted(set(ranks))))
        dimension = {"dp": "dp", "tp": "tp", "forward": "pp", "backward": "pp", "world": "world"}.get(group.split()[0])
        groups.append({"group_id": group, "incarnation": INCARNATION, "member_starts": starts,
                       "member_strides": strides, "member_counts": sizes, "size": len(set(ranks)), "description": group,
                       "mesh_dimension": dimension or "other"})  # fmt: skip
    manifest = {"imported": {"format": "what-if"}}
    run: Row = {column: meta.get(key) for column, key in _SIZES.items()}
    run |= {"run_id": run_id, "ontology_version": ONTOLOGY_VERSION, "manifest": manifest}
    return {"run": [run], "process": processes, "node": [{"node": NODE}], "process_group": groups}
