"""`rankscope checkpoints RUN`: what saving and loading cost, and whether what was saved can be relied on."""

from typing import Annotated, Final

from .arguments import JsonOption, Option, RunArgument
from .opening import opened
from .printing import print_drawn

_ALL: Final = 1000
"""Operations listed at most."""


def command(
    run: RunArgument,
    json: JsonOption = False,
    fail_on_findings: Annotated[
        bool, Option("--fail-on-findings", help="Exit with 1 if a save failed, or a load found something else.")
    ] = False,
) -> int:
    """Print every save and load, what they cost, and what restarts cost.

    Blocking time is that of the longest rank; a best interval needs a failure to have been seen.

    Example: rankscope checkpoints rankscope-runs/my-run
    """
    from rankscope.analyzers.checkpoints import checkpoints

    with opened(run) as asked:
        found = checkpoints(asked.run, asked.share)
    if json:
        asked.print_json(found.measurements)
    else:
        from .checkpoints_view import checkpoints_section

        print_drawn(checkpoints_section(found, _ALL) or "no checkpoint was recorded")
        asked.print_gap()
    is_bad = any(item.finding and not item.finding.startswith("written by") for item in found.operations)
    return int(fail_on_findings and is_bad)
