"""`rankscope report RUN`: what to know about a run, worst first, then its tables."""

import sys
from typing import Annotated

from .arguments import EngineOption, JsonOption, Option, RunArgument
from .printing import console, print_json


def command(
    run: RunArgument,
    json: JsonOption = False,
    save: Annotated[
        bool, Option("--save", help="Write what was found beside the run, as tables measurement and verdict.")
    ] = False,
    engine: EngineOption = "auto",
    fail_on_findings: Annotated[bool, Option("--fail-on-findings", help="Exit with 1 if something is wrong.")] = False,
) -> int:
    """Print what to know about a run, worst first, and which command looks closer.

    Then its steps, ranks, phases, communication and the quality of the capture. Works while the job still runs.
    Of a large run the operations are read by one process a core; --engine ray uses a Ray cluster, on which the run's
    address must mean the same everywhere. The answer is the same, to the last bit.
    What --save writes can be queried (SELECT * FROM verdict), and changes neither the evidence nor its digest.

    Example: rankscope report rankscope-runs/my-run
    """
    from rankscope.analyzers.engines import Engine
    from rankscope.analyzers.headline import CRITICAL, NOTHING
    from rankscope.analyzers.report import report
    from rankscope.analyzers.run import Run

    with Run.open(run, engine=Engine.parse(engine)) as opened:
        found = report(opened)
        place = opened.place
    if save:
        from rankscope.tracer.conclusions import save as write

        files = write(place.root if place.is_local else place.address, found.measurements, found.verdicts)
        print(f"saved in {place.address}: {', '.join(files)}", file=sys.stderr)
    if json:
        print_json(found.as_json())
    else:
        from .report_view import draw

        draw(found, console())
    is_bad = any(verdict.kind != NOTHING for verdict in found.verdicts) or any(
        headline.level == CRITICAL for headline in found.headlines
    )
    return int(fail_on_findings and is_bad)
