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
    """Print who makes the others wait, since when, why, how sure that is, what it costs and what to do next.

    Names come from the order in which ranks arrive at the operations they share, never from durations: the rank that
    all wait for has the shortest. Lateness that a rank only passes on is inherited, and counts for whoever caused it.
    Where ranks take turns (sequences of different lengths) nobody is named. Of pipelines whose rows tell stage,
    micro-batch and role, the steps are also replayed with other durations.

    Example: rankscope stragglers rankscope-runs/my-run
    """
    from rankscope.analyzers.stragglers import NOTHING, stragglers
    from rankscope.analyzers.what_if import what_if

    with opened(run) as asked:
        replayed = what_if(asked.run, asked.share)
        found = stragglers(asked.run, asked.share)
    if replayed is None and not found.lateness.num_matched:
        raise NoEvidence(f"{run}: {found.reason}; nor does a row tell its pipeline stage and role for a replay")
    replayed_verdicts = () if replayed is None or replayed.verdict is None else (replayed.verdict,)
    verdicts = (*replayed_verdicts, *found.verdicts)
    verdicts = tuple(verdict for verdict in verdicts if verdict.kind != NOTHING) or verdicts[:1]
    if json:
        measurements = (*(() if replayed is None else replayed.measurements), *found.measurements)
        asked.print_json(measurements, verdicts, reason=found.reason)
    else:
        from .stragglers_view import stragglers_section
        from .what_if_view import what_if_section

        if replayed is not None:
            print_drawn(what_if_section(replayed, is_somebody_late=bool(found.stragglers)))
        if replayed is None or found.lateness.num_matched:
            print_drawn(stragglers_section(found, is_replayed=bool(replayed_verdicts)))
        asked.print_gap()
    return int(fail_on_findings and any(verdict.kind != NOTHING for verdict in verdicts))
