"""What nodes send against what they must, worked out by hand; and what is no network traffic."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from run_builder import MS, WORLD, RunBuilder, proc_of

from rankscope.analyzers.amplification import Amplification, amplification
from rankscope.analyzers.bandwidth import Spread, least_sent, ring_sent
from rankscope.analyzers.run import Run

NODES = ("host-a-11111111", "host-b-22222222")
S = 1_000_000


def found_in(run_dir: Path) -> Amplification:
    with Run.open(str(run_dir)) as run:
        return amplification(run, 1.0)


def values(found: Amplification) -> dict[tuple[str, str], Any]:
    return {
        (item.scope["node"], item.scope["bound"]): item.value for node in found.nodes for item in node.amplification
    }


class Nodes:
    """Four ranks, two a node, all in one group. Readings of every interface at 0 and 1000 ms, unless told."""

    def __init__(self, root: Path, node_of: tuple[int, ...] = (0, 0, 1, 1)) -> None:
        self.build, self.node_of = RunBuilder(root, world_size=len(node_of)), node_of
        self.readings: list[tuple[int, dict[str, Any]]] = []

    def operation(self, seq: int, op: str = "all_reduce", at: int = 100, size: int = S, **more: Any) -> None:
        for rank in range(len(self.node_of)):
            self.build.collective(rank, seq, at, (at, at + 50), at + 50, op=op, bytes_in=size, bytes_out=size, **more)

    def nic(self, node: int, nic: str, sent: int, times: tuple[int, ...] = (0, 1000), kind: str = "ethernet") -> None:
        for at, moment in enumerate(times):
            counted = 5_000 + (sent if at == len(times) - 1 else 0)
            self.readings.append((node, {"nic": nic, "kind": kind, "time_ns": moment * MS, "tx_bytes": counted}))

    def seal(self, nics: dict[int, list[dict[str, Any]]] | None = None) -> Path:
        for rank, node in enumerate(self.node_of):
            self.build.add("process", proc=proc_of(rank), rank=rank, node=NODES[node], boot_id="one-boot",
                           incarnation=0, exit_kind="clean", num_records=self.build.records[proc_of(rank)],
                           num_dropped=0)  # fmt: skip
        for node, entries in (nics or {}).items():
            self.build.add("node", node=NODES[node], nics=json.dumps(entries))
        self.build.group(WORLD, list(range(len(self.node_of))), "world")
        self.build.add("run", run_id="run-1", world_size=len(self.node_of))
        for at, name in enumerate(NODES):  # readings know their node by the folder; facts by their process
            self.build.node = name
            for number, row in self.readings:
                if number == at:
                    self.build.add("nic_sample", 0, node=name, rx_bytes=0, **row)
            self.build.seal()
        return self.build.root


def test_a_ring_by_hand(tmp_path: Path) -> None:
    """Two all_reduces over two nodes must send 2 S a node, a ring 3 S; 6 S were sent."""
    nodes = Nodes(tmp_path / "run")
    nodes.operation(0)
    nodes.operation(1, at=300)
    nodes.nic(0, "eth0", 6 * S)
    nodes.nic(1, "eth0", 3 * S)
    found = found_in(nodes.seal())
    assert [item.value for node in found.nodes for item in node.expected] == [2 * S, 3 * S] * 2
    assert values(found) == {
        (NODES[0], "least"): 3.0, (NODES[0], "ring"): 2.0, (NODES[1], "least"): 1.5, (NODES[1], "ring"): 1.0,
    }  # fmt: skip


def test_operations_outside_of_the_readings_are_not_expected(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path / "run")
    for seq, at in enumerate((100, 500, 980, 1200)):  # the third straddles the last reading, the fourth is after it
        nodes.operation(seq, at=at)
    nodes.nic(0, "eth0", 2 * S)
    found = found_in(nodes.seal())
    first, second = found.nodes
    assert first.expected[0].value == 2 * S and first.amplification[0].value == 1.0
    assert "2 rows of operations at the edges of the window are not in it" in first.sent.provenance.caveats
    assert second.amplification[0].value is None and second.amplification[0].reason


def test_inside_one_node_nothing_is_network_traffic(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path / "run", node_of=(0, 0))
    nodes.operation(0)
    nodes.nic(0, "eth0", 6 * S)
    found = found_in(nodes.seal())
    assert found.nothing is not None and found.nothing.value is None
    assert found.nothing.reason.startswith("no group lies on more than one node")


def test_groups_inside_a_node_are_not_expected_of_the_network(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path / "run")
    nodes.operation(0)
    for rank in (0, 1):
        nodes.build.collective(rank, 0, 200, (200, 210), 210, group_id="near", bytes_in=50 * S, bytes_out=50 * S)
    nodes.build.group("near", [0, 1], "tp")
    for node in (0, 1):
        nodes.nic(node, "eth0", S)
    assert values(found_in(nodes.seal()))[NODES[0], "least"] == 1.0


def test_without_readings_there_is_none(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path / "run")
    nodes.operation(0)
    found = found_in(nodes.seal())
    assert found.nothing is not None and found.nothing.reason == "no network interface was sampled"


def test_a_bond_above_its_interfaces_counts_once(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path / "run")
    nodes.operation(0)
    for node in (0, 1):
        nodes.nic(node, "bond0", 2 * S)
        nodes.nic(node, "eth0", S)
        nodes.nic(node, "eth1", S)
    entries = [{"nic": "bond0", "kind": "ethernet", "pci_bus_id": None}] + [
        {"nic": name, "kind": "ethernet", "pci_bus_id": "0000:01:00.0"} for name in ("eth0", "eth1")
    ]
    found = found_in(nodes.seal({0: entries, 1: entries}))
    assert [node.sent.value for node in found.nodes] == [2 * S, 2 * S] and found.nodes[0].nics == ("eth0", "eth1")


def test_of_virtual_interfaces_the_busiest_is_taken(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path / "run")
    nodes.operation(0)
    for node in (0, 1):
        nodes.nic(node, "docker0", 10)
        nodes.nic(node, "eth0", S)
    found = found_in(nodes.seal())
    assert [node.nics for node in found.nodes] == [("eth0",), ("eth0",)]
    assert "several virtual interfaces: the busiest is taken" in found.nodes[0].sent.provenance.caveats


def test_sends_to_the_other_node_are_expected_once(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path / "run")
    for src, dst in ((0, 1), (1, 2)):  # the first stays on its node
        nodes.build.collective(src, 0, 100, (100, 110), 110, op="send", src=src, dst=dst, tag=0, bytes_in=S)
        nodes.build.collective(dst, 0, 100, (100, 110), 110, op="recv", src=src, dst=dst, tag=0, bytes_in=S)
    for node in (0, 1):
        nodes.nic(node, "eth0", S)
    first, second = found_in(nodes.seal()).nodes
    assert first.expected[0].value == S and first.amplification[0].value == 1.0
    assert second.expected[0].value is None and second.expected[0].reason


def test_operations_without_rows_are_allowed_for(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path / "run")
    nodes.operation(0)
    nodes.operation(3, at=300)  # 1 and 2 were counted, but have no row
    for node in (0, 1):
        nodes.nic(node, "eth0", 4 * S)
    found = found_in(nodes.seal())
    assert found.nodes[0].expected[0].value == 4 * S
    assert any("50 %" in caveat for caveat in found.nodes[0].sent.provenance.caveats)


EIGHT_ON_TWO = Spread(size=8, num_nodes=2, num_here=4)
ROOT_HERE = Spread(size=8, num_nodes=2, num_here=4, is_root_here=True)


@pytest.mark.parametrize(
    ("op", "spread", "least", "ring"),
    [
        ("all_reduce", EIGHT_ON_TWO, 1, Fraction(7, 4)),
        ("all_reduce", Spread(8, 8, 1), Fraction(7, 4), Fraction(7, 4)),  # one rank a node: a ring is the best
        ("reduce_scatter", EIGHT_ON_TWO, Fraction(1, 2), Fraction(7, 8)),
        ("all_to_all", EIGHT_ON_TWO, 2, 2),  # four ranks send half of their S each
        ("broadcast", ROOT_HERE, 1, 1), ("broadcast", EIGHT_ON_TWO, 0, 0),
        ("reduce", ROOT_HERE, 0, 0), ("reduce", EIGHT_ON_TWO, 1, 1),
        ("gather", EIGHT_ON_TWO, Fraction(1, 2), Fraction(1, 2)),
        ("scatter", ROOT_HERE, Fraction(1, 2), Fraction(1, 2)),
        ("barrier", EIGHT_ON_TWO, 0, 0), ("coalesced", EIGHT_ON_TWO, None, None),
    ],
)  # fmt: skip
def test_bounds(op: str, spread: Spread, least: Fraction | None, ring: Fraction | None) -> None:
    assert (least_sent(op, spread), ring_sent(op, spread)) == (least, ring)
