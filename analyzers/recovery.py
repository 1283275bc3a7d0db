"""What restarts cost: the time until the training goes on, the steps done again, the share of time that counted.

Restart: from the end of the last step of an incarnation to the end of the first step of the next one (start-up, loading
and that first step are in it). Lost work: the time of the steps, by their number in the whole training, that were done
again. Effective time ratio: the time of the steps that counted, each number once, without what checkpoints held it up,
over the time from the first step to the last. Monotonic clocks of different hosts are not compared.
"""

import itertools
from dataclasses import dataclass
from typing import Final

from rankscope.schema.measurement import Measurement

from .evidence import Evidence
from .run import Row, Run
from .statements import statement

ANALYZER: Final = "checkpoints"
_NO_STEPS: Final = "no step ended"
_CLOCKS: Final = "the incarnations ran under different clocks (another host, or a reboot)"
_NUMBERS: Final = "the steps have no number in the whole training: rankscope.step(global_step=...) gives it"


@dataclass(frozen=True, slots=True)
class Recovery:
    """The answer. num_failures: restarts, one more if the last incarnation lost a process; time_ns: of the steps."""

    restart: Measurement
    lost_work: Measurement
    effective: Measurement
    num_failures: int
    time_ns: int

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        return (self.restart, self.lost_work, self.effective)


def recovery(run: Run, blocking_ns: int, coverage: float | None = None) -> Recovery:
    """What restarts of `run` cost. blocking_ns: longest time of a process that checkpoints held the training up."""
    sql = statement(ANALYZER, "incarnations")
    told = Evidence(run, ANALYZER, sql, ("step", "process"), coverage)
    rows = run.rows(sql)
    is_one_clock = len({row[7] for row in rows}) <= 1 and all((row[6] or 1) == 1 for row in rows)
    time_ns = sum(row[2] - row[1] for row in rows)
    failures = max(0, len(rows) - 1) + int(bool(rows) and bool(rows[-1][8]))
    lost, lost_ns = _lost_work(run, rows, coverage)
    return Recovery(
        _restart(told, rows, is_one_clock), lost, _effective(run, rows, is_one_clock, lost_ns, blocking_ns, coverage),
        failures, time_ns,
    )  # fmt: skip


def _restart(told: Evidence, rows: list[Row], is_one_clock: bool) -> Measurement:
    name = "recovery.restart"
    if len(rows) < 2:
        return told.measurement(name, None, {}, 0, reason="the run was not restarted" if rows else _NO_STEPS)
    if not is_one_clock:
        return told.measurement(name, None, {}, 0, reason=_CLOCKS)
    pairs = itertools.pairwise(rows)
    times = [after[3] - before[2] for before, after in pairs if after[3] is not None]
    if not times:
        return told.measurement(name, None, {}, 0, reason="no first step after a restart")
    caveats = ("the first step after it included", "mean over restarts")
    return told.measurement(name, sum(times) // len(times), {}, len(times), caveats=caveats)


def _lost_work(run: Run, rows: list[Row], coverage: float | None) -> tuple[Measurement, int | None]:
    sql = statement(ANALYZER, "steps")
    told = Evidence(run, ANALYZER, sql, ("step",), coverage)
    name = "recovery.lost_work"
    if len(rows) < 2:
        reason = "the run was not restarted" if rows else _NO_STEPS
        return told.measurement(name, None, {}, 0, reason=reason), 0
    if any(row[5] < row[4] for row in rows):
        return told.measurement(name, None, {}, 0, reason=_NUMBERS), None
    last: dict[int, tuple[int, int]] = {}
    lost = num_lost = 0
    for incarnation, number, duration_ns in run.rows(sql):
        if number in last:
            lost, num_lost = lost + last[number][1], num_lost + 1
        last[number] = (incarnation, duration_ns)
    caveats = (f"{num_lost} steps done again", "a step's time is the longest of its ranks")
    return told.measurement(name, lost, {}, len(rows) - 1, caveats=caveats), lost


def _effective(
    run: Run, rows: list[Row], is_one_clock: bool, lost_ns: int | None, blocking_ns: int, coverage: float | None
) -> Measurement:  # fmt: skip
    sql = statement(ANALYZER, "step_time")
    told = Evidence(run, ANALYZER, sql, ("step", "checkpoint"), coverage)
    name = "recovery.effective_time_ratio"
    reason = _NO_STEPS if not rows else "" if is_one_clock else _CLOCKS
    if lost_ns is None:
        reason = reason or _NUMBERS
    whole = rows[-1][2] - rows[0][1] if rows else 0
    if reason or whole <= 0:
        return told.measurement(name, None, {}, 0, reason=reason or _NO_STEPS)
    steps = sum(row[1] for row in run.rows(sql))
    useful = max(0, steps - (lost_ns or 0) - blocking_ns)
    return told.measurement(name, min(1.0, useful / whole), {}, sum(row[4] for row in rows))
