"""Placement: which mesh dimension's groups cross which link, with bytes, transfer time, bandwidth and exposed time.

A group's link is the slowest that its members need: the network where they lie on several nodes; else NVLink where
every two of its devices are joined by it (directly, or through switches); else PCIe, inside one NUMA node or across;
of jobs without devices the host's memory. Where nobody tells the topology (imported traces) the link is not known.
The exposed share is of what all groups expose: of device timelines exposed communication, else host-visible waits.
"""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import Any, Final

from rankscope.schema.measurement import Measurement

from .bandwidth import bus_factor
from .evidence import Evidence
from .exposure_parts import Exposure
from .groups import Group
from .matched import SOURCE, TABLES, Matching
from .run import Row

ANALYZER: Final = "placement"
NETWORK, NVLINK, PCIE, PCIE_NUMA, MEMORY, MEMORY_NUMA, UNKNOWN, ALONE = (
    "network", "NVLink", "PCIe", "PCIe, across NUMA nodes", "host memory", "host memory, across NUMA nodes",
    "not known", "none: one member",
)  # fmt: skip
LINKS: Final = (NETWORK, PCIE_NUMA, MEMORY_NUMA, PCIE, MEMORY, NVLINK, UNKNOWN, ALONE)
"""The slowest first."""
_IMPORTED: Final = "imported"
"""The host that imported traces are given, for they tell none."""
_NO_BYTES: Final = "no row tells the bytes of its operations"
_NOT_MATCHED: Final = "no operation of it is matched"
_NO_EXPOSED: Final = "nothing tells what communication is exposed"


@dataclass(frozen=True, slots=True)
class Crossing:
    """The groups of one mesh dimension that cross one kind of link. size: of the largest group."""

    group_kind: str
    link: str
    num_groups: int
    size: int | None
    num_operations: int
    bytes: Measurement
    transfer: Measurement
    busbw: Measurement
    exposed_share: Measurement

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        return (self.bytes, self.transfer, self.busbw, self.exposed_share)


@dataclass(frozen=True, slots=True)
class _Rank:
    """Where a rank runs. None, or empty: nobody told it. peers: PCI bus ids at the other ends of its NVLinks."""

    node: str | None
    numa_nodes: frozenset[int]
    has_device: bool
    pci_bus_id: str | None
    peers: frozenset[str]


def placement(
    matching: Matching, groups: dict[str | None, Group], exposed: Exposure, coverage: float | None
) -> tuple[Crossing, ...]:
    """The groups of the run by mesh dimension and link, most bytes first."""
    ranks = {row[0]: _rank(row) for row in matching.rows("ranks")}
    switches = _switches(ranks)
    found: dict[tuple[str, str], _Sums] = defaultdict(_Sums)
    shares = exposed.exposed_by_group
    for row in matching.rows("placed"):
        group = groups.get(row[0]) or Group.unknown(row[0])
        found[group.kind, link_of(group, ranks, switches)].add(row, shares.get(row[0], 0))
    told = Evidence(matching.run, ANALYZER, matching.statement("placed"), (*TABLES, "device"), coverage,
                    predicate=SOURCE, window=matching.window, clock_error_ns=matching.error_ns)  # fmt: skip
    total = sum(shares.values())
    crossings = [_crossing(told, kind, link, sums, total) for (kind, link), sums in found.items()]
    return tuple(sorted(crossings, key=lambda item: (-int(item.bytes.value or 0), item.group_kind, item.link)))


def nodes_of(matching: Matching) -> dict[int, str]:
    """The node of each rank, where that is known."""
    ranks = {row[0]: _rank(row) for row in matching.rows("ranks")}
    return {rank: item.node for rank, item in ranks.items() if item.node is not None}


@dataclass(slots=True)
class _Sums:
    """Sums over the groups and operations of one dimension and link."""

    groups: set[str | None] = field(default_factory=set)
    size: int | None = None
    num_operations: int = 0
    num_matched: int = 0
    num_with_bytes: int = 0
    all_bytes: int = 0
    transfer_ns: int = 0
    bus_bytes: Fraction = Fraction(0)
    moving_ns: int = 0
    exposed_ns: int = 0

    def add(self, row: Row, exposed_ns: int) -> None:
        """One row of the statement `placed`. exposed_ns: of the whole group, taken once."""
        group_id, op, size, num, all_bytes, num_with_bytes, num_matched, transfer, moved, moving = row
        if group_id not in self.groups:
            self.exposed_ns += exposed_ns
        self.groups.add(group_id)
        self.size = size if self.size is None else max(self.size, size or 0)
        self.num_operations, self.num_matched = self.num_operations + num, self.num_matched + num_matched
        self.all_bytes, self.num_with_bytes = self.all_bytes + int(all_bytes or 0), self.num_with_bytes + num_with_bytes
        self.transfer_ns += int(transfer or 0)
        factor = bus_factor(op or "", size or 0)
        if factor is not None and moving:
            self.bus_bytes += int(moved) * factor
            self.moving_ns += int(moving)


def link_of(group: Group, ranks: dict[int, _Rank], switches: frozenset[str]) -> str:
    """The slowest link that the members of a group need."""
    if group.size == 1:
        return ALONE
    members = [ranks[rank] for rank in group.members if rank in ranks]
    if not members or len(members) < len(group.members) or any(item.node is None for item in members):
        return UNKNOWN
    if len({item.node for item in members}) > 1:
        return NETWORK
    if not any(item.has_device for item in members):
        return _by_numa(members, MEMORY, MEMORY_NUMA)
    return _between_devices(members, switches)


def _between_devices(members: list[_Rank], switches: frozenset[str]) -> str:
    if any(item.pci_bus_id is None for item in members):
        return UNKNOWN
    if all(_is_joined(one, other, switches) for one, other in combinations(members, 2)):
        return NVLINK
    return _by_numa(members, PCIE, PCIE_NUMA)


def _by_numa(members: list[_Rank], near: str, far: str) -> str:
    """Across only where it is known that no NUMA node is common to all."""
    known = [item.numa_nodes for item in members if item.numa_nodes]
    return far if len(known) == len(members) and not frozenset.intersection(*known) else near


def _is_joined(one: _Rank, other: _Rank, switches: frozenset[str]) -> bool:
    return other.pci_bus_id in one.peers or one.pci_bus_id in other.peers or bool(one.peers & other.peers & switches)


def _switches(ranks: dict[int, _Rank]) -> frozenset[str]:
    """What devices are linked to and what is no device of a rank: switches. A GPU that nobody uses looks like one."""
    devices = {item.pci_bus_id for item in ranks.values()}
    return frozenset(peer for item in ranks.values() for peer in item.peers if peer not in devices)


def _rank(row: Row) -> _Rank:
    _, node, boot_id, numa_nodes, device, pci_bus_id, device_numa, peers = row
    numa = [device_numa] if device_numa is not None else [] if device else list(numa_nodes or ())
    joined: dict[str, Any] = json.loads(peers) if peers else {}
    where = None if boot_id in (None, _IMPORTED) else node
    return _Rank(where, frozenset(numa), device is not None, pci_bus_id, frozenset(joined or ()))


def _crossing(told: Evidence, kind: str, link: str, sums: _Sums, total_ns: int) -> Crossing:
    scope = {"group_kind": kind, "link": link}
    num, matched = sums.num_operations, sums.num_matched
    is_sized, is_timed = sums.num_with_bytes > 0, sums.moving_ns > 0
    busbw = int(sums.bus_bytes * 10**9 / sums.moving_ns) if is_timed else None
    share = sums.exposed_ns / total_ns if total_ns else None
    return Crossing(
        kind, link, len(sums.groups), sums.size, num,
        told.measurement("placement.bytes", sums.all_bytes if is_sized else None, scope, sums.num_with_bytes,
                         reason="" if is_sized else _NO_BYTES),
        told.measurement("placement.transfer", sums.transfer_ns if matched else None, scope, matched,
                         reason="" if matched else _NOT_MATCHED),
        told.measurement("placement.busbw", busbw, scope, matched,
                         reason="" if is_timed else _NO_BYTES if matched else _NOT_MATCHED),
        told.measurement("placement.exposed_share", share, scope, num, reason="" if total_ns else _NO_EXPOSED),
    )  # fmt: skip
