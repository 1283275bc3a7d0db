"""`rankscope report RUN`: what to know about a run, worst first, then its tables."""

from typing import Annotated

from .arguments import JsonOption, Option, RunArgument
from .printing import console, print_json


def command(
    run: RunArgument,
    json: JsonOption = False,
    fail_on_findings: Annotated[bool, Option("--fail-on-findings", help="Exit with 1 if something is wrong.")] = False,
) -> int:
    """Print what to know about a run, worst first.

    Then its steps, ranks, phases, communication and the quality of the capture. Works while the job still runs.

    Example: rankscope report rankscope-runs/my-run
    """
    from rankscope.analyzers.headline import CRITICAL, NOTHING
    from rankscope.analyzers.report import report
    from rankscope.analyzers.run import Run

    with Run.open(run) as opened:
        found = report(opened)
    if json:
        print_json(found.as_json())
    else:
        from .report_view import draw

        draw(found, console())
    is_bad = any(verdict.kind != NOTHING for verdict in found.verdicts) or any(
        headline.level == CRITICAL for headline in found.headlines
    )
    return int(fail_on_findings and is_bad)
