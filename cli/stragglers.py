"""`rankscope stragglers RUN`: who makes the others wait, what that costs, and what the job would cost without."""

from typing import Annotated

from rankscope.schema.errors import NoEvidence

from .arguments import JsonOption, Option, RunArgument
from .opening import opened
from .printing import print_drawn


def command(
    run: RunArgument,
    json: JsonOption = False,
    fail_on_findings: Annotated[
        bool, Option("--fail-on-findings", help="Exit with 1 if something slows the job down.")
    ] = False,
) -> int:
    """Print who slows the job down, and what that costs.

    Replays the steps of a pipeline with other durations: needs rows that tell stage, micro-batch and role.

    Example: rankscope stragglers rankscope-runs/my-run
    """
    from rankscope.analyzers.what_if import what_if

    with opened(run) as asked:
        found = what_if(asked.run, asked.share)
    if found is None:
        raise NoEvidence(f"{run}: no operation in it tells its pipeline stage and role, which the replay needs")
    if json:
        asked.print_json(found.measurements, () if found.verdict is None else (found.verdict,))
    else:
        from .what_if_view import what_if_section

        print_drawn(what_if_section(found))
    return int(fail_on_findings and found.verdict is not None and found.verdict.kind != "nothing")
