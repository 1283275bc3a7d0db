"""RDMA ports in the layouts of four drivers: bytes are bytes, whatever the unit and the file; or null and why."""

from pathlib import Path

import pytest
from kernel_tree import KernelTree

from rankscope.hooks.nic import make
from rankscope.hooks.sampling import Row


@pytest.fixture
def tree(tmp_path: Path) -> KernelTree:
    made = KernelTree(tmp_path)
    made.sys({"class/net/.keep": ""})
    return made


def port(tree: KernelTree, device: str, files: dict[str, object], *, layer: str = "Ethernet", number: int = 1) -> None:
    """An active port at 100 Gb/s."""
    folder = f"class/infiniband/{device}/ports/{number}"
    common = {"state": "4: ACTIVE", "rate": "100 Gb/sec (4X EDR)", "link_layer": layer}
    tree.sys({f"{folder}/{name}": contents for name, contents in {**common, **files}.items()})


def read(tree: KernelTree) -> dict[str, Row]:
    return {row["nic"]: row for row in make(tree.surroundings).sample(0)["nic_sample"]}


def test_mellanox_counts_words_of_four_bytes(tree: KernelTree) -> None:
    port(tree, "mlx5_0", {
        "counters/port_rcv_data": 1000, "counters/port_xmit_data": 250, "counters/port_rcv_packets": 7,
        "counters/port_xmit_packets": 8, "counters/port_rcv_errors": 1, "counters/local_link_integrity_errors": 2,
        "counters/port_xmit_discards": 3, "counters/port_xmit_wait": 4, "hw_counters/out_of_buffer": 5,
        "hw_counters/packet_seq_err": 6, "hw_counters/local_ack_timeout_err": 10,
        "hw_counters/np_ecn_marked_roce_packets": 11, "hw_counters/rp_cnp_handled": 12,
    }, layer="InfiniBand")  # fmt: skip
    row = read(tree)["mlx5_0/1"]
    assert row["kind"] == "infiniband" and (row["rx_bytes"], row["tx_bytes"]) == (4000, 1000)
    assert (row["rx_packets"], row["tx_packets"], row["rx_errors"], row["tx_errors"]) == (7, 8, 1, 2)
    assert (row["rx_dropped"], row["tx_dropped"], row["tx_wait"], row["num_discards"]) == (5, 3, 4, 3)
    assert (row["num_retransmits"], row["num_congestion"]) == (16, 23)
    assert row["is_up"] is True and row["speed_bytes_per_second"] == 12_500_000_000 and row["reason"] is None


def test_broadcom_has_bytes_and_no_counters_folder(tree: KernelTree) -> None:
    port(tree, "bnxt_re0", {
        "hw_counters/rx_bytes": 1000, "hw_counters/tx_bytes": 250, "hw_counters/rx_pkts": 7, "hw_counters/tx_pkts": 8,
        "hw_counters/rx_roce_errors": 1, "hw_counters/tx_roce_errors": 2, "hw_counters/rx_roce_discards": 3,
        "hw_counters/tx_roce_discards": 4, "hw_counters/to_retransmits": 5, "hw_counters/rx_ecn_marked_pkts": 6,
        "hw_counters/rx_cnp_pkts": 9,
    })  # fmt: skip
    row = read(tree)["bnxt_re0/1"]
    assert row["kind"] == "roce" and (row["rx_bytes"], row["tx_bytes"]) == (1000, 250)
    assert (row["rx_dropped"], row["tx_dropped"], row["num_discards"]) == (3, 4, 7)
    assert (row["num_retransmits"], row["num_congestion"]) == (5, 15)
    assert row["tx_wait"] is None and row["reason"] == {"tx_wait": "the driver has no such counter"}


@pytest.mark.parametrize("place", ["ports/1/hw_counters", "hw_counters"])  # newer and older kernels
def test_irdma_counts_octets_by_ip_version(tree: KernelTree, place: str) -> None:
    port(tree, "irdma0", {})
    counts = {"ip4InOctets": 600, "ip6InOctets": 400, "ip4OutOctets": 200, "ip6OutOctets": 50, "ip4InPkts": 3,
              "ip6InPkts": 4, "ip4OutPkts": 5, "ip6OutPkts": 3, "tcpRetransSegs": 9, "cnpHandled": 2}  # fmt: skip
    tree.sys({f"class/infiniband/irdma0/{place}/{name}": value for name, value in counts.items()})
    row = read(tree)["irdma0/1"]
    assert (row["rx_bytes"], row["tx_bytes"], row["rx_packets"], row["tx_packets"]) == (1000, 250, 7, 8)
    assert (row["num_retransmits"], row["num_congestion"]) == (9, 2)
    assert row["rx_errors"] is None and row["reason"]["rx_errors"] == "the driver has no such counter"


def test_no_performance_management_agent(tree: KernelTree) -> None:
    names = ("port_rcv_data", "port_xmit_data", "port_rcv_packets", "port_xmit_packets", "port_xmit_wait")
    port(tree, "hfi1_0", {f"counters/{name}": "N/A (no PMA)" for name in names}, layer="InfiniBand")
    row = read(tree)["hfi1_0/1"]
    for column in ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets", "tx_wait"):
        assert row[column] is None and row["reason"][column] == "the driver says 'N/A (no PMA)'"
    assert row["is_up"] is True


def test_no_agent_but_other_files_that_say_it(tree: KernelTree) -> None:
    port(tree, "odd0", {"counters/port_rcv_data": "N/A (no PMA)", "hw_counters/rx_bytes": 77})
    assert read(tree)["odd0/1"]["rx_bytes"] == 77


def test_no_rdma_at_all_and_empty_devices(tree: KernelTree) -> None:
    assert read(tree) == {}
    tree.sys({"class/infiniband/empty0/node_type": "1: CA"})
    assert read(tree) == {}


def test_a_port_that_is_down_and_one_that_says_nothing(tree: KernelTree) -> None:
    port(tree, "mlx5_1", {"state": "1: DOWN", "counters/port_rcv_data": 1, "counters/port_xmit_data": 2})
    tree.sys({"class/infiniband/mute0/ports/2/cap_mask": 0})
    rows = read(tree)
    assert rows["mlx5_1/1"]["is_up"] is False and rows["mlx5_1/1"]["rx_bytes"] == 4
    mute = rows["mute0/2"]
    assert mute["is_up"] is None and mute["rx_bytes"] is None and mute["speed_bytes_per_second"] is None
    assert mute["reason"]["is_up"] == "the kernel has no such file"
