"""Collectives taken apart: how long ranks waited for the last one, how long the transfer took, at which bandwidth.

Over the operations that `matched` matches, by group, operation and size class (S at most 4^i bytes): the wait of each
rank until the last one arrived, the transfer from there to the end, the end skew that says how far the match can be
trusted, algbw = S / transfer and busbw with the factors of nccl-tests (`bandwidth`). Where the ends do not coincide
closely enough nobody is named; what could not be matched is counted with its reason, never left away in silence.

Groups of one mesh dimension are taken together where there are more than MAX_GROUPS of them.
"""

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any, Final

from rankscope.schema.measurement import Measurement, Verdict

from .amplification import Amplification, amplification
from .bandwidth import bus_factor
from .buckets import Histogram, quantile
from .evidence import Evidence
from .exposure import exposure
from .groups import Group, read_groups
from .headline import INFO, WARNING, Headline
from .matched import SOURCE, TABLES, Matching, matched
from .placement import Crossing, placement
from .run import Row, Run
from .slow_links import SlowLink, slow_links
from .slow_links import headlines as slow_link_headlines

ANALYZER: Final = "collectives"
MAX_GROUPS: Final = 16
MUCH_SENT: Final = 1.5
"""Times a ring's bytes from which on it deserves a line: one that enters a node twice sends 2 times."""
_TIMES: Final = (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))
_SPEEDS: Final = (("p5", 0.05), ("p50", 0.50), ("p95", 0.95))
_POLLED: Final = "ends that were polled for are upper bounds"


@dataclass(frozen=True, slots=True)
class OperationClass:
    """Operations of one kind and size class in one group, or in all groups of one mesh dimension.

    size_class: S at most, bytes; 0 for operations that move nothing, None where no row tells the bytes. wait_ns and
    transfer_ns: sums, of ranks and of operations. num_named: operations of which the last rank is beyond doubt.
    """

    group_kind: str
    group: Group | None
    num_groups: int
    op: str
    size_class: int | None
    size: int | None
    num_operations: int
    num_matched: int
    num_named: int
    wait_ns: int
    transfer_ns: int
    transfer: tuple[Measurement, ...]
    wait: tuple[Measurement, ...]
    end_skew: tuple[Measurement, ...]
    algbw: tuple[Measurement, ...]
    busbw: tuple[Measurement, ...]

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        return (*self.wait, *self.transfer, *self.end_skew, *self.algbw, *self.busbw)


@dataclass(frozen=True, slots=True)
class Unmatched:
    """Operations of one kind that could not be matched, and why."""

    group_kind: str
    op: str
    reason: str
    num_operations: int


@dataclass(frozen=True, slots=True)
class Collectives:
    """The answer. classes: most time first. caused: by rank, what others waited for it (collective.wait_caused).

    network: what nodes send for their collectives against what they must. placement: most bytes first. slow_links: the
    dearest first.
    """

    classes: tuple[OperationClass, ...]
    unmatched: tuple[Unmatched, ...]
    caused: tuple[Measurement, ...]
    network: Amplification
    placement: tuple[Crossing, ...]
    slow_links: tuple[SlowLink, ...]
    headlines: tuple[Headline, ...]

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What the slow links amount to: who is late is for `stragglers` to tell."""
        return tuple(item.verdict for item in self.slow_links)

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        found = list(self.caused)
        for item in self.classes:
            found += item.measurements
        found += self.network.measurements
        for crossing in self.placement:
            found += crossing.measurements
        return (*found, *(item.slowdown for item in self.slow_links))


def collectives(run: Run, coverage: float | None = None) -> Collectives:
    """The collectives of `run`, taken apart. `matched(run)` has the single operations then."""
    return run.anew(lambda: _collectives(run, coverage))


def _collectives(run: Run, coverage: float | None) -> Collectives:
    network, exposed = amplification(run, coverage), exposure(run, coverage)
    matching, groups = matched(run), read_groups(run)
    told = _Classes(matching, groups, coverage)
    classes = sorted(
        (told.measured(key, totals) for key, totals in told.totals.items()),
        key=lambda item: (-item.wait_ns - item.transfer_ns, -item.num_operations, item.group_kind, item.op,
                          item.group.label if item.group else "", item.size_class or 0),
    )  # fmt: skip
    slow = slow_links(matching, groups, coverage)
    return Collectives(
        tuple(classes), _unmatched(matching, groups), _caused(matching, coverage), network,
        placement(matching, groups, exposed, coverage), slow,
        (*slow_link_headlines(slow), *_waiting(classes), *_sending(network)),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Key:
    """What a class is made of. group_id: "" for all groups of the kind."""

    group_kind: str
    group_id: str | None
    op: str
    size_class: int | None
    size: int | None


@dataclass(slots=True)
class _Totals:
    """Sums over the groups of a class."""

    num_groups: int = 0
    num_operations: int = 0
    num_matched: int = 0
    num_named: int = 0
    num_device: int = 0
    moved_bytes: int = 0
    moving_ns: int = 0
    transfer_ns: int = 0
    wait_ns: int = 0
    longest_transfer_ns: int | None = None
    longest_wait_ns: int | None = None
    longest_skew_ns: int | None = None
    most_algbw: int | None = None

    def add(self, row: Row) -> None:
        """One row of the statement `totals`."""
        (_, _, _, num, num_matched, _, _, moved, moving, transfer, wait, *longest, algbw, _, named, device) = row
        self.num_groups, self.num_operations = self.num_groups + 1, self.num_operations + num
        self.num_matched, self.num_named = self.num_matched + num_matched, self.num_named + named
        self.num_device += device
        self.moved_bytes, self.moving_ns = self.moved_bytes + int(moved or 0), self.moving_ns + int(moving or 0)
        self.transfer_ns, self.wait_ns = self.transfer_ns + int(transfer or 0), self.wait_ns + int(wait or 0)
        self.longest_transfer_ns = _most(self.longest_transfer_ns, longest[0])
        self.longest_wait_ns = _most(self.longest_wait_ns, longest[1])
        self.longest_skew_ns = _most(self.longest_skew_ns, longest[2])
        self.most_algbw = _most(self.most_algbw, algbw)


class _Classes:
    """Totals and histograms of all classes, read once."""

    def __init__(self, matching: Matching, groups: dict[str | None, Group], coverage: float | None) -> None:
        self._groups, self._pooled = groups, _pooled(groups)
        self.totals: dict[_Key, _Totals] = defaultdict(_Totals)
        keys: dict[Row, _Key] = {}
        for row in matching.rows("totals"):
            keys[row[:3]] = key = self._key(row[0], row[1], row[2], row[6])
            self.totals[key].add(row)
        self._histograms: dict[tuple[_Key, str], dict[int, int]] = defaultdict(lambda: defaultdict(int))
        for *at, measure, bucket, num in matching.rows("distributions"):
            self._histograms[keys[tuple(at)], measure][bucket] += num
        polled = (_POLLED,) if matching.is_polled else ()
        self._told = Evidence(
            matching.run, ANALYZER, matching.statement("distributions"), TABLES, coverage, predicate=SOURCE,
            window=matching.window, caveats=polled, clock_error_ns=matching.error_ns,
        )  # fmt: skip

    def _key(self, group_id: str | None, op: str | None, size_class: int | None, size: int | None) -> _Key:
        group = self._groups.get(group_id) or Group.unknown(group_id)
        is_pooled = group.kind in self._pooled
        return _Key(group.kind, "" if is_pooled else group_id, op or "unknown", size_class, size)

    def measured(self, key: _Key, totals: _Totals) -> OperationClass:
        """The measurements of one class."""
        group = None if key.group_id == "" else self._groups.get(key.group_id) or Group.unknown(key.group_id)
        scope: dict[str, Any] = {"group_kind": key.group_kind, "op": key.op, "size_class": key.size_class}
        scope |= {"num_groups": totals.num_groups} if group is None else {
            "group": group.label, "group_id": group.group_id}  # fmt: skip
        source = "device" if totals.num_device == totals.num_matched else "mixed" if totals.num_device else "host"
        told = replace(self._told, timing_source=source)
        algbw, busbw = self._bandwidth(told, key, totals, scope)
        return OperationClass(
            key.group_kind, group, totals.num_groups, key.op, key.size_class, key.size, totals.num_operations,
            totals.num_matched, totals.num_named, totals.wait_ns, totals.transfer_ns,
            self._times(told, key, "transfer", scope, totals.longest_transfer_ns),
            self._times(told, key, "wait", scope, totals.longest_wait_ns),
            self._times(told, key, "end_skew", scope, totals.longest_skew_ns), algbw, busbw,
        )  # fmt: skip

    def _times(
        self, told: Evidence, key: _Key, measure: str, scope: dict[str, Any], longest: int | None
    ) -> tuple[Measurement, ...]:
        found: Histogram = sorted(self._histograms[key, measure].items())
        num = sum(count for _, count in found)
        values = {name: quantile(found, share, longest) for name, share in _TIMES} | {"max": longest}
        reason = "no operation of it is matched"
        if measure == "end_skew" and self.totals[key].num_matched:
            reason = "its members do not end together"
        return tuple(
            told.measurement(f"collective.{measure}", value, {**scope, "statistic": name}, num,
                             reason="" if value is not None else reason)
            for name, value in values.items()
        )  # fmt: skip

    def _bandwidth(
        self, told: Evidence, key: _Key, totals: _Totals, scope: dict[str, Any]
    ) -> tuple[tuple[Measurement, ...], tuple[Measurement, ...]]:
        found: Histogram = sorted(self._histograms[key, "algbw"].items())
        num = sum(count for _, count in found)
        factor = bus_factor(key.op, key.size or 0)
        values = {name: quantile(found, share, totals.most_algbw) for name, share in _SPEEDS}
        values["mean"] = totals.moved_bytes * 10**9 // totals.moving_ns if num and totals.moving_ns else None
        reason = _no_bandwidth(key, totals)
        algbw, busbw = [], []
        for name, value in values.items():
            own = {**scope, "statistic": name}
            algbw.append(told.measurement("collective.algbw", value, own, num, reason="" if num else reason))
            bus = None if value is None or factor is None else int(value * factor)
            why = "" if bus is not None else reason if factor is not None else f"no bus factor is known for {key.op}"
            busbw.append(told.measurement("collective.busbw", bus, own, num, reason=why))
        return tuple(algbw), tuple(busbw)


def _pooled(groups: dict[str | None, Group]) -> frozenset[str]:
    counts: dict[str, int] = defaultdict(int)
    for group in groups.values():
        counts[group.kind] += 1
    return frozenset(kind for kind, number in counts.items() if number > MAX_GROUPS)


def _no_bandwidth(key: _Key, totals: _Totals) -> str:
    if not totals.num_matched:
        return "no operation of it is matched"
    if key.size_class is None:
        return "no row tells the bytes of the operation"
    return "it moves nothing" if key.size_class == 0 else "no transfer took measurable time"


def _unmatched(matching: Matching, groups: dict[str | None, Group]) -> tuple[Unmatched, ...]:
    found: dict[tuple[str, str, str], int] = defaultdict(int)
    for group_id, op, why, num in matching.rows("unmatched"):
        found[(groups.get(group_id) or Group.unknown(group_id)).kind, op or "unknown", why] += num
    return tuple(Unmatched(*key, num) for key, num in sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _caused(matching: Matching, coverage: float | None) -> tuple[Measurement, ...]:
    told = Evidence(matching.run, ANALYZER, matching.statement("caused"), TABLES, coverage, predicate=SOURCE,
                    window=matching.window, clock_error_ns=matching.error_ns)  # fmt: skip
    return tuple(
        told.measurement("collective.wait_caused", int(wait_ns), {"rank": rank}, num)
        for rank, num, wait_ns in matching.rows("caused")
    )


def _waiting(classes: list[OperationClass]) -> tuple[Headline, ...]:
    """How much of the time that ranks spend in collectives is waiting for the last one; who is to blame is asked of
    `stragglers`.
    """
    num = sum(item.num_matched for item in classes)
    waited = sum(item.wait_ns for item in classes)
    spent = waited + sum(item.transfer_ns * (item.size or 1) for item in classes)
    if not spent:
        return ()
    text = f"Of the time in {num:,} matched collectives {100 * waited / spent:.0f} % is waiting for the last rank."
    return (Headline(INFO, text, "collectives"),)


def _sending(network: Amplification) -> tuple[Headline, ...]:
    """The node that sends most against a ring, where that is much more than a ring."""
    ratios = [(float(node.amplification[1].value), node.node, float(node.amplification[0].value or 0))
              for node in network.nodes if node.amplification[1].value is not None]  # fmt: skip
    most = max(ratios, default=None)
    if most is None or most[0] < MUCH_SENT:
        return ()
    text = (f"Node {most[1]} sends {most[0]:.1f} times what a ring through its collectives sends ({most[2]:.1f} times "
            "the least): rings that cross nodes more than once, or other traffic.")  # fmt: skip
    return (Headline(WARNING, text, "collectives"),)


def _most(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)
