"""`rankscope time RUN`: where the time of each rank went, of a run or of traces; with --hta as HTA counts it."""

from typing import Annotated

from .arguments import Argument, BadUsage, JsonOption, Option
from .opening import opened
from .printing import print_drawn


def command(
    run: Annotated[str, Argument(metavar="RUN", help="Run directory, its address or id; or Kineto traces.")],
    hta: Annotated[bool, Option("--hta", help="RUN is Kineto traces: count as HolisticTraceAnalysis does.")] = False,
    rank_map: Annotated[str, Option("--rank-map", metavar="F", help="With traces: ranks by file, as for import.")] = "",
    json: JsonOption = False,
) -> None:
    """Print the share of compute, exposed communication, exposed copies, other work and idle time of each rank.

    Of traces, imported or not, the device's timeline is divided exactly; of live runs the counted steps, as the host
    saw them. Traces are a file (json, json.gz) or a folder with one for each rank; once imported, communication is also
    told by mesh dimension and operation.

    Example: rankscope time rankscope-runs/my-run
    """
    if hta:
        from .hta import hta_command

        hta_command(run, rank_map, json)
        return
    from .trace_time import are_traces, trace_time_command

    if are_traces(run):
        trace_time_command(run, rank_map, json)
        return
    if rank_map:
        raise BadUsage("--rank-map is for traces; an imported run knows its ranks")
    from rankscope.analyzers.exposure import exposure
    from rankscope.analyzers.time import times

    with opened(run) as asked:
        found = times(asked.run, asked.share)
        shared = exposure(asked.run, asked.share) if asked.run.size("collective").num_rows else None
    if json:
        names = [{"class": item.kernel_class, "name": item.name, "num": item.num, "total_ns": item.total_ns}
                 for item in found.names]  # fmt: skip
        asked.print_json(
            (*found.measurements, *(shared.measurements if shared else ())), names=names, reason=found.reason
        )
        return
    from .time_view import time_section

    print_drawn(time_section(found, shared))
