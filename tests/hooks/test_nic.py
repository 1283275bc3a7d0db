"""Ethernet interfaces: counters, links that are down or unknown, interfaces that vanish, and who is near whom."""

import json
from pathlib import Path

import pytest
from kernel_tree import NODE, KernelTree

from rankscope.hooks.nic import make
from rankscope.hooks.sampling import LocalProcess
from rankscope.schema.arrow import rows_to_table
from rankscope.schema.errors import HookUnavailable

COUNTERS = ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped")


@pytest.fixture
def tree(tmp_path: Path) -> KernelTree:
    made = KernelTree(tmp_path)
    interface(made, "eth0", numa=0, pci="pci0000:00/0000:00:01.0/0000:01:00.0")
    return made


def interface(tree: KernelTree, name: str, *, numa: int | None = None, pci: str = "", **changed: object) -> None:
    """An interface that is up at 25 Gbit/s and counted 1, 2, 3, ... in the order of COUNTERS."""
    folder = f"class/net/{name}"
    tree.sys({f"{folder}/statistics/{counter}": at + 1 for at, counter in enumerate(COUNTERS)})
    files = {"type": 1, "operstate": "up", "carrier": 1, "speed": 25000, **changed}
    tree.sys({f"{folder}/{file}": contents for file, contents in files.items()})
    if pci:
        tree.sys({f"devices/{pci}/numa_node": numa})
        (tree.sysfs / folder / "device").symlink_to(tree.sysfs / "devices" / pci)


def test_counters_link_and_reasons(tree: KernelTree) -> None:
    (row,) = make(tree.surroundings).sample(5)["nic_sample"]
    assert [row[name] for name in COUNTERS] == list(range(1, 9))
    assert (row["node"], row["nic"], row["kind"], row["time_ns"]) == (NODE, "eth0", "ethernet", 5)
    assert row["is_up"] is True and row["speed_bytes_per_second"] == 25_000 * 125_000
    assert set(row["reason"]) == {"tx_wait", "num_discards", "num_retransmits", "num_congestion"}
    assert rows_to_table("nic_sample", [row]).num_rows == 1


def test_loopback_is_no_interface(tree: KernelTree) -> None:
    interface(tree, "lo", type=772)
    assert [row["nic"] for row in make(tree.surroundings).sample(0)["nic_sample"]] == ["eth0"]


@pytest.mark.parametrize(
    ("state", "carrier", "speed", "is_up", "bytes_per_second"),
    [
        ("down", 0, -1, False, None),
        ("unknown", 1, -1, True, None),
        ("unknown", 0, 10_000, False, 10_000 * 125_000),
        ("lowerlayerdown", 0, -1, False, None),
    ],
)
def test_a_link_that_is_down_is_a_row(
    tree: KernelTree, state: str, carrier: int, speed: int, is_up: bool, bytes_per_second: int | None
) -> None:
    interface(tree, "ib0", operstate=state, carrier=carrier, speed=speed)
    row = make(tree.surroundings).sample(0)["nic_sample"][1]
    assert (row["is_up"], row["speed_bytes_per_second"], row["rx_bytes"]) == (is_up, bytes_per_second, 1)
    assert ("speed_bytes_per_second" in row["reason"]) == (bytes_per_second is None)


def test_an_interface_that_vanishes_says_so_once_and_may_come_back(tree: KernelTree) -> None:
    sampler = make(tree.surroundings)
    sampler.sample(0)
    hidden = tree.sysfs / "hidden"
    (tree.sysfs / "class/net/eth0").rename(hidden)
    (row,) = sampler.sample(1)["nic_sample"]
    assert row["nic"] == "eth0" and row["is_up"] is False and row.get("rx_bytes") is None
    assert row["reason"]["rx_bytes"] == row["reason"]["speed_bytes_per_second"] == "the interface is gone"
    assert sampler.sample(2)["nic_sample"] == []
    hidden.rename(tree.sysfs / "class/net/eth0")
    assert [row["rx_bytes"] for row in sampler.sample(3)["nic_sample"]] == [1]


def test_a_counter_that_cannot_be_read_is_null_with_the_reason(tree: KernelTree) -> None:
    (tree.sysfs / "class/net/eth0/statistics/tx_bytes").unlink()
    tree.sys({"class/net/eth0/statistics/rx_bytes": "N/A"})
    (row,) = make(tree.surroundings).sample(0)["nic_sample"]
    assert row["tx_bytes"] is None and row["reason"]["tx_bytes"] == "the kernel has no such file"
    assert row["rx_bytes"] is None and row["reason"]["rx_bytes"] == "the driver says 'N/A'"
    assert row["tx_packets"] == 4


def test_without_any_network_it_says_why(tmp_path: Path) -> None:
    with pytest.raises(HookUnavailable, match=r"class/net is not there"):
        make(KernelTree(tmp_path).surroundings)


def test_which_interfaces_a_rank_can_use(tree: KernelTree) -> None:
    interface(tree, "eth1", numa=1, pci="pci0000:80/0000:80:01.0/0000:81:00.0")
    interface(tree, "veth7")
    tree.sys({"devices/pci0000:80/0000:80:01.0/0000:82:00.0/numa_node": 1, "bus/pci/devices/README": ""})
    gpu = tree.sysfs / "devices/pci0000:80/0000:80:01.0/0000:82:00.0"
    (tree.sysfs / "bus/pci/devices/0000:82:00.0").symlink_to(gpu)
    tree.processes = (
        LocalProcess(proc=7, rank=0, incarnation=2, pid=1, numa_nodes=(0,)),
        LocalProcess(proc=8, rank=1, incarnation=2, pid=2, numa_nodes=(0,), pci_bus_id="0000:82:00.0"),
        LocalProcess(proc=9, rank=2, incarnation=2, pid=3),
    )
    sampler = make(tree.surroundings)
    found = sampler.sample(0)
    near = [[(nic["nic"], nic["near"]) for nic in row["nics"]] for row in found["process"]]
    assert near[0] == [("eth0", "numa"), ("veth7", "unknown"), ("eth1", "far")]
    assert near[1] == [("eth1", "pcie"), ("eth0", "numa"), ("veth7", "unknown")]
    assert {place for _, place in near[2]} == {"unknown"}
    assert [(row["proc"], row["incarnation"]) for row in found["process"]] == [(7, 2), (8, 2), (9, 2)]
    (node,) = found["node"]
    assert [(nic["nic"], nic["numa_node"], nic["pci_bus_id"]) for nic in node["nics"]] == [
        ("eth0", 0, "0000:01:00.0"), ("eth1", 1, "0000:81:00.0"), ("veth7", None, None),
    ]  # fmt: skip
    again = sampler.sample(1)
    assert "node" not in again and "process" not in again  # told once
    told = rows_to_table("process", found["process"]).column("nics").to_pylist()
    assert json.loads(told[0])[0] == {"nic": "eth0", "kind": "ethernet", "numa_node": 0, "pci_bus_id": "0000:01:00.0",
                                      "near": "numa"}  # fmt: skip
