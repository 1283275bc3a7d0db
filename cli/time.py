"""`rankscope time RUN`: where the time of each rank went, of a run or of traces; with --hta as HTA counts it."""

from typing import Annotated

from .arguments import Argument, BadUsage, JsonOption, Option


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
    from .run_time import run_time_command

    run_time_command(run, json)
