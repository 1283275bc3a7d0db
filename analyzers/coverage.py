"""How much of the run is in the dataset, what is missing and why, and what the capture itself cost.

Expected rows of a process: the ring records it claimed (its number of records, or the highest record number seen, if
that is more), and the operations that have a sequence number but no record (`counted`), as far as lost records do not
explain them. A rank of the world that left nothing counts as many as the mean of the ranks that are there. Coverage is
present / expected: 3 of 4 ranks with 90 of 100 rows each: 270 / (300 + 100) = 0.675.

Cost: every 64th hook entry is timed; per hook and process the total is estimated as calls x mean, its variance as
calls^2 s^2 / timed (entries drawn by a counter, taken as independent), summed over hooks and processes; over step time.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from rankscope.schema.measurement import Interval, Measurement
from rankscope.schema.tables import TABLES

from .counted import PAIRS as COUNTED_PAIRS
from .counted import Counted, counted
from .evidence import Evidence
from .imported import import_notes
from .listing import Fault
from .partials import Pair, gather_all
from .profile import COLLECTIVES, SPANS
from .run import Row, Run
from .shadow import shadow
from .statements import statement

ANALYZER: Final = "coverage"
RECORDS: Final = Pair(ANALYZER, "records", (COLLECTIVES, SPANS))
TIERS: Final = Pair(ANALYZER, "tiers", (COLLECTIVES,))
PAIRS: Final = (*COUNTED_PAIRS, RECORDS, TIERS)
"""Everything that this analyzer asks of the large tables."""
LEVEL: Final = 0.95
_Z: Final = 1.96
"""Two-sided 95 % of the normal distribution."""
_SQUARE_UNIT_NS2: Final = 1_000_000
"""The ring keeps squares in whole us^2, rounded down: one unit each is added back, so that intervals are never too
narrow.
"""
_MIN_TIMED: Final = 30
"""Timed entries below which a normal interval means nothing."""


@dataclass(frozen=True, slots=True)
class HookState:
    """One hook over all ranks. off_ranks: where it is off; why: the first reason given.

    is_off: it is off somewhere; without off_ranks it is a sampler of a node.
    """

    hook: str
    tiers: tuple[str, ...]
    num_ranks: int
    off_ranks: tuple[int, ...]
    why: str
    num_errors: int
    num_calls: int
    is_off: bool


@dataclass(frozen=True, slots=True)
class Ends:
    """How the processes of one incarnation ended: ranks by exit kind, and by type of the uncaught exception."""

    kinds: dict[str, tuple[int, ...]] = field(default_factory=dict)
    errors: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def killed(self) -> tuple[int, ...]:
        """Ranks that died without an exit line."""
        return self.kinds.get("killed", ())

    @property
    def failed(self) -> tuple[int, ...]:
        """Ranks that an exception ended."""
        return self.kinds.get("failed", ())


@dataclass(frozen=True, slots=True)
class Coverage:
    """Quality of the capture. missing_ranks, ended: of the last incarnation.

    num_strangers: processes with rows that the run does not know, so perhaps of another run.
    operations: rows of operations against operations counted. shadow: None without shadow steps.
    import_notes: (file, what was wrong with it); None where the run is no import. ended_before: as ended, by earlier
    incarnation.
    """

    coverage: Measurement
    rows: tuple[Measurement, ...]
    dropped: Measurement
    missing: Measurement
    errors: Measurement
    overhead: Measurement
    tiers: tuple[Measurement, ...]
    missing_ranks: tuple[int, ...]
    ended: Ends
    hooks: tuple[HookState, ...]
    faults: tuple[Fault, ...]
    num_strangers: int
    shadow: Measurement | None
    operations: Counted
    import_notes: tuple[tuple[str, str], ...] | None = None
    ended_before: dict[int, Ends] = field(default_factory=dict)

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        second = () if self.shadow is None else (self.shadow,)
        return (
            self.coverage,
            self.operations.share,
            *self.rows,
            self.dropped,
            self.missing,
            self.errors,
            self.overhead,
            *second,
            *self.tiers,
        )


@dataclass(frozen=True, slots=True)
class _Counts:
    """Ring rows that are there and that were written; a process in several incarnations has one ring.

    num_strangers: processes with rows that table process does not know, although it knows others.
    """

    present: int
    expected: int
    num_processes: int
    num_strangers: int


@dataclass(frozen=True, slots=True)
class _Process:
    proc: int
    incarnation: int
    rank: int | None
    exit_kind: str
    num_records: int
    num_dropped: int
    exit_error: str | None


def coverage(run: Run) -> Coverage:
    """How complete `run` is and what its capture cost."""
    gather_all(run, PAIRS)
    processes = [_Process(row[0], row[1] or 0, row[2], row[4] or "", row[5] or 0, row[6] or 0, row[7])
                 for row in run.rows(statement(ANALYZER, "processes"))]  # fmt: skip
    operations = counted(run)
    counts = _counts(run, processes, operations.missing_by_proc)
    last = max((process.incarnation for process in processes), default=0)
    missing = _missing_ranks(run, [process for process in processes if process.incarnation == last])
    expected = counts.expected + round(counts.expected / max(1, counts.num_processes) * len(missing))
    share = counts.present / expected if expected else None
    seen = Evidence(run, ANALYZER, statement(ANALYZER, "records"), _ring_tables(), share)
    value = seen.measurement(
        "capture.coverage",
        share,
        {},
        counts.present,
        reason="" if share is not None else "no process says how many rows it wrote",
    )
    hooks = run.rows(statement(ANALYZER, "hooks"))
    told = Evidence(run, ANALYZER, statement(ANALYZER, "hooks"), ("capture",), share)
    ended = _ended(processes)
    return Coverage(
        value, _rows(run, share), _dropped(run, processes, hooks, share),
        seen.measurement("capture.missing_ranks", len(missing), {"incarnation": last}, len(processes)),
        _errors(told, hooks), _overhead(run, told, hooks), _tiers(run, share), missing,
        ended.pop(last, Ends()), _hook_states(hooks), run.faults, counts.num_strangers, shadow(run, share), operations,
        import_notes(run), ended,
    )  # fmt: skip


def _ended(processes: list[_Process]) -> dict[int, Ends]:
    """By incarnation."""
    by_incarnation: dict[int, list[_Process]] = defaultdict(list)
    for process in processes:
        by_incarnation[process.incarnation].append(process)
    return {
        number: Ends(
            _ranks_by((one.exit_kind or "unknown", one.rank) for one in those),
            _ranks_by((one.exit_error, one.rank) for one in those),
        )
        for number, those in sorted(by_incarnation.items())
    }


def _ranks_by(pairs: Iterable[tuple[str | None, int | None]]) -> dict[str, tuple[int, ...]]:
    found: dict[str, set[int]] = defaultdict(set)
    for value, rank in pairs:
        if value is not None and rank is not None:
            found[value].add(rank)
    return {value: tuple(sorted(ranks)) for value, ranks in sorted(found.items())}


def _counts(run: Run, processes: list[_Process], uncaptured: dict[int, int]) -> _Counts:
    claimed: dict[int, int] = defaultdict(int)
    for process in processes:
        claimed[process.proc] = max(claimed[process.proc], process.num_records)
    known, present = len(claimed), 0
    for proc, num_rows, last_record, _, _ in RECORDS.rows(run):
        present += num_rows
        claimed[proc] = max(claimed[proc], (last_record if last_record is not None else -1) + 1)
        lost = max(0, claimed[proc] - num_rows)  # an operation whose record was lost has a number too: not twice
        claimed[proc] += max(0, uncaptured.get(proc, 0) - lost)
    return _Counts(present, sum(claimed.values()), len(claimed), len(claimed) - known if known else 0)


def _missing_ranks(run: Run, processes: list[_Process]) -> tuple[int, ...]:
    sizes = run.rows("SELECT max(world_size) FROM run")
    world_size = sizes[0][0] if sizes else None
    known = {process.rank for process in processes}
    return tuple(rank for rank in range(int(world_size or 0)) if rank not in known)


def _ring_tables() -> tuple[str, ...]:
    return (*(name for name, table in TABLES.items() if table.ring_kind), "process", "run")


def _rows(run: Run, share: float | None) -> tuple[Measurement, ...]:
    found = []
    for table in (name for name, declared in TABLES.items() if declared.table_class != "conclusion"):
        if run.size(table).num_rows:
            sql = statement(ANALYZER, "tables").replace("{table}", table)
            known = run.num_rows(table)
            count = run.rows(sql)[0][0] if known is None else known
            found.append(
                Evidence(run, ANALYZER, sql, (table,), share).measurement(
                    "capture.rows", count, {"table": table}, count
                )
            )
    return tuple(found)


def _dropped(run: Run, processes: list[_Process], hooks: list[Row], share: float | None) -> Measurement:
    by_proc: dict[int, int] = defaultdict(int)
    for process in processes:
        by_proc[process.proc] = max(by_proc[process.proc], process.num_dropped)
    by_hook: dict[int, int] = defaultdict(int)
    for row in hooks:
        by_hook[row[0]] += row[7] or 0
    total = sum(max(by_proc[proc], by_hook[proc]) for proc in {*by_proc, *by_hook})
    told = Evidence(run, ANALYZER, statement(ANALYZER, "processes"), ("process", "capture"), share)
    if not by_proc and not by_hook:
        return told.measurement("capture.dropped", None, {}, 0, reason="no process and no hook left a row")
    return told.measurement("capture.dropped", total, {}, len({*by_proc, *by_hook}))


def _errors(told: Evidence, hooks: list[Row]) -> Measurement:
    if not hooks:
        return told.measurement("capture.errors", None, {}, 0, reason="no hook left a capture row")
    return told.measurement("capture.errors", sum(row[8] or 0 for row in hooks), {}, len(hooks))


def _tiers(run: Run, share: float | None) -> tuple[Measurement, ...]:
    rows = TIERS.rows(run)
    total = sum(count for _, count in rows)
    told = Evidence(run, ANALYZER, statement(ANALYZER, "tiers"), ("collective",), share)
    return tuple(told.measurement("capture.tier", count / total, {"tier": tier}, count) for tier, count in rows)


def _hook_states(hooks: list[Row]) -> tuple[HookState, ...]:
    found = []
    for hook in sorted({row[2] for row in hooks}):
        rows = [row for row in hooks if row[2] == hook]
        off = tuple(sorted({row[1] for row in rows if row[4] is False and row[1] is not None}))
        why = next((row[5] for row in rows if row[5]), "")
        tiers = tuple(sorted({row[3] for row in rows if row[3]}))
        found.append(
            HookState(
                hook,
                tiers,
                len(rows),
                off,
                why,
                sum(row[8] or 0 for row in rows),
                sum(row[9] or 0 for row in rows),
                any(row[4] is False for row in rows),
            )
        )
    return tuple(found)


def _overhead(run: Run, told: Evidence, hooks: list[Row]) -> Measurement:
    spent, variance, timed_calls, procs = 0.0, 0.0, 0, set()
    for row in hooks:
        calls, timed, total_ns, squares = (value or 0 for value in row[9:13])
        if timed:
            mean = total_ns / timed
            spread = max(0.0, squares / timed + _SQUARE_UNIT_NS2 - mean * mean) * timed / max(1, timed - 1)
            spent, variance, timed_calls = (
                spent + calls * mean,
                variance + calls * calls * spread / timed,
                timed_calls + timed,
            )
            procs.add(row[0])
    observed, against = _observed_ns(run, procs)
    if not timed_calls or not observed:
        return told.measurement(
            "capture.overhead",
            None,
            {},
            timed_calls,
            reason="no hook entry was timed"
            if not timed_calls
            else "no step and no other row tells how long the ranks ran",
        )
    half = _Z * math.sqrt(variance)
    interval = None
    if timed_calls >= _MIN_TIMED:
        low, high = max(0.0, spent - half) / observed, (spent + half) / observed
        interval = Interval(low, high, LEVEL, "normal, hook entries timed 1 in 64, per hook and process")
    return told.measurement(
        "capture.overhead", spent / observed, {}, timed_calls, interval=interval, caveats=(against,)
    )


def _observed_ns(run: Run, procs: set[int]) -> tuple[int, str]:
    steps = {proc: step_ns for proc, step_ns in run.rows(statement(ANALYZER, "step_time")) if proc in procs}
    if len(steps) == len(procs) and steps:
        return sum(steps.values()), "share of the time inside steps"
    spans = {row[0]: row[4] - row[3] for row in RECORDS.rows(run) if row[0] in procs and row[3] is not None}
    return sum(spans.values()), "share of the time between the first and the last row of each rank"
