"""The report's sections on network, hosts, CPU and storage: the whole text, and statements that re-derive numbers."""

import json
from pathlib import Path

import pytest
from command_line import Command
from run_builder import MS, NODE, RunBuilder, proc_of
from syrupy.assertion import SnapshotAssertion


@pytest.fixture
def run_dir(tmp_path: Path) -> str:
    """Two ranks, ten steps of 100 ms, a reading every 50 ms; rank 1 lacks a CPU for half of the time."""
    build = RunBuilder(tmp_path / "run")
    for step in range(10):
        for rank in (0, 1):
            build.step(rank, step, 100 * step, 100 * step + 100)
    for at in range(21):
        now = {"node": NODE, "time_ns": 50 * at * MS}
        build.add("nic_sample", 0, **now, nic="eth0", kind="ethernet", rx_bytes=10**6 * at, tx_bytes=3 * 10**6 * at,
                  rx_errors=at // 20, tx_errors=0, is_up=True, speed_bytes_per_second=125_000_000)  # fmt: skip
        build.add("nic_sample", 0, **now, nic="mlx5_0/1", kind="infiniband", is_up=False,
                  reason={"rx_bytes": "the driver says 'N/A (no PMA)'"})  # fmt: skip
        build.add("nic_sample", 0, **now, nic="ib1", kind="ethernet", rx_bytes=0, tx_bytes=0, is_up=True)
        build.add("host_sample", 0, **now, cpu_utilisation_ratio=0.5 if at else None, cpu_limit_cores=4.0,
                  memory_used_bytes=10**9 * (1 + at // 11), memory_limit_bytes=4 * 10**9, cpu_pressure_ratio=0.1,
                  memory_pressure_ratio=0.0, reason={"io_pressure_ratio": "no psi"})  # fmt: skip
        build.add("mount_sample", 0, **now, mount="/home", kind="nfs", read_bytes=10**5 * at, write_bytes=0,
                  num_operations=2 * at, latency_ns=2 * MS if at else None)  # fmt: skip
        for rank in (0, 1):
            build.add("process_sample", 0, proc=proc_of(rank), rank=rank, time_ns=50 * at * MS,
                      cpu_user_ns=25 * at * MS,
                      cpu_system_ns=0, run_queue_wait_ns=25 * at * MS * rank, num_involuntary_switches=at * rank,
                      num_major_faults=0, rss_bytes=3 * 10**8, read_bytes=None, write_bytes=4096)  # fmt: skip
    build.entities()
    return str(build.seal())


def test_the_sections(rankscope: Command, run_dir: str, snapshot: SnapshotAssertion) -> None:
    ran = rankscope("report", run_dir)
    assert (ran.status, ran.err) == (0, "")
    sections = ran.out[ran.out.index("\nNetwork\n") : ran.out.index("\nCapture quality\n")]
    assert sections == snapshot
    assert max(map(len, sections.splitlines())) <= 120
    assert "Rank 1 had to wait for a CPU" in ran.out and "eth0 of host-a-11111111 counted 1 error." in ran.out


def test_statements_rederive_their_values(rankscope: Command, run_dir: str) -> None:
    found = json.loads(rankscope("report", run_dir, "--json").out)["measurements"]
    column = {"network.step_bytes": "mean_rx", "host.memory_used": "most_memory", "storage.latency": "latency_ns",
              "network.bytes": "rx_bytes", "network.errors": "num_errors"}  # fmt: skip
    for name, wanted in column.items():
        item = next(item for item in found if item["name"] == name and item["value"] is not None)
        answer = json.loads(rankscope("query", run_dir, item["provenance"]["statement"], "--json").out)
        assert item["value"] in [row[answer["columns"].index(wanted)] for row in answer["rows"]], name
