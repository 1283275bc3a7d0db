"""A process that takes one rank's CPU is seen on that rank, and only there: a real job, a real hog beside rank 0."""

import json
import os

import pytest

from rankscope.cli import main

JOB = """
import os, subprocess, sys
rank = int(os.environ["LOCAL_RANK"])
cpus = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cpus[rank]})
own, group = "/proc/self/autogroup", int(os.environ["NICENESS"])
try:  # what else this machine does is not to look like the hog
    os.setpriority(os.PRIO_PROCESS, 0, group)
    with open(own, "w") as file:
        file.write(str(group))
except OSError:
    pass

import glob, time
import rankscope, torch
import torch.distributed as dist

rankscope.attach(hooks="-mounts")

dist.init_process_group("gloo")
patience = time.monotonic() + 60
while not glob.glob(os.environ["RANKSCOPE_DIR"] + "/live/*/process_sample*.arrows"):
    assert time.monotonic() < patience, "no agent samples"
    time.sleep(0.05)
dist.barrier()
hog = None
if rank == 0:  # in this rank's own session, so that it competes with it evenly; it inherits the CPU
    hog = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
try:
    data = torch.ones(100_000)
    until = time.monotonic() + 6
    is_over = torch.zeros(1)
    while not is_over.item():
        spent = time.thread_time() + 0.05
        while time.thread_time() < spent:
            data.mul_(1.0)
        is_over[0] = time.monotonic() > until
        dist.all_reduce(is_over, dist.ReduceOp.MAX)
        rankscope.step()
finally:
    if hog is not None:
        hog.kill()
        hog.wait()
dist.destroy_process_group()
"""


@pytest.mark.system
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="with one CPU a hog is beside every rank")
def test_a_hog_beside_one_rank(torchrun, capsys: pytest.CaptureFixture[str]) -> None:
    ran = torchrun(
        JOB, 2, env={"RANKSCOPE_AGENT": "now", "RANKSCOPE_SAMPLE_SECONDS": "0.5", "NICENESS": "-19"}
    ).check()  # fmt: skip
    ran.settle()
    assert main.run(["report", str(ran.run_dir), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["measurements"]
    wait = {item["scope"]["rank"]: item["value"] for item in found if item["name"] == "process.run_queue_wait"}
    assert main.run(["report", str(ran.run_dir)]) == 0
    text = capsys.readouterr().out
    assert set(wait) == {0, 1} and wait[0] > 0.2 and wait[0] > 3 * wait[1], wait
    assert "Storage" not in text and "Hosts" in text  # the agent keeps to what the ranks switched off
    assert "Rank 0 had to wait for a CPU" in text and "CPU by rank" in text, text
