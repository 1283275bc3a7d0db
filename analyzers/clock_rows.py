"""What the clocks are told by: ends and starts of operations by host, and clock readings, as columns of a run."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from .clock_bounds import UNBOUNDED_NS, Ints
from .clock_part import CHOSEN, GROUP
from .groups import unfold
from .partials import Given, Pair, Partial, gather
from .run import Run
from .statements import statement

ALL_PROCESSES: Final = 64
"""Of runs up to this size every process is looked at; of larger ones one a host and group that ties hosts together."""
MAX_OPERATIONS: Final = 4_000
"""Of each group, about; more would not make a median better."""
MAX_ENDS: Final = 500_000
"""Over all hosts, about: with more than a few hundred of them fewer operations of each group are looked at."""
_ABSENT: Final = -(1 << 62)
_CHOSEN: Final = (
    "CREATE OR REPLACE TEMP TABLE _clock_chosen AS SELECT unnest(?::BIGINT[]) AS proc, unnest(?::INTEGER[]) AS host"
)
_GROUPS: Final = (
    "CREATE OR REPLACE TEMP TABLE _clock_group AS SELECT unnest(?::VARCHAR[]) AS group_id, ?::BIGINT AS most"
)
_GIVEN: Final = (Given(CHOSEN, "FROM _clock_chosen"), Given(GROUP, "FROM _clock_group"))
ENDS: Final = Pair(
    "clocks", "ends", (Partial("clocks", "ends_partial", relations=("clock_row",), given=_GIVEN),),
    has_own=False, views=(("clock_row", statement("clocks", "rows")),),
)  # fmt: skip
_KEPT: Final = "groups that tie hosts"


@dataclass(frozen=True, slots=True)
class Host:
    """A host's clock. number: its ordinal, that of rank 0 is 0. ranks: those that ran there."""

    number: int
    boot_id: str
    node: str
    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """A clock reading, ns. error_ns: the kernel's maximum error, None while it is not synchronised.

    peer_ns: a peer's clock at some moment of the round trip that ended at monotonic_ns.
    """

    boot_id: str
    monotonic_ns: int
    wall_ns: int
    error_ns: int | None
    round_trip_ns: int | None
    peer_boot_id: str | None
    peer_ns: int | None


@dataclass(frozen=True, slots=True)
class HostPair:
    """Operations of which both hosts left something: own and their times, each on its own clock, ns."""

    own_end: Ints
    their_end: Ints
    own_source: Ints
    their_source: Ints
    own_sink: Ints
    their_sink: Ints
    quality: Ints

    @property
    def has_end(self) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Both saw an end of an operation that ends together."""
        found: np.ndarray[tuple[int], np.dtype[np.bool_]] = (self.own_end != _ABSENT) & (self.their_end != _ABSENT)
        return found

    def sources_and_sinks(self, moved: Callable[[Ints], Ints]) -> tuple[Ints, Ints, Ints]:
        """Single bounds of the own clock's lead: (times, low, high). moved: the correction of their times."""
        has_low = (self.own_source != _ABSENT) & (self.their_sink != _ABSENT)
        has_high = (self.own_sink != _ABSENT) & (self.their_source != _ABSENT)
        low = np.where(has_low, self.own_source - self.their_sink + moved(self.their_sink), -UNBOUNDED_NS)
        high = np.where(has_high, self.own_sink - self.their_source + moved(self.their_source), UNBOUNDED_NS)
        times = np.where(self.own_sink != _ABSENT, self.own_sink, self.own_source)
        known = has_low | has_high
        return times[known], low[known], high[known]


class Ends:
    """The rows of statement `ends`, by host."""

    def __init__(self, columns: dict[str, Ints], neighbours: dict[int, set[int]]) -> None:
        self._columns, self._neighbours = columns, neighbours

    def neighbours(self, host: int) -> set[int]:
        """Hosts with which it shares a group, itself not among them."""
        return self._neighbours.get(host, set())

    def pair(self, own: int, other: int) -> HostPair:
        """What hosts `own` and `other` have in common."""
        mine, theirs = self._slice(own), self._slice(other)
        keys = self._columns["op_key"]
        _, i, j = np.intersect1d(keys[mine], keys[theirs], assume_unique=True, return_indices=True)
        i, j = i + mine.start, j + theirs.start
        end, source, sink, quality = (self._columns[name] for name in ("end_ns", "source_ns", "sink_ns", "quality"))
        is_mixed = quality[i] != quality[j]
        return HostPair(
            end[i], end[j], source[i], source[j], sink[i], sink[j],
            np.where(is_mixed & (np.maximum(quality[i], quality[j]) > 1), 0, np.minimum(quality[i], quality[j])),
        )  # fmt: skip

    def _slice(self, host: int) -> slice:
        hosts = self._columns["host"]
        return slice(int(np.searchsorted(hosts, host)), int(np.searchsorted(hosts, host + 1)))


@dataclass(frozen=True, slots=True)
class _Process:
    proc: int
    rank: int | None
    host: int
    incarnation: int


def read_hosts(run: Run) -> tuple[Host, ...]:
    """The hosts that processes ran on, that of rank 0 first. One row per process is read."""
    found: dict[str, tuple[str, str, list[int]]] = {}
    for _, boot_id, rank, node, host, _ in run.rows(statement("clocks", "hosts")):
        if boot_id is not None:
            ranks = found.setdefault(boot_id, (node or "", host or node or boot_id, []))[2]
            ranks += [rank] if rank is not None and rank not in ranks else []
    return tuple(Host(number, boot_id, node, host, tuple(sorted(ranks)))
                 for number, (boot_id, (node, host, ranks)) in enumerate(found.items()))  # fmt: skip


def read_readings(run: Run) -> dict[str, list[Reading]]:
    """The clock readings of each host, in order of its clock."""
    found: dict[str, list[Reading]] = defaultdict(list)
    for row in run.rows(statement("clocks", "readings")):
        found[row[0]].append(Reading(*row))
    return found


def partials(run: Run) -> tuple[Partial, ...]:
    """What `read_ends` gathers, for who reads the run for more than that; nothing where there is one host."""
    hosts = read_hosts(run)
    if len(hosts) < 2:
        return ()
    if _KEPT not in run.kept:
        numbers = {host.boot_id: host.number for host in hosts}
        processes = [_Process(proc, rank, numbers[boot_id], incarnation or 0)
                     for proc, boot_id, rank, _, _, incarnation in run.rows(statement("clocks", "hosts"))
                     if boot_id is not None]  # fmt: skip
        groups = _groups(run, processes)
        chosen = processes if len(processes) <= ALL_PROCESSES else _few(processes, groups)
        run.rows(_CHOSEN, [[item.proc for item in chosen], [item.host for item in chosen]])
        run.rows(_GROUPS, [list(groups), min(MAX_OPERATIONS, max(1, MAX_ENDS // len(hosts)))])
        run.kept[_KEPT] = _neighbours(groups)
    return ENDS.partials


def read_ends(run: Run) -> Ends:
    """Starts and ends of a sample of the operations that tie hosts together; there are several hosts."""
    gather(run, partials(run))
    columns = run.connection.execute(ENDS.merge).fetchnumpy()
    neighbours = run.kept[_KEPT]
    assert isinstance(neighbours, dict)
    return Ends({name: _filled(column) for name, column in columns.items()}, neighbours)


def _filled(column: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> Ints:
    filled: Ints = np.ma.filled(column, _ABSENT) if isinstance(column, np.ma.MaskedArray) else column
    return filled


def _groups(run: Run, processes: list[_Process]) -> dict[str, list[list[_Process]]]:
    """The groups with members on several hosts: for each incarnation of one the processes in order of rank."""
    by_rank: dict[int, dict[int, _Process]] = defaultdict(dict)
    for item in processes:
        if item.rank is not None:
            by_rank[item.incarnation][item.rank] = item
    found: dict[str, list[list[_Process]]] = defaultdict(list)
    for group_id, incarnation, *members in run.rows(statement("clocks", "groups")):
        there = by_rank[incarnation or 0]
        inside = [there[rank] for rank in unfold(*members) if rank in there]
        if len({item.host for item in inside}) > 1:
            found[group_id].append(inside)
    return found


def _few(processes: list[_Process], groups: dict[str, list[list[_Process]]]) -> list[_Process]:
    """For each group that ties hosts together, which others have not tied: its lowest rank on each host."""
    chosen: dict[int, _Process] = {}
    above = {(item.incarnation, item.host): (item.incarnation, item.host) for item in processes}

    def root(host: tuple[int, int]) -> tuple[int, int]:
        while above[host] != host:
            above[host] = above[above[host]]
            host = above[host]
        return host

    every = [members for incarnations in groups.values() for members in incarnations]
    for members in sorted(every, key=lambda items: (-len({item.host for item in items}), items[0].rank or 0)):
        lowest = {(item.incarnation, item.host): item for item in reversed(members)}
        roots = {root(host) for host in lowest}
        if len(roots) > 1:
            first = min(roots)
            above.update(dict.fromkeys(roots, first))
            chosen |= {item.proc: item for item in lowest.values()}
    return list(chosen.values())


def _neighbours(groups: dict[str, list[list[_Process]]]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = defaultdict(set)
    for incarnations in groups.values():
        for members in incarnations:
            hosts = {item.host for item in members}
            for host in hosts:
                found[host] |= hosts
    return {host: others - {host} for host, others in found.items()}
