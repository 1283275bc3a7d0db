"""What the network interfaces of a node sent against what its collectives need: how much more goes over the wire.

Only groups that lie on more than one node need the network; traffic inside a node, over loopback or NVLink, is not NIC
traffic. expected: what the operations between the node's first and last reading must send at least (`bandwidth`), and
what a ring sends that enters each node once. network.amplification = sent / expected. Example: an all_reduce of 1 GB
over 2 nodes with 2 ranks each must send 1 GB a node, a ring in the order of the ranks sends 1.5 GB: 1.5; a ring that
goes to and fro between the nodes sends 3 GB: 3. Below 1 is possible with reduction inside the network.

Sent are bytes on the wire, headers and whatever else the node did included. Of a node's interfaces those with a PCI
device are added up (a bond or a bridge above them would count them twice); without any, the busiest one is taken.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from rankscope.schema.measurement import Measurement

from .bandwidth import Spread, least_sent, ring_sent
from .counted import counted
from .evidence import Evidence
from .groups import Group, read_groups
from .partials import Given, Pair
from .run import Row, Run
from .statements import statement

ANALYZER: Final = "amplification"
LEAST, RING = "least", "ring"
_WINDOW: Final = Given("nic_window", statement(ANALYZER, "windows"))
MOVED: Final = Pair.of_parts(ANALYZER, "moved", ("collective",), given=(_WINDOW,))
_TABLES: Final = ("nic_sample", "collective", "process", "process_group")
_ONE_NODE: Final = "no group lies on more than one node: what stays inside a node is not NIC traffic"
_NO_SAMPLES: Final = "no network interface was sampled"
_NO_NODES: Final = "nobody tells on which nodes the ranks ran"
_ONE_READING: Final = "fewer than two readings of its interfaces"
_NOTHING: Final = "between the readings of its interfaces no operation had to leave it"
_Places = dict[tuple[int, int], str]


@dataclass(frozen=True, slots=True)
class NodeTraffic:
    """One node. nics: the interfaces whose bytes are added. sent: network.sent; expected and amplification: the least,
    and a ring's.
    """

    node: str
    nics: tuple[str, ...]
    sent: Measurement
    expected: tuple[Measurement, Measurement]
    amplification: tuple[Measurement, Measurement]

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        return (self.sent, *self.expected, *self.amplification)


@dataclass(frozen=True, slots=True)
class Amplification:
    """The answer, by node. nothing: network.amplification without a value, where no node can have one."""

    nodes: tuple[NodeTraffic, ...]
    nothing: Measurement | None = None

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        if self.nothing is not None:
            return (self.nothing,)
        return tuple(item for node in self.nodes for item in node.measurements)


def amplification(run: Run, coverage: float | None = None) -> Amplification:
    """Sent against needed, for every node of `run` that groups across nodes lie on."""
    places: _Places = {(row[0], row[1]): row[2] for row in run.rows(statement(ANALYZER, "places"))}
    groups = read_groups(run)
    told = Evidence(run, ANALYZER, MOVED.definition, _TABLES, coverage,
                    window="first to last reading of the node's interfaces",
                    caveats=("headers and everything else that the node sent included",))  # fmt: skip
    spreads = _Spreads(places)
    across = _nodes_across(groups.values(), spreads)
    if not across or not run.size("nic_sample").num_rows:
        why = _NO_SAMPLES if across else _ONE_NODE if places else _NO_NODES
        return Amplification((), told.measurement("network.amplification", None, {}, 0, reason=why))
    sent, needs = _sent(run), _needs(run, groups, spreads)
    return Amplification(tuple(_traffic(told, node, sent.get(node), needs[node]) for node in sorted(across)))


@dataclass(frozen=True, slots=True)
class _Sent:
    """What a node sent. num: differences between readings; 0: sent_bytes is not known."""

    nics: tuple[str, ...]
    sent_bytes: int
    num: int
    is_busiest: bool


@dataclass(slots=True)
class _Need:
    """What the operations of a node need. num_unknown: those that have no bound, or whose bytes nobody told."""

    least: Fraction = Fraction(0)
    ring: Fraction = Fraction(0)
    num_operations: int = 0
    num_straddling: int = 0
    num_unknown: int = 0
    least_share: float = 1.0

    def add(self, op: str, moved: Fraction, spread: Spread, num: int, share: float) -> None:
        """Operations that moved `moved` bytes, of which the share `share` has rows."""
        least, ring = least_sent(op, spread), ring_sent(op, spread)
        if least is None or ring is None:
            self.num_unknown += num
            return
        scale = 1 / Fraction(share)
        self.least, self.ring = self.least + least * moved * scale, self.ring + ring * moved * scale
        self.num_operations, self.least_share = self.num_operations + num, min(self.least_share, share)


class _Spreads:
    """How groups lie on the nodes; counted once for each group and incarnation."""

    def __init__(self, places: _Places) -> None:
        self.places = places
        self._counts: dict[tuple[int, str], Counter[str | None]] = {}

    def counts(self, group: Group, incarnation: int) -> "Counter[str | None]":
        """Members by node; None where that is not known."""
        key = incarnation, group.group_id
        if key not in self._counts:
            self._counts[key] = Counter(self.places.get((incarnation, rank)) for rank in group.members)
        return self._counts[key]

    def of(self, group: Group, incarnation: int, node: str, root: int | None) -> Spread | None:
        """None where the node of a member is not known, or nobody is here."""
        counts = self.counts(group, incarnation)
        if not counts or None in counts or node not in counts:
            return None
        is_root_here = root is not None and self.places.get((incarnation, root)) == node
        return Spread(len(group.members), len(counts), counts[node], is_root_here)


def _needs(run: Run, groups: dict[str | None, Group], spreads: _Spreads) -> dict[str, _Need]:
    found: dict[str, _Need] = defaultdict(_Need)
    shares = counted(run).shares
    for node, incarnation, group_id, op, root, dst, num, moved, num_straddling, num_without in MOVED.rows(run):
        group, need = groups.get(group_id), found[node]
        spread = None if group is None else spreads.of(group, incarnation, node, root)
        if spread is None or spread.num_nodes < 2:
            continue
        if dst is not None:  # a send: only its own two ranks count, and it needs the wire once
            is_away = spreads.places.get((incarnation, dst)) not in (None, node)
            need.add("broadcast", Fraction(int(moved or 0) * is_away), Spread(2, 2, 1, True), num, 1.0)
            continue
        need.num_straddling += num_straddling
        need.num_unknown += num_without
        each = Fraction(int(moved or 0), spread.num_here)  # every rank here has a row of every operation
        need.add(op or "", each, spread, num, shares.get(group_id, 1.0))
    return found


def _nodes_across(groups: Iterable[Group], spreads: _Spreads) -> set[str]:
    """The nodes of all groups that lie on more than one."""
    found: set[str] = set()
    for incarnation in {key[0] for key in spreads.places}:
        for group in groups:
            known = {node for node in spreads.counts(group, incarnation) if node is not None}
            found |= known if len(known) > 1 else set()
    return found


def _sent(run: Run) -> dict[str, _Sent]:
    physical = {
        (node, entry["nic"]) for node, nics in run.rows(statement(ANALYZER, "nodes")) for entry in json.loads(nics)
        if entry.get("pci_bus_id") or entry.get("kind") != "ethernet"
    }  # fmt: skip
    by_node: dict[str, list[Row]] = defaultdict(list)
    for node, *row in run.rows(statement(ANALYZER, "readings")):
        by_node[node].append(tuple(row))
    return {node: _added(rows, {nic for at, nic in physical if at == node}) for node, rows in by_node.items()}


def _added(rows: Iterable[Row], physical: set[str]) -> _Sent:
    rows = [row for row in rows if row[4] and row[5] is not None]
    real = [row for row in rows if row[0] in physical]
    chosen = real or sorted(rows, key=lambda row: (-row[5], row[0]))[:1]
    is_busiest = not real and sum(bool(row[5]) for row in rows) > 1
    names = tuple(str(row[0]) for row in chosen)
    return _Sent(names, sum(row[5] for row in chosen), min((row[4] for row in chosen), default=0), is_busiest)


def _traffic(told: Evidence, node: str, sent: _Sent | None, need: _Need) -> NodeTraffic:
    caveats = _caveats(need, sent)
    num = sent.num if sent else 0
    measured = told.measurement("network.sent", sent.sent_bytes if sent and num else None, {"node": node}, num,
                                caveats=caveats, reason="" if num else _ONE_READING)  # fmt: skip
    expected, ratios = [], []
    for bound, value in ((LEAST, need.least), (RING, need.ring)):
        scope, why = {"node": node, "bound": bound}, "" if value else _NOTHING
        expected.append(told.measurement("network.expected", int(value) if value else None, scope, need.num_operations,
                                         caveats=caveats, reason=why))  # fmt: skip
        is_known = bool(value) and measured.value is not None
        ratio = float(Fraction(int(measured.value or 0)) / value) if is_known else None
        ratios.append(told.measurement("network.amplification", ratio, scope, need.num_operations, caveats=caveats,
                                       reason="" if is_known else why or measured.reason))  # fmt: skip
    return NodeTraffic(node, sent.nics if sent else (), measured, (expected[0], expected[1]), (ratios[0], ratios[1]))


def _caveats(need: _Need, sent: _Sent | None) -> tuple[str, ...]:
    found = []
    if need.num_unknown:
        found.append(f"{need.num_unknown:,} rows of operations without a bound are not in what is expected")
    if need.num_straddling:
        found.append(f"{need.num_straddling:,} rows of operations at the edges of the window are not in it")
    if need.least_share < 1:
        found.append(f"scaled up: of a group only {100 * need.least_share:.0f} % of the operations have rows")
    if sent and sent.is_busiest:
        found.append("several virtual interfaces: the busiest is taken")
    return tuple(found)
