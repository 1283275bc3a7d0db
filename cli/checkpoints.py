"""`rankscope checkpoints RUN`: what saving and loading cost, and whether what was saved can be relied on."""

from typing import Annotated, Final

import typer

from .arguments import JsonOption, RunArgument
from .printing import print_drawn, print_json

_ALL: Final = 1000
"""Operations listed at most."""


def command(
    run: RunArgument,
    json: JsonOption = False,
    fail_on_findings: Annotated[
        bool, typer.Option("--fail-on-findings", help="Exit with 1 if a save failed, or a load found something else.")
    ] = False,
) -> int:
    """Print every save and load, what they cost, and what restarts cost.

    Blocking time is that of the longest rank; a best interval needs a failure to have been seen.

    Example: rankscope checkpoints rankscope-runs/my-run
    """
    from rankscope.analyzers.checkpoints import checkpoints
    from rankscope.analyzers.coverage import coverage
    from rankscope.analyzers.run import Run

    with Run.open(run) as opened:
        covered = coverage(opened).coverage.value
        found = checkpoints(opened, None if covered is None else float(covered))
        about = {"run_id": opened.run_id, "address": opened.place.address, "dataset_digest": opened.digest}
    if json:
        print_json({"run": about, "measurements": [item.as_json() for item in found.measurements], "verdicts": []})
    else:
        from .checkpoints_view import checkpoints_section

        print_drawn(checkpoints_section(found, _ALL) or "no checkpoint was recorded")
    is_bad = any(item.finding and not item.finding.startswith("written by") for item in found.operations)
    return int(fail_on_findings and is_bad)
