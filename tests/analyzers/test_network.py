"""Bytes of interfaces against answers worked out by hand."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from run_builder import MS, NODE, RunBuilder

from rankscope.analyzers.network import Interface, network
from rankscope.analyzers.run import Run


def reading(build: RunBuilder, at: int, rx: int | None, tx: int | None, nic: str = "eth0", **more: Any) -> None:
    columns = {"node": NODE, "nic": nic, "kind": "ethernet", "time_ns": at * MS, "rx_bytes": rx, "tx_bytes": tx,
               "rx_errors": 0, "tx_errors": 0, "rx_dropped": 0, "tx_dropped": 0, "is_up": True}  # fmt: skip
    build.add("nic_sample", 0, **(columns | more))


def steps(build: RunBuilder, *edges: int) -> None:
    """Steps of both ranks between the edges, in ms, rank 1 a little later; the first one does not count."""
    for rank in (0, 1):
        for step, (start, end) in enumerate(pairwise(edges)):
            build.step(rank, step, start + rank, end + rank)


def found(build: RunBuilder) -> tuple[Interface, ...]:
    build.entities()
    with Run.open(str(build.seal())) as run:
        return network(run).interfaces


def by_step(interface: Interface) -> dict[tuple[str, str], Any]:
    return {(item.scope["direction"], item.scope["statistic"]): item.value for item in interface.step_bytes}


def test_bytes_are_shared_out_between_readings(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    steps(build, 0, 1000, 2000, 3000, 4000)
    for at, rx in ((500, 0), (1500, 1000), (2500, 1500), (3500, 1500)):
        reading(build, at, rx, 10 * rx)
    (interface,) = found(build)
    assert (interface.received.value, interface.sent.value, interface.longest_gap_ns) == (1500, 15_000, 1000 * MS)
    # step 1, 1000 to 2000 ms: half of 1000 and half of 500; step 2: half of 500 and nothing; step 3 ends after the
    # last reading and is not counted
    told = by_step(interface)
    assert interface.step_bytes[0].n == 2
    assert (told["received", "max"], told["received", "min"], told["received", "mean"]) == (750, 250, 500)
    assert told["sent", "max"] == 7500 and interface.errors.value == 0


def test_a_counter_that_falls_is_no_traffic(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for at, rx in ((0, 5000), (1, 5100), (2, 20), (3, 50)):
        reading(build, at, rx, rx)
    (interface,) = found(build)
    assert interface.received.value == 130
    assert "fell 1 times" in interface.received.provenance.caveats[-1]


def test_one_reading_and_counters_that_nobody_told(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    steps(build, 0, 1, 2)
    reading(build, 1, 7, 7)
    for at in range(3):
        reading(build, at, None, None, "mlx5_0/1", reason={"rx_bytes": "the driver says 'N/A (no PMA)'"})
    one, mute = found(build)
    assert one.nic == "eth0" and one.received.value is None and "only one reading" in one.received.reason
    assert mute.received.value is None and "no PMA" in mute.received.reason
    assert all(item.value is None and "no counted step" in item.reason for item in (*one.step_bytes, *mute.step_bytes))


def test_down_vanished_and_faulty(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    reading(build, 0, 100, 100, rx_errors=3, num_retransmits=5)
    reading(build, 10, 300, 100, rx_errors=5, tx_dropped=1, num_retransmits=9)
    build.add("nic_sample", 0, node=NODE, nic="eth0", kind="ethernet", time_ns=20 * MS, is_up=False,
              reason={"rx_bytes": "the interface is gone"})  # fmt: skip
    (interface,) = found(build)
    assert interface.is_up is False and interface.why == "the interface is gone"
    assert (interface.received.value, interface.errors.value, interface.num_drops, interface.num_retransmits) == (
        200, 2, 1, 4,
    )  # fmt: skip
    assert sum(interface.series) == 200 * 100  # 200 bytes in 10 ms


def test_several_nodes_and_no_sampler(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for at in (0, 1):
        reading(build, at, 100 * at, 0)
        reading(build, at, 900 * at, 0, "eth1")
    assert [item.nic for item in found(build)] == ["eth1", "eth0"]  # most bytes first
    empty = RunBuilder(tmp_path / "empty")
    steps(empty, 0, 1, 2)
    assert found(empty) == ()


@pytest.mark.parametrize("other_node, is_inside", [(NODE, True), ("other-1", False)])
def test_whether_ranks_sent_through_the_interfaces_at_all(tmp_path: Path, other_node: str, is_inside: bool) -> None:
    build = RunBuilder(tmp_path / "run")
    for at in (0, 1):
        reading(build, at, 0, 0)
    build.entities()
    build.rows["process", None][1]["node"] = other_node
    with Run.open(str(build.seal())) as run:
        assert network(run).is_inside is is_inside
