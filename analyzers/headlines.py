"""What can be said of a run in a few plain sentences, worst first, each with the numbers it stands on.

Only what the rows show by themselves: lost ranks and rows, operations that never completed, failures, a long tail, how
much of the step the ranks wait. No rank is named as slow here: that needs the order of arrival.
"""

from typing import Final

from rankscope.schema.journal import CHOSEN_OFF
from rankscope.schema.measurement import Verdict

from .brief import Brief
from .communication import Communication, Unfinished
from .coverage import Coverage, Ends
from .groups import named_ranks
from .headline import CRITICAL, INFO, WARNING, Headline, worst_first
from .imported import import_headlines
from .phases import Phases

LONG_TAIL: Final = 1.5
"""p99 / p50 of the step time that is worth a warning: one step in a hundred takes half as long again."""
WORTH_SAYING: Final = 1.1
"""The same ratio below which nothing is said of it."""
ENOUGH_FOR_P99: Final = 200
"""Observations below which the 99th percentile is one of the two largest, and is not spoken of."""
MUCH_WAITING: Final = 0.2
"""Share of step time in host-visible waits from which it is worth a warning."""
MUCH_PAUSED: Final = 0.05
"""Share of a rank's step time in pauses of a host cause that is worth a warning: all others wait so long, too."""
_PAUSES: Final = {"gc": "pauses of Python's collector", "compile": "compilations of torch.compile"}
COSTLY: Final = 0.01
"""Share of step time that the capture may cost (the acceptance limit)."""


def headlines(brief: Brief, coverage: Coverage, communication: Communication, phases: Phases) -> tuple[Headline, ...]:
    """The headlines, worst first."""
    found = [
        *_lost(coverage), *_unfinished(brief, coverage, communication), *_capture(coverage), *_steps(brief),
        *_waiting(communication), *_paused(phases), *_longest_phase(phases),
    ]  # fmt: skip
    return worst_first(found)


def verdicts(brief: Brief, coverage: Coverage) -> tuple[Verdict, ...]:
    """Conclusions that need no more than the processes: ranks that died without a word."""
    dead = coverage.ended.killed
    if not dead:
        return ()
    evidence = ({"table": "process", "predicate": "exit_kind = 'killed'"},)
    text = f"{named_ranks(dead).capitalize()} died without a clean end"
    return (Verdict("dead_rank", dead, text, 1.0, evidence=evidence),)


def _lost(coverage: Coverage) -> list[Headline]:
    found = []
    if missing := coverage.missing_ranks:
        them = "it" if len(missing) == 1 else "them"
        if coverage.import_notes is None:
            text = f"{named_ranks(missing).capitalize()} left no row: nothing is known about {them}."
            found.append(Headline(CRITICAL, text))
        else:  # nothing went wrong in the job: whoever imported it had no file
            text = f"Nothing of {named_ranks(missing)} was imported: nothing is known about {them}."
            found.append(Headline(WARNING, text))
    if dead := coverage.ended.killed:
        text = f"{named_ranks(dead).capitalize()} died without a clean end (killed, or lost with the node)."
        found.append(Headline(CRITICAL, text))
    if failed := coverage.ended.failed:
        found.append(Headline(CRITICAL, f"{named_ranks(failed).capitalize()} {_failed(coverage.ended)}."))
    return [*found, *_restarted(coverage)]


def _failed(ended: Ends) -> str:
    """How ranks failed, with the types of the exceptions; by rank where they differ."""
    what = "ended by an exception that nothing caught"
    if len(ended.errors) < 2:
        return what + "".join(f" ({name})" for name in ended.errors)
    return f"{what}: " + ", ".join(f"{name} on {named_ranks(ranks)}" for name, ranks in ended.errors.items())


def _restarted(coverage: Coverage) -> list[Headline]:
    """How each start but the last ended: who failed, and who died (a launcher kills those who are left)."""
    found = []
    for number, (_, ended) in enumerate(sorted(coverage.ended_before.items()), 1):
        said = []
        if ended.failed:
            said.append(f"{named_ranks(ended.failed)} {_failed(ended)}")
        if ended.killed:
            said.append(f"{named_ranks(ended.killed)} died without a clean end")
        why = f": {', '.join(said)}" if said else ""
        found.append(Headline(WARNING, f"The job was started again after start {number}{why}.", "checkpoints"))
    return found


def _unfinished(brief: Brief, coverage: Coverage, communication: Communication) -> list[Headline]:
    gone = {*coverage.ended.killed, *coverage.ended.failed}
    found = []
    # the one that somebody has not issued explains the others, which may merely be complete without our knowing
    for item in sorted(communication.unfinished, key=lambda item: not _absent(item)):
        if brief.about.is_running or gone & set(item.ranks) or gone & set(item.group.members):
            level = WARNING if brief.about.is_running else CRITICAL
            found.append(Headline(level, _in_flight(item, brief.about.is_running), "hang"))
            break
    failed = sum(item.num_failed for item in communication.operations)
    if failed:
        found.append(Headline(CRITICAL, f"{_count(failed, 'operation')} failed with an error."))
    return found


def _absent(item: Unfinished) -> tuple[int, ...]:
    is_transfer = item.src is not None and item.dst is not None
    return () if is_transfer else tuple(rank for rank in item.group.members if rank not in item.issuers)


def _in_flight(item: Unfinished, is_running: bool) -> str:
    peer = f" from {item.src} to {item.dst}" if item.src is not None and item.dst is not None else ""
    missing = _absent(item)
    where = f" in step {item.step}" if item.step is not None else ""
    absent = f", not by {named_ranks(missing)}" if missing else ""
    when = "is in flight" if is_running else "never completed"
    issued = f"issued by {named_ranks(item.issuers)}"
    return f"{item.op} number {item.seq} in {item.group.label}{peer}{where} {when}: {issued}{absent}."


def _capture(coverage: Coverage) -> list[Headline]:
    found = []
    if coverage.faults:
        found.append(
            Headline(
                WARNING, f"{_count(len(coverage.faults), 'file')} could not be used, see capture quality.", "verify"
            )
        )
    found += _spooled(coverage)
    if number := coverage.num_strangers:
        text = f"Rows of {_count(number, 'process')} that this run does not know: files of another run may be mixed in."
        found.append(Headline(CRITICAL, text))
    if dropped := int(coverage.dropped.value or 0):
        found.append(Headline(WARNING, _dropped(dropped, is_import=coverage.import_notes is not None)))
    found += import_headlines(coverage.import_notes)
    share = coverage.coverage.value
    if thinned := _thinned(coverage):
        found.append(thinned)
    elif share is not None and float(share) < 1 and not coverage.missing_ranks and coverage.import_notes is None:
        found.append(Headline(WARNING, f"Only {100 * float(share):.2f} % of the rows are there.", "verify"))
    for hook in coverage.hooks:
        if hook.off_ranks and hook.why != CHOSEN_OFF:
            reason = f" ({hook.why})" if hook.why else ""
            found.append(Headline(WARNING, f"Hook {hook.hook} is off on {named_ranks(hook.off_ranks)}{reason}."))
    cost = coverage.overhead
    if cost.value is not None and cost.interval is not None and float(cost.value) > COSTLY:  # else a few entries
        found.append(Headline(WARNING, f"The capture itself costs {100 * float(cost.value):.1f} % of the time."))
    return found


def _dropped(number: int, *, is_import: bool) -> str:
    was, it_was = ("was", "it was") if number == 1 else ("were", "they were")
    if is_import:
        return f"{_count(number, 'event')} {was} damaged or not believed, and left out."
    return f"{_count(number, 'row')} {was} overwritten before {it_was} read."


def _spooled(coverage: Coverage) -> list[Headline]:
    """What an agent said of a run directory that it could not write: its rows come from its local spool."""
    told = [hook.why for hook in coverage.hooks if hook.hook == "agent" and " cannot be written (" in hook.why]
    return [Headline(WARNING, f"The run directory could not be written: {why}.") for why in told]


def _thinned(coverage: Coverage) -> Headline | None:
    """Operations that were counted and have no row, with the reason that the capture itself gives."""
    rows, num = coverage.operations.totals
    if rows == num:
        return None
    reasons = [hook.why for hook in coverage.hooks if not hook.is_off and "rows in " in hook.why]
    if reasons:
        why = f", because capture keeps its cost within a budget: {'; '.join(reasons)}"
    elif coverage.shadow is not None:
        why = ", because shadow steps were asked for"
    else:
        why = ", the others were counted only"
    part = "Less than 1" if 100 * rows < num else f"Only {100 * rows // num}"
    return Headline(WARNING, f"{part} % of the operations have rows ({rows:,} of {num:,}){why}.")


def _steps(brief: Brief) -> list[Headline]:
    p50, p99, longest = brief.duration_ns("p50"), brief.duration_ns("p99"), brief.longest
    if not p50 or not p99 or longest is None:
        return []
    num = sum(count for _, count in brief.histogram)
    duration_ns, _, step, rank = longest
    seen = "" if rank is None else f", as seen by rank {rank}"
    ratio = duration_ns / p50 if num < ENOUGH_FOR_P99 else p99 / p50
    if ratio < WORTH_SAYING:
        return []
    if num < ENOUGH_FOR_P99:
        text = f"The longest of {num} counted steps took {ratio:.1f} times the median: step {step}{seen}."
    else:
        text = f"One step in a hundred takes {ratio:.1f} times the median or more; the longest was step {step}{seen}."
    is_long = ratio >= LONG_TAIL
    has_peers = len({line.rank for line in brief.ranks}) > 1
    return [Headline(WARNING if is_long else INFO, text, "stragglers" if is_long and has_peers else "")]


def _waiting(communication: Communication) -> list[Headline]:
    share = communication.share.value
    if share is None:
        return []
    level = WARNING if float(share) >= MUCH_WAITING else INFO
    return [
        Headline(
            level,
            f"Ranks spend {100 * float(share):.1f} % of their steps in host-visible waits for collectives.",
            "time",
        )
    ]


def _paused(phases: Phases) -> list[Headline]:
    """A host cause that takes much of one rank's counted steps, however little it is over all ranks."""
    found = []
    for phase in phases.phases:
        mean, most = phase.mean.value, phase.most.value
        if phase.name not in _PAUSES or phase.slowest_rank is None or not mean or most is None:
            continue
        share = phase.share * float(most) / float(mean)  # share is over the mean rank's step time
        if share >= MUCH_PAUSED:
            who = f"Rank {phase.slowest_rank} spends {100 * share:.0f} % of its steps in {_PAUSES[phase.name]}."
            found.append(Headline(WARNING, who))
    return found


def _longest_phase(phases: Phases) -> list[Headline]:
    if not phases.phases:
        return []
    first = phases.phases[0]
    what = "Most" if first.share > 0.5 else "The largest known part"
    return [Headline(INFO, f"{what} of the step goes into {first.name}: {100 * first.share:.0f} %.")]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "es" if noun.endswith("s") else "s")
