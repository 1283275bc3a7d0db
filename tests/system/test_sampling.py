"""A real job seen from outside: a hog beside one rank, a limit of memory, an RDMA port whose counter moves.

A process that takes one rank's CPU is to be seen on that rank and only there. The hog and the CPUs are real; the memory
limit and the port are files below RANKSCOPE_SYSFS, which the job itself makes move.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from kernel_tree import write_files

from rankscope.analyzers.host import STANDS_OUT
from rankscope.cli import main

LIMIT_BYTES, USED_BYTES = 2_000_000_000, 1_500_000_000
PORT = "class/infiniband/mlx5_0/ports/1"

JOB = f"""
import os, subprocess, sys
rank = int(os.environ["LOCAL_RANK"])
cpus = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {{cpus[rank]}})
try:  # what else this machine does is not to look like the hog
    os.setpriority(os.PRIO_PROCESS, 0, -19)
    with open("/proc/self/autogroup", "w") as file:
        file.write("-19")
except OSError:
    pass

import glob, time
import rankscope, torch
import torch.distributed as dist

rankscope.attach(hooks="-mounts")
dist.init_process_group("gloo")
patience = time.monotonic() + 60
while len(glob.glob(os.environ["RANKSCOPE_DIR"] + "/live/*/[np]*_sample*.arrows")) < 2:
    assert time.monotonic() < patience, "no agent samples"
    time.sleep(0.05)
dist.barrier()
hog = None
if rank == 0:  # in this rank's own session, so that it competes with it evenly; it inherits the CPU
    hog = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
try:
    data, is_over, num_words = torch.ones(100_000), torch.zeros(1), 0
    until = time.monotonic() + 6
    while not is_over.item():
        spent = time.thread_time() + 0.05
        while time.thread_time() < spent:
            data.mul_(1.0)
        if rank == 0:
            num_words += 1000
            counter = os.environ["RANKSCOPE_SYSFS"] + "/{PORT}/counters/port_xmit_data"
            with open(counter + ".new", "w") as file:
                file.write(str(num_words))
            os.replace(counter + ".new", counter)
        is_over[0] = time.monotonic() > until
        dist.all_reduce(is_over, dist.ReduceOp.MAX)
        rankscope.step()
    time.sleep(1.5)  # one more reading
    os.write(1, b"words %d\\n" % num_words)  # one write: `print` under -u is four, and two ranks share the output
finally:
    if hog is not None:
        hog.kill()
        hog.wait()
dist.destroy_process_group()
"""


@pytest.mark.system
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="with one CPU a hog is beside every rank")
def test_a_job_seen_from_outside(torchrun: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sysfs = tmp_path / "sysfs"
    counters = {"port_rcv_data": 0, "port_xmit_data": 0, "port_xmit_wait": "N/A (no PMA)"}
    write_files(sysfs / PORT, {"state": "4: ACTIVE", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand"})
    write_files(sysfs / PORT / "counters", counters)
    write_files(sysfs / "fs/cgroup", {  # of both versions: which one is asked is the machine's affair
        "memory/memory.limit_in_bytes": LIMIT_BYTES, "memory/memory.usage_in_bytes": USED_BYTES,
        "cgroup.controllers": "memory", "memory.max": LIMIT_BYTES, "memory.current": USED_BYTES,
    })  # fmt: skip
    settings = {"RANKSCOPE_AGENT": "now", "RANKSCOPE_SAMPLE_SECONDS": "0.5", "RANKSCOPE_SYSFS": str(sysfs)}
    ran = torchrun(JOB, 2, env=settings).check()
    ran.settle()
    assert main.run(["report", str(ran.run_dir), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["measurements"]
    assert main.run(["report", str(ran.run_dir)]) == 0
    text = capsys.readouterr().out

    wait = {item["scope"]["rank"]: item["value"] for item in found if item["name"] == "process.run_queue_wait"}
    assert set(wait) == {0, 1} and wait[0] > 0.2 and wait[0] > STANDS_OUT * wait[1], wait
    assert "Rank 0 had to wait for a CPU" in text and "CPU by rank" in text, text

    (words,) = (
        int(line.split()[1]) for line in ran.stdout.splitlines() if line.startswith("words") and line[6:] != "0"
    )
    sent = [item["value"] for item in found if item["name"] == "network.bytes" and item["scope"]["direction"] == "sent"]
    assert sent == [4 * words] and "mlx5_0/1" in text and "50.0 GB/s" in text

    (memory,) = (item["value"] for item in found if item["name"] == "host.memory_share")
    assert memory == USED_BYTES / LIMIT_BYTES and "75.0 % of 2.00 GB" in text
    assert "Storage" not in text and "Hosts" in text  # the agent keeps to what the ranks switched off
