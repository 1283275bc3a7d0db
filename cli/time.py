"""`rankscope time RUN`: where the time of each rank went; with --hta as HolisticTraceAnalysis counts it."""

from typing import Annotated

import typer

from .arguments import JsonOption
from .printing import print_drawn, print_json


def command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run directory, its address or id; with --hta, traces.")],
    hta: Annotated[
        bool, typer.Option("--hta", help="RUN is a folder of Kineto traces: count as HolisticTraceAnalysis does.")
    ] = False,
    rank_map: Annotated[str, typer.Option("--rank-map", metavar="F", help="With --hta: ranks by file.")] = "",
    json: JsonOption = False,
) -> None:
    """Print the share of compute, exposed communication, exposed copies, other work and idle time of each rank.

    Of imported traces the device's timeline is divided exactly; of live runs the counted steps, as the host saw them.

    Example: rankscope time rankscope-runs/my-run
    """
    if hta:
        from .hta import hta_command

        hta_command(run, rank_map, json)
        return
    if rank_map:
        raise typer.BadParameter("--rank-map is for --hta; an imported run knows its ranks")
    from rankscope.analyzers.coverage import coverage
    from rankscope.analyzers.run import Run
    from rankscope.analyzers.time import times

    with Run.open(run) as opened:
        covered = coverage(opened).coverage.value
        found = times(opened, None if covered is None else float(covered))
        about = {"run_id": opened.run_id, "address": opened.place.address, "dataset_digest": opened.digest}
    if json:
        print_json({
            "run": about, "measurements": [item.as_json() for item in found.measurements], "verdicts": [],
            "names": [{"class": item.kernel_class, "name": item.name, "num": item.num, "total_ns": item.total_ns}
                      for item in found.names],
            "reason": found.reason,
        })  # fmt: skip
        return
    from .time_view import time_section

    print_drawn(time_section(found))
