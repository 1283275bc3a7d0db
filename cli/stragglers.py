"""`rankscope stragglers RUN`: who makes the others wait, what that costs, and what the job would cost without."""

from typing import Annotated

import typer

from rankscope.schema.errors import NoEvidence

from .arguments import JsonOption, RunArgument
from .printing import print_drawn, print_json


def command(
    run: RunArgument,
    json: JsonOption = False,
    fail_on_findings: Annotated[
        bool, typer.Option("--fail-on-findings", help="Exit with 1 if something slows the job down.")
    ] = False,
) -> int:
    """Print who slows the job down, and what that costs.

    Replays the steps of a pipeline with other durations: needs rows that tell stage, micro-batch and role.

    Example: rankscope stragglers rankscope-runs/my-run
    """
    from rankscope.analyzers.coverage import coverage
    from rankscope.analyzers.run import Run
    from rankscope.analyzers.what_if import what_if

    with Run.open(run) as opened:
        covered = coverage(opened).coverage.value
        found = what_if(opened, None if covered is None else float(covered))
        about = {"run_id": opened.run_id, "address": opened.place.address, "dataset_digest": opened.digest}
    if found is None:
        raise NoEvidence(f"{run}: no operation in it tells its pipeline stage and role, which the replay needs")
    if json:
        verdicts = [] if found.verdict is None else [found.verdict.as_json()]
        print_json(
            {"run": about, "measurements": [item.as_json() for item in found.measurements], "verdicts": verdicts}
        )
    else:
        from .what_if_view import what_if_section

        print_drawn(what_if_section(found))
    return int(fail_on_findings and found.verdict is not None and found.verdict.kind != "nothing")
