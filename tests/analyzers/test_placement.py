"""Which mesh dimension's groups cross which link, on made-up topologies."""

import json
from pathlib import Path
from typing import Any

import pytest
from run_builder import MS, RunBuilder, proc_of

from rankscope.analyzers.collectives import collectives
from rankscope.analyzers.placement import Crossing
from rankscope.analyzers.run import Run

S = 8_000_000


def bus_id(rank: int) -> str:
    return f"0000:{rank:02x}:00.0"


def built(root: Path, ranks: list[dict[str, Any]], groups: dict[str, list[int]]) -> tuple[Crossing, ...]:
    """ranks: node, numa, peers (bus ids); without peers no device. One all_reduce of S in each group."""
    build = RunBuilder(root, world_size=len(ranks))
    for rank in range(len(ranks)):
        build.step(rank, 1, 0, 100)
    for number, (dimension, members) in enumerate(groups.items()):
        for late, rank in enumerate(members):
            build.collective(rank, 0, late, (late, 10), 10, group_id=f"g{number}", bytes_in=S, bytes_out=S)
        build.group(f"g{number}", members, dimension.partition(" ")[0])
    for rank, told in enumerate(ranks):
        device = f"GPU-{rank}" if "peers" in told else None
        build.add("process", proc=proc_of(rank), rank=rank, node=told["node"], boot_id=told["node"], incarnation=0,
                  device_uuid=device, numa_nodes=[told.get("numa", 0)], exit_kind="clean",
                  num_records=build.records[proc_of(rank)], num_dropped=0)  # fmt: skip
        if device:
            build.add("device", device_uuid=device, node=told["node"], pci_bus_id=bus_id(rank),
                      numa_node=told.get("numa"), nvlink_peers=json.dumps(told["peers"]))  # fmt: skip
    build.add("run", run_id="run-1", world_size=len(ranks))
    with Run.open(str(build.seal())) as run:
        return collectives(run, 1.0).placement


def links(found: tuple[Crossing, ...]) -> dict[str, str]:
    return {item.group_kind: item.link for item in found}


def nvlinked(*others: int, node: str = "a", numa: int = 0) -> dict[str, Any]:
    return {"node": node, "numa": numa, "peers": {bus_id(rank): 2 for rank in others}}


def test_nvlink_inside_and_the_network_between(tmp_path: Path) -> None:
    ranks = [nvlinked(1), nvlinked(0), nvlinked(3, node="b"), nvlinked(2, node="b")]
    found = built(tmp_path / "run", ranks, {"tp": [0, 1], "dp": [1, 2]})
    assert links(found) == {"tp": "NVLink", "dp": "network"}


def test_through_a_switch(tmp_path: Path) -> None:
    switched = {"node": "a", "peers": {"0000:f0:00.0": 18}}
    assert links(built(tmp_path / "run", [switched] * 4, {"tp": [0, 1, 2, 3]})) == {"tp": "NVLink"}


def test_only_some_pairs_have_a_link(tmp_path: Path) -> None:
    """A chain 0 - 1 - 2: what goes from 0 to 2 needs PCIe; GPU 1 is no switch."""
    ranks = [nvlinked(1), nvlinked(0, 2), nvlinked(1)]
    assert links(built(tmp_path / "run", ranks, {"tp": [0, 1, 2]})) == {"tp": "PCIe"}


def test_across_numa_nodes(tmp_path: Path) -> None:
    ranks = [nvlinked(), nvlinked(numa=1), nvlinked(numa=1)]
    found = built(tmp_path / "run", ranks, {"tp": [0, 1], "pp": [1, 2]})
    assert links(found) == {"tp": "PCIe, across NUMA nodes", "pp": "PCIe"}


def test_without_devices(tmp_path: Path) -> None:
    ranks: list[dict[str, Any]] = [{"node": "a", "numa": 0}, {"node": "a", "numa": 0}, {"node": "a", "numa": 1}]
    found = built(tmp_path / "run", ranks, {"tp": [0, 1], "dp": [1, 2]})
    assert links(found) == {"tp": "host memory", "dp": "host memory, across NUMA nodes"}


def test_imported_ranks_tell_no_place(tmp_path: Path) -> None:
    ranks = [{"node": "imported"}, {"node": "imported"}]
    assert links(built(tmp_path / "run", ranks, {"tp": [0, 1]})) == {"tp": "not known"}


def test_bytes_times_bandwidth_and_share(tmp_path: Path) -> None:
    """Two groups of one dimension, one of another. Of each the first rank waits 10 ms, the second 9."""
    ranks: list[dict[str, Any]] = [{"node": "a"}] * 4
    found = built(tmp_path / "run", ranks, {"tp [0]": [0, 1], "tp [1]": [2, 3], "dp": [1, 2]})
    [tp] = [item for item in found if item.group_kind == "tp"]
    assert (tp.num_groups, tp.num_operations, tp.bytes.value, tp.transfer.value) == (2, 2, 2 * S, 18 * MS)
    assert tp.busbw.value == S * 1000 // 9  # two ranks: busbw is algbw
    # rank 1 waits 9 ms for its tp group and 10 for its dp group, at once: an instant is one operation's
    total = sum(float(item.exposed_share.value or 0) for item in found)
    assert total == pytest.approx(1) and tp.exposed_share.value is not None
