"""The section "Capture quality": how complete the rows are, which mechanism saw them, what failed, what it cost."""

from collections.abc import Iterator
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from rankscope.analyzers.coverage import Coverage, HookState
from rankscope.analyzers.groups import named_ranks, ranks_in_words
from rankscope.analyzers.report import Report
from rankscope.schema.measurement import Measurement

from .words import NONE, count, share

MAX_FAULTS: Final = 10


def quality(report: Report) -> RenderableType:
    """Two columns: what, and what is known of it."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in _lines(report):
        grid.add_row(Text(name), Text(text))
    return grid


def _lines(report: Report) -> Iterator[tuple[str, str]]:
    quality = report.coverage
    yield "coverage", _coverage(quality)
    yield "operations", _operations(quality)
    yield "dropped", _value(quality.dropped, count)
    yield "missing ranks", ranks_in_words(quality.missing_ranks) or "none"
    yield "ends", ", ".join(f"{kind} {len(ranks)}" for kind, ranks in quality.ended.kinds.items()) or NONE
    yield (
        "operations seen by",
        ", ".join(f"{tier.scope['tier']} {share(_float(tier))}" for tier in quality.tiers) or NONE,
    )
    yield "hooks on", ", ".join(hook.hook for hook in quality.hooks if not hook.is_off) or NONE
    for hook in quality.hooks:
        if hook.is_off or hook.why:
            said = "said by" if hook.hook.startswith("agent") else "hook reduced"
            yield "hook off" if hook.is_off else said, _hook(hook)
    yield "errors swallowed", _value(quality.errors, count)
    yield "cost", _cost(quality.overhead)
    if quality.shadow is not None:
        yield "by shadow steps", _shadow(quality.shadow)
    yield "rows", ", ".join(f"{item.scope['table']} {count(_int(item))}" for item in quality.rows)
    for fault in quality.faults[:MAX_FAULTS]:
        yield "not usable", f"{fault.path}: {fault.reason}"
    if (more := len(quality.faults) - MAX_FAULTS) > 0:
        yield "", f"and {more:,} more files"
    yield "dataset", report.digest


def _coverage(quality: Coverage) -> str:
    value = quality.coverage
    if value.value is None:
        return f"{NONE}  {value.reason}"
    expected = count(round(value.n / float(value.value))) if value.value else NONE
    return f"{share(float(value.value), 2)} of the expected rows are here ({count(value.n)} of {expected})"


def _operations(quality: Coverage) -> str:
    value, (rows, num) = quality.operations.share, quality.operations.totals
    if value.value is None:
        return f"{NONE}  {value.reason}"
    return f"{share(float(value.value), 2)} of those counted have rows ({count(rows)} of {count(num)})"


def _hook(hook: HookState) -> str:
    ranks = f" on {named_ranks(hook.off_ranks)}" if hook.off_ranks else ""
    return f"{hook.hook}{ranks}" + (f": {hook.why}" if hook.why else "")


def _cost(cost: Measurement) -> str:
    if cost.value is None:
        return f"{NONE}  {cost.reason}"
    text = share(float(cost.value), 2)
    if cost.interval is None:
        return f"{text} (no interval: only {count(cost.n)} hook entries were timed), {cost.provenance.caveats[-1]}"
    low, high = share(cost.interval.low, 2), share(cost.interval.high, 2)
    return f"{text} (95 % interval {low} to {high}, {count(cost.n)} hook entries timed), {cost.provenance.caveats[-1]}"


def _shadow(cost: Measurement) -> str:
    text = cost.reason if cost.value is None else share(float(cost.value), 2)
    if cost.interval is not None:
        low, high = share(cost.interval.low, 2), share(cost.interval.high, 2)
        text += f" ({cost.interval.level:.0%} interval {low} to {high}, {count(cost.n)} shadow steps)"
    return f"{text}; a second opinion, the figure above stands"


def _value(measurement: Measurement, words) -> str:  # type: ignore[no-untyped-def]
    return f"{NONE}  {measurement.reason}" if measurement.value is None else str(words(_int(measurement)))


def _int(measurement: Measurement) -> int:
    return int(measurement.value or 0)


def _float(measurement: Measurement) -> float:
    return float(measurement.value or 0)
