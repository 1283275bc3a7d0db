"""`rankscope time --hta TRACES`: raw Kineto traces by the rules of HolisticTraceAnalysis."""

from typing import TYPE_CHECKING, Any

from rankscope.schema.errors import InputError, NoEvidence

from .printing import print_drawn, print_json

if TYPE_CHECKING:
    from rankscope.analyzers.hta import Breakdown, HtaTrace
    from rankscope.tracer.importers.trace_rank import RankMap


def hta_command(path: str, rank_map: str, json: bool) -> None:
    """Print the breakdown of the traces at `path`, a file or a folder. A single file without a rank is rank 0.

    Raises InputError.
    """
    from rankscope.analyzers.hta import breakdowns
    from rankscope.tracer.importers.request import files_of
    from rankscope.tracer.importers.trace_rank import ENDINGS, NO_RANK, read_rank_map

    files = files_of((path,), ENDINGS)
    ranks = read_rank_map(rank_map) if rank_map else {}
    traces: dict[int, HtaTrace] = {}
    left_out: list[str] = []
    for name in files:
        try:
            rank, trace = _read(name, ranks)
        except (InputError, OSError) as error:
            left_out.append(str(error) if str(error).startswith(name) else f"{name}: {error}")
            continue
        if rank is None and len(files) > 1:
            left_out.append(f"{name}: {NO_RANK}")
        elif (rank or 0) in traces:
            left_out.append(f"{name}: another file is of rank {rank or 0}")
        else:
            traces[rank or 0] = trace
    found = breakdowns(list(traces.values()))
    if not found:
        raise NoEvidence((left_out or [f"{path}: no activity of a device in {len(files)} traces"])[0])
    if json:
        print_json({"hta": [_row(item) for item in found], "left_out": left_out})
    else:
        _draw(found, left_out)


def _read(path: str, ranks: "RankMap") -> "tuple[int | None, HtaTrace]":
    import numpy as np

    from rankscope.analyzers.hta import HtaTrace, class_of
    from rankscope.tracer.importers.kineto_hta import read_events
    from rankscope.tracer.importers.trace_rank import rank_of

    raw = read_events(path)
    rank = rank_of(path, ranks, raw.rank_in_metadata, raw.rank_told)
    names = np.array(raw.name, np.int64)
    classes = np.array([class_of(name) for name in raw.names], np.int64)
    steps = np.array([raw.step_of(name) for name in raw.names], np.int64)
    return rank, HtaTrace(
        rank or 0, np.array(raw.start), np.array(raw.duration), np.array(raw.stream, np.int64),
        np.array(raw.correlation, np.int64), classes[names] if len(names) else names,
        steps[names] if len(names) else names, raw.has_fractions,
    )  # fmt: skip


def _row(item: "Breakdown") -> dict[str, Any]:
    """The names of HTA's own columns."""
    return {
        "rank": item.rank, "idle_time(us)": item.idle_us, "compute_time(us)": item.compute_us,
        "non_compute_time(us)": item.non_compute_us, "kernel_time(us)": item.kernel_us,
        "idle_time_pctg": item.percent(item.idle_us), "compute_time_pctg": item.percent(item.compute_us),
        "non_compute_time_pctg": item.percent(item.non_compute_us),
        "comp_comm_overlap_pctg": item.overlap_percent,
    }  # fmt: skip


def _draw(found: "list[Breakdown]", left_out: list[str]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from .words import NONE

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    for header in ("rank", "idle us", "compute us", "non-compute us", "kernel us", "idle %", "compute %",
                   "non-compute %", "overlap %"):  # fmt: skip
        table.add_column(header, justify="right")
    for item in found:
        cells = list(_row(item).values())
        table.add_row(*(NONE if cell is None else f"{cell:.0f}" if at < 5 else f"{cell:.2f}"
                        for at, cell in enumerate(cells)))  # fmt: skip
    print_drawn(table)
    print("as HolisticTraceAnalysis counts; rankscope's own numbers: rankscope import kineto, then rankscope time")
    for line in left_out:
        print(f"left out: {line}")
