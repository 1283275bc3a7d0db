"""Readings of a host: shares between two readings by hand, what kernels do not say, and this very machine."""

import os
import time
from pathlib import Path

import pytest
from kernel_tree import KernelTree

from rankscope.hooks.host import make
from rankscope.hooks.sampling import Surroundings
from rankscope.schema.arrow import rows_to_table
from rankscope.schema.errors import HookUnavailable
from rankscope.schema.tables import TABLES

DISK = "254 0 vda 10 0 100 50 20 0 200 70 0 0 0 0 0 0 0"
PART = "254 1 vda1 10 0 100 50 20 0 200 70 0 0 0 0 0 0 0"
STACKED = "253 0 dm-0 10 0 100 50 20 0 200 70 0 0 0 0 0 0 0"


def stat(both: str, first: str, second: str, switches: int) -> str:
    return f"cpu {both}\ncpu0 {first}\ncpu1 {second}\nctxt {switches}"


@pytest.fixture
def tree(tmp_path: Path) -> KernelTree:
    made = KernelTree(tmp_path)
    made.own({
        "stat": stat("100 0 100 700 100 0 0 0 0 0", "50 0 50 400 0 0 0 0 0 0", "50 0 50 300 100 0 0 0 0 0", 77),
        "meminfo": "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  400 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB",
        "vmstat": "pgfault 9\npgmajfault 3", "loadavg": "1.50 1 1 1/2 3", "diskstats": f"{DISK}\n{PART}\n{STACKED}",
        "pressure/cpu": "some avg10=25.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0 avg300=0 total=0",
        "pressure/memory": "some avg10=0.00 avg60=0 avg300=0 total=0",
    })  # fmt: skip
    made.sys({"block/vda/size": 1, "block/dm-0/size": 1})
    return made


def test_two_readings(tree: KernelTree) -> None:
    sampler = make(tree.surroundings)
    (first,) = sampler.sample(0)["host_sample"]
    assert first.get("cpu_utilisation_ratio") is None and "two readings" in first["reason"]["cpu_utilisation_ratio"]
    later = stat("140 10 110 760 120 0 0 60 0 0", "90 10 60 410 0 0 0 0 0 0", "50 0 50 350 120 0 0 60 0 0", 99)
    tree.own({"stat": later})
    (row,) = sampler.sample(1)["host_sample"]
    # busy +40 +10 +10 +60 (stolen) = 120 of 200; core 0: 60 of 70; core 1: 60 of 130
    assert row["cpu_utilisation_ratio"] == pytest.approx(120 / 200) and row["iowait_ratio"] == pytest.approx(20 / 200)
    assert row["cpu_core_utilisation_ratio"] == pytest.approx([60 / 70, 60 / 130])
    assert (row["memory_used_bytes"], row["memory_limit_bytes"], row["swap_used_bytes"]) == (
        600 * 1024, 1000 * 1024, 30 * 1024,
    )  # fmt: skip
    assert (row["disk_read_bytes"], row["disk_write_bytes"]) == (100 * 512, 200 * 512)  # the disk, once
    assert (row["num_page_faults"], row["num_context_switches"], row["load_1m"]) == (3, 99, 1.5)
    assert (row["cpu_pressure_ratio"], row["memory_pressure_ratio"], row["io_pressure_ratio"]) == (0.25, 0.0, None)
    assert set(row["reason"]) == {"cpu_limit_cores", "io_pressure_ratio"}
    assert rows_to_table("host_sample", [first, row]).num_rows == 2


def test_a_kernel_that_says_little(tmp_path: Path) -> None:
    tree = KernelTree(tmp_path)
    tree.own({"stat": "intr 1"})
    sampler = make(tree.surroundings)
    sampler.sample(0)
    (row,) = sampler.sample(1)["host_sample"]
    columns = set(TABLES["host_sample"].names) - {"node", "time_ns", "reason"}
    assert {name for name in columns if row.get(name) is not None} == set() and set(row["reason"]) == columns


def test_nothing_at_all(tmp_path: Path) -> None:
    with pytest.raises(HookUnavailable):
        make(KernelTree(tmp_path).surroundings)


def test_this_machine() -> None:
    sampler = make(Surroundings("here", Path("/sys"), Path("/proc"), tuple))
    sampler.sample(time.monotonic_ns())
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    (row,) = sampler.sample(time.monotonic_ns())["host_sample"]
    assert row["cpu_utilisation_ratio"] > 0 and 0 < row["memory_used_bytes"] <= row["memory_limit_bytes"]
    assert row["memory_limit_bytes"] <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
