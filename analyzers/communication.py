"""Communication by group and operation: how many, how large, how long, and how long the host waited.

Everything here is what a host saw. `collective.duration` (issue to completion on one rank) includes waiting for the
other members, so the rank that comes last shows the shortest one: durations name nobody (`collectives` takes them
apart). Completions learnt by `wait` or `poll` are upper bounds. Waits inside C++ (DDP's reducer) are not visible to the
host: they are counted as "inside backward", never as zero.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from rankscope.schema.measurement import Measurement

from .buckets import Histogram, quantile
from .counted import ANALYZER as COUNTED
from .counted import CAVEAT, Counted, counted
from .evidence import Evidence
from .groups import Group, ranks_in_words, read_groups
from .partials import Pair, Partial, gather_all
from .profile import COLLECTIVES, STEPS
from .run import Row, Run
from .statements import statement

ANALYZER: Final = "communication"
_SHARES: Final = (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))
_Key = tuple[str | None, str | None]


OPERATIONS: Final = Pair(ANALYZER, "operations", (COLLECTIVES,))
MAXIMA: Final = Pair(ANALYZER, "maxima", (COLLECTIVES,))
DURATIONS, HOST_WAITS = (
    Pair(ANALYZER, name, (Partial(ANALYZER, f"{name}_partial", relations=("part_durations",)),))
    for name in ("durations", "host_waits")
)
WAIT_TIME: Final = Pair(
    ANALYZER, "wait_time",
    (Partial(ANALYZER, "waits_partial", ("collective", "step"), ("part_waits",)), STEPS, COLLECTIVES),
)  # fmt: skip
UNFINISHED: Final = Pair(
    ANALYZER,
    "unfinished",
    (Partial(ANALYZER, "open_partial", relations=("part_profile",), needs="part_open"), COLLECTIVES),
)
PAIRS: Final = (OPERATIONS, MAXIMA, DURATIONS, HOST_WAITS, WAIT_TIME, UNFINISHED)
"""Everything that this analyzer asks of the large tables."""


@dataclass(frozen=True, slots=True)
class Operations:
    """All operations of one group and kind. The measurements of a distribution carry scope.statistic p50, p95, p99,
    max. estimate: count and bytes of all that were issued, where some have no row; else empty.
    """

    group: Group
    op: str
    num_ranks: int
    count: Measurement
    bytes: Measurement
    least_bytes: int | None
    most_bytes: int | None
    unfinished: Measurement
    num_failed: int
    num_inside_backward: int
    timing_source: str
    duration: tuple[Measurement, ...]
    host_wait: tuple[Measurement, ...]
    estimate: tuple[Measurement, ...] = ()

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        return (self.count, self.bytes, *self.estimate, self.unfinished, *self.duration, *self.host_wait)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """One operation that some ranks issued and did not see complete. issuers: all that issued it, complete or not."""

    group: Group
    op: str
    seq: int
    ranks: tuple[int, ...]
    issuers: tuple[int, ...]
    step: int | None
    src: int | None = None
    dst: int | None = None


class Waited(NamedTuple):
    """One rank's host-visible waits inside its counted steps. num_operations: rows of operations that it left."""

    rank: int | None
    wait_ns: int
    step_ns: int
    num_steps: int
    num_waits: int
    num_operations: int


@dataclass(frozen=True, slots=True)
class Communication:
    """The answer. operations: most bytes first. host_wait: one measurement per rank; share: of the step time of all
    ranks that left an operation.
    """

    operations: tuple[Operations, ...]
    unfinished: tuple[Unfinished, ...]
    host_wait: tuple[Measurement, ...]
    share: Measurement

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        found = [self.share, *self.host_wait]
        for item in self.operations:
            found += item.measurements
        return tuple(found)


def communication(run: Run, coverage: float | None = None) -> Communication:
    """The communication of `run` by group and operation."""
    gather_all(run, PAIRS)
    groups = read_groups(run)
    told = _Distributions(run, coverage)
    operations = [_operations(told, groups, row) for row in OPERATIONS.rows(run)]
    operations.sort(
        key=lambda item: (-int(item.bytes.value or 0), -int(item.count.value or 0), item.group.label, item.op)
    )
    share, waits = _host_waits(run, coverage)
    return Communication(tuple(operations), _unfinished(run, groups), waits, share)


class _Distributions:
    """The histograms of all groups and operations, read once."""

    def __init__(self, run: Run, coverage: float | None) -> None:
        self.run, self.coverage, self.counted = run, coverage, counted(run)
        self.durations, self.host_waits = _by_key(DURATIONS.rows(run)), _by_key(HOST_WAITS.rows(run))
        maxima = MAXIMA.rows(run)
        self.longest = {row[:2]: row[2] for row in maxima}
        self.longest_host_waits = {row[:2]: row[3] for row in maxima}

    def evidence(self, name: str, key: _Key, timing_source: str = "") -> Evidence:
        """What the measurements of one statement have in common, for one group and kind."""
        share, coverage = self.counted.shares.get(key[0]), self.coverage
        if share is not None:
            coverage = share if coverage is None else min(share, coverage)
        return Evidence(
            self.run, ANALYZER, statement(ANALYZER, name), ("collective",), coverage, timing_source=timing_source,
            caveats=_thinned(self.counted, key),
        )  # fmt: skip


def _operations(told: _Distributions, groups: dict[str | None, Group], row: Row) -> Operations:
    (
        group_id,
        op,
        num,
        bytes_in,
        num_with_bytes,
        least,
        most,
        num_ranks,
        num_unfinished,
        num_failed,
        num_wait,
        num_poll,
        num_device,
        num_inside,
    ) = row
    key, op = (group_id, op), op or "unknown"
    group = groups.get(group_id) or Group.unknown(group_id)
    scope = {"group": group.label, "group_id": group_id, "op": op}
    source = _source(num, num_wait, num_poll, num_device)
    rows = told.evidence("operations", key, source)
    return Operations(
        group,
        op,
        num_ranks,
        rows.measurement("collective.count", num, scope, num),
        rows.measurement(
            "collective.bytes",
            int(bytes_in) if num_with_bytes else None,
            scope,
            num_with_bytes,
            reason="" if num_with_bytes else "no operation told its bytes",
        ),
        least,
        most,
        rows.measurement("collective.unfinished", num_unfinished, scope, num),
        num_failed,
        num_inside,
        source,
        _distribution(
            told.evidence("durations", key, source),
            "collective.duration",
            scope,
            told.durations[key],
            told.longest.get(key),
            "no completion was seen",
        ),
        _distribution(
            told.evidence("host_waits", key, source),
            "collective.host_wait",
            scope,
            told.host_waits[key],
            told.longest_host_waits.get(key),
            _no_wait(num, num_inside),
            _inside(num_inside),
        ),
        _estimate(rows, told.counted, key, scope),
    )


def _thinned(counts: Counted, key: _Key) -> tuple[str, ...]:
    if key not in counts.estimates:
        return ()
    return (f"about {counts.estimates[key][0]:,} operations were counted; this is of those that have rows",)


def _estimate(rows: Evidence, counts: Counted, key: _Key, scope: dict[str, object]) -> tuple[Measurement, ...]:
    if key not in counts.estimates:
        return ()
    number, size = counts.estimates[key]
    told = replace(rows, analyzer=COUNTED, statement=statement(COUNTED, "sequences"), caveats=(CAVEAT,))
    reason = "" if size is not None else "not every row tells its bytes"
    return (
        told.measurement("collective.count_estimate", number, scope, number),
        told.measurement("collective.bytes_estimate", size, scope, number, reason=reason),
    )


def _distribution(
    told: Evidence, name: str, scope: dict[str, object], histogram: Histogram, longest: int | None, reason: str,
    caveats: tuple[str, ...] = (),
) -> tuple[Measurement, ...]:  # fmt: skip
    total = sum(count for _, count in histogram)
    values = {statistic: quantile(histogram, share, longest) for statistic, share in _SHARES} | {"max": longest}
    return tuple(
        told.measurement(
            name,
            value,
            {**scope, "statistic": statistic},
            total,
            caveats=caveats,
            reason="" if value is not None else reason,
        )
        for statistic, value in values.items()
    )


def _source(num: int, num_wait: int, num_poll: int, num_device: int) -> str:
    parts = [
        (num_wait, "wait"),
        (num_poll, "poll"),
        (num_device, "device"),
        (num - num_wait - num_poll - num_device, "none"),
    ]
    return ", ".join(f"{name} {round(100 * count / num)} %" for count, name in parts if count)


def _no_wait(num: int, num_inside: int) -> str:
    return (
        "waited for inside backward, where the host cannot see it" if num_inside == num else "nobody waited on the host"
    )


def _inside(num_inside: int) -> tuple[str, ...]:
    return (f"{num_inside} more were waited for inside backward, where the host cannot see it",) if num_inside else ()


def _by_key(rows: Iterable[Row]) -> dict[_Key, Histogram]:
    found: dict[_Key, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for group_id, op, bucket, count in rows:
        found[group_id, op][bucket] += count
    histograms: dict[_Key, Histogram] = defaultdict(list)
    histograms.update({key: sorted(counts.items()) for key, counts in found.items()})
    return histograms


def _host_waits(run: Run, coverage: float | None) -> tuple[Measurement, tuple[Measurement, ...]]:
    told = Evidence(
        run, ANALYZER, statement(ANALYZER, "wait_time"), ("collective", "step"), coverage, window="counted steps",
        caveats=("host-visible wait, not exposed communication", "waits inside C++ (backward of DDP) are not in it"),
    )  # fmt: skip
    ranks = waited(run)
    none = "no host-visible wait inside a counted step" if ranks else "no counted step"
    waits = tuple(
        told.measurement(
            "time.host_wait",
            item.wait_ns if item.num_waits else None,
            {"rank": item.rank},
            item.num_steps,
            reason="" if item.num_waits else none,
        )
        for item in ranks
    )
    if silent := tuple(item.rank for item in ranks if item.rank is not None and not item.num_operations):
        told = replace(told, left_out=f"ranks without any operation here: {ranks_in_words(silent)}")
    those = [item for item in ranks if item.num_operations]
    stepped, num_steps = sum(item.step_ns for item in those), sum(item.num_steps for item in those)
    has_waits = stepped and any(item.num_waits for item in those)
    share = sum(item.wait_ns for item in those) / stepped if has_waits else None
    return told.measurement("ratio.host_wait", share, {}, num_steps, reason="" if share is not None else none), waits


def waited(run: Run) -> list[Waited]:
    """By rank."""
    return [Waited(*row) for row in WAIT_TIME.rows(run)]


def _unfinished(run: Run, groups: dict[str | None, Group]) -> tuple[Unfinished, ...]:
    return tuple(
        Unfinished(
            groups.get(group_id) or Group.unknown(group_id), op or "unknown", seq, tuple(open_), tuple(all_), *where
        )
        for group_id, op, seq, open_, all_, *where in unfinished_rows(run)
    )


def unfinished_rows(run: Run) -> list[Row]:
    """The rows of statement `unfinished`. Costs a second reading only where there are any."""
    if not UNFINISHED.rows(run):
        return []
    return run.rows(statement(ANALYZER, "issuers").replace("{found}", UNFINISHED.merge))
