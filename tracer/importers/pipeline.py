"""`rankscope import pipeline`: per-rank JSON logs of a pipeline's micro-batches become an ordinary run.

A log (AMD Primus, `pp_rank_<n>.json`) holds, by iteration, starts and ends of the forward and backward of each
micro-batch in ms after the iteration's begin, which all ranks share, and the rank's total. `config.json` beside them
tells the layout. One rank of each stage is logged, so ranks are those of the pipeline. The logs do not tell the time
between iterations: they follow one another at once. A backward is a whole one (span kind backward, with micro-batch).
"""

import json
import os
from dataclasses import dataclass, field
from typing import Any, Final

from rankscope.schema.arrow import rows_to_table
from rankscope.schema.errors import InputError, NoEvidence, UnreadableFile
from rankscope.schema.paths import hash63
from rankscope.schema.process_state import Row
from rankscope.schema.version import ONTOLOGY_VERSION

from .imported_run import INCARNATION, ImportedRun
from .request import FileReport, Imported, Request, files_of
from .trace_rank import MAX_DIGITS, MAX_RANKS, rank_of

NODE: Final = "imported"
CONFIG: Final = "config.json"
NO_RANK: Final = "its rank is not in its name (pp_rank_3.json); give it with --rank-map"
_MOST_MS: Final = 1e10
"""Four months: no iteration is as long."""
_NS: Final = 1_000_000
_WORK: Final = (("microbatch_forward", "fwd_start", "fwd_end"), ("backward", "bwd_start", "bwd_end"))
_SIZES: Final = {"world_size": "world_size", "dp": "dp_size", "tp": "tp_size", "pp": "pp_size", "vpp": "vp_size",
                 "ep": "ep_size", "gradient_accumulation": "num_mbs"}  # fmt: skip
"""Columns of table run by keys of the config."""


@dataclass(slots=True)
class _Log:
    """One rank's iterations. num_skipped: iterations that could not be used."""

    iterations: dict[int, dict[str, Any]]
    num_skipped: int = 0


@dataclass(slots=True)
class _Work:
    logs: dict[int, _Log] = field(default_factory=dict)
    paths: dict[int, str] = field(default_factory=dict)
    reports: list[FileReport] = field(default_factory=list)
    config: dict[str, int] = field(default_factory=dict)


def import_pipeline(request: Request) -> Imported:
    """Import the logs. Raises InputError (nothing there, nothing that can be imported, no place to write)."""
    files = files_of(request.paths, (".json",))
    names = (part for path in files for part in (os.path.basename(path), os.path.getsize(path)))
    run_id = f"pipeline-{hash63(*names):016x}"
    work = _Work()
    for path in files:
        _read(path, request, work)
    if not work.logs:
        raise NoEvidence(f"{work.reports[0].path}: {work.reports[0].note}" if work.reports else f"{files[0]}: no log")
    starts = _starts(work)
    with ImportedRun(request.out, run_id, NODE) as run:
        for rank, log in sorted(work.logs.items()):
            spans, steps = _rows(log, rank, starts, hash63("imported", run_id, rank), work.config.get("vp_size", 1))
            run.add("span", rows_to_table("span", spans))
            run.add("step", rows_to_table("step", steps))
            num = len(spans) + len(steps)
            work.reports.append(FileReport(work.paths[rank], rank, num, num, log.num_skipped, 0, True, _note(log)))
        num_rows = run.finish(_entities(run_id, work))
    size = max(*work.logs, work.config.get("pp_size", 0) - 1) + 1
    missing = tuple(rank for rank in range(size) if rank not in work.logs)
    return Imported(
        run_id, request.out, tuple(sorted(work.reports, key=lambda item: item.path)), num_rows, size, missing
    )


def _read(path: str, request: Request, work: _Work) -> None:
    size = os.path.getsize(path)
    try:
        document = _document(path)
    except (InputError, OSError) as error:
        work.reports.append(FileReport(path, None, 0, 0, 0, 0, False, str(error).removeprefix(f"{path}: ")))
        return
    request.progress(path, size, size)
    if os.path.basename(path) == CONFIG:
        work.config = {key: value for key, value in document.items() if type(value) is int and 0 < value <= MAX_RANKS}
        return
    rank = rank_of(path, request.ranks, None, None)
    log = _log(document)
    why = NO_RANK if rank is None else "" if log.iterations else "no iteration of micro-batches in it"
    if rank is not None and rank in work.logs:
        why = f"another file is of rank {rank}"
    if why or rank is None:
        work.reports.append(FileReport(path, rank, 0, 0, log.num_skipped, 0, False, why))
        return
    work.logs[rank], work.paths[rank] = log, path


def _note(log: _Log) -> str:
    return f"{log.num_skipped:,} iterations that make no sense were skipped" if log.num_skipped else ""


def _document(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path}: not JSON: {error}") from error
    if not isinstance(document, dict):
        raise UnreadableFile(f"{path}: not the log of a pipeline's rank")
    return document


def _log(document: dict[str, Any]) -> _Log:
    good = {int(key): item for key, item in document.items() if _is_ordinal(key) and _is_iteration(item)}
    return _Log(dict(sorted(good.items())), len(document) - len(good))


def _is_iteration(item: object) -> bool:
    """Numbers only, as many starts as ends, each before its end, within a total."""
    if not isinstance(item, dict) or not _is_time(item.get("total")):
        return False
    pairs = [(item.get(start), item.get(end)) for _, start, end in _WORK]
    return all(
        isinstance(starts, list) and isinstance(ends, list) and len(starts) == len(ends) and starts
        and all(map(_is_time, (*starts, *ends)))
        and all(start <= end for start, end in zip(starts, ends, strict=True))
        for starts, ends in pairs
    )  # fmt: skip


def _is_ordinal(key: str) -> bool:
    return key.isdecimal() and len(key) < MAX_DIGITS


def _is_time(value: object) -> bool:
    return type(value) in (int, float) and abs(value) < _MOST_MS  # type: ignore[arg-type]


def _starts(work: _Work) -> dict[int, int]:
    """Where each iteration begins: at the longest end of the one before, in ns after the first."""
    found, at = dict[int, int](), 0
    for iteration in sorted({key for log in work.logs.values() for key in log.iterations}):
        found[iteration] = at
        at += max(_ns(log.iterations[iteration]["total"]) for log in work.logs.values() if iteration in log.iterations)
    return found


def _rows(
    log: _Log, rank: int, starts: dict[int, int], proc: int, num_chunks: int
) -> tuple[list[Row], list[Row]]:  # fmt: skip
    """Spans and steps. With several chunks in a stage the log does not tell which one a micro-batch is in."""
    spans, steps = list[Row](), list[Row]()
    order = {iteration: step for step, iteration in enumerate(starts)}
    key: Row = {"proc": proc, "rank": rank}
    for iteration, item in log.iterations.items():
        at, step = starts[iteration], order[iteration]
        for kind, start, end in _WORK:
            for number, (begin, finish) in enumerate(zip(item[start], item[end], strict=True)):
                spans.append(key | {
                    "record": len(spans) + len(steps), "step": step, "kind": kind, "start_ns": at + _ns(begin),
                    "end_ns": at + _ns(finish), "stage": rank, "chunk": 0 if num_chunks == 1 else None,
                    "microbatch": number if num_chunks == 1 else None,
                })  # fmt: skip
        steps.append(key | {
            "record": len(spans) + len(steps), "step": step, "global_step": iteration, "start_ns": at,
            "end_ns": at + _ns(item["total"]), "boundary": "framework",
        })  # fmt: skip
    return spans, steps


def _ns(ms: float) -> int:
    return round(ms * _NS)


def _entities(run_id: str, work: _Work) -> dict[str, list[Row]]:
    counts = {report.rank: report.num_rows for report in work.reports if report.is_imported}
    run: Row = {column: work.config.get(key) for column, key in _SIZES.items()}
    run |= {"run_id": run_id, "ontology_version": ONTOLOGY_VERSION, "manifest": {"imported": {"format": "pipeline"}}}
    run["world_size"] = max(*work.logs, work.config.get("pp_size", 0) - 1) + 1
    processes: list[Row] = [{
        "proc": hash63("imported", run_id, rank), "rank": rank, "node": NODE, "boot_id": NODE, "mesh_pp": rank,
        "incarnation": INCARNATION, "num_records": counts[rank] + work.logs[rank].num_skipped,
        "num_dropped": work.logs[rank].num_skipped,
    } for rank in sorted(work.logs)]  # fmt: skip
    return {"run": [run], "process": processes, "node": [{"node": NODE}]}
