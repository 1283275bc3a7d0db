"""What two nodes send each other, found by the agents in the interfaces' counters, per step: over a real veth pair.

The nodes are network namespaces of this host with host names of their own; each has its own agent.
"""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest
from linked_nodes import Wire, start_rank, two_nodes

from rankscope.cli import main

SENT_BYTES = 20_000_000
NUM_STEPS = 5
HEADER_RATIO = 66 / 1448
"""Ethernet, IP and TCP headers (14 + 20 + 32) over the payload of a full segment at MTU 1500; less where the kernel
passes larger segments through (a veth pair does)."""

JOB = f"""
import glob, os, time
import rankscope, rankscope.auto, torch
import torch.distributed as dist

dist.init_process_group("gloo")
data = torch.zeros({SENT_BYTES} // 4)
patience = time.monotonic() + 60
while len(glob.glob(os.environ["RANKSCOPE_DIR"] + "/live/*/nic_sample*.arrows")) < 2:  # both agents are at work
    assert time.monotonic() < patience, "no agent samples"
    time.sleep(0.05)
dist.barrier()
for step in range({NUM_STEPS} + 1):  # the first one does not count
    time.sleep(0.5)  # still on the wire: what readings cannot resolve is on neither side of a step's edge
    dist.send(data, 1) if dist.get_rank() == 0 else dist.recv(data, 0)
    time.sleep(0.5)
    rankscope.step()
time.sleep(0.5)
dist.destroy_process_group()
"""


@pytest.fixture
def wire() -> Iterator[Wire]:
    with two_nodes() as found:
        yield found


@pytest.mark.system
def test_bytes_sent_are_found_per_step(jobs: Any, wire: Wire, capsys: pytest.CaptureFixture[str]) -> None:
    place = jobs.place()
    script, local = str(jobs.script(JOB, place)), str(place / "local")
    commands = [start_rank(wire, rank, script, local, rank, 2, 0) for rank in (0, 1)]
    both = f"{commands[0]} & first=$!; {commands[1]}; second=$?; wait $first && exit $second"
    ran = jobs.run(
        ["sh", "-c", both], place, {"RANKSCOPE_AGENT": "now", "RANKSCOPE_SAMPLE_SECONDS": "0.1"}, 110
    ).check()  # fmt: skip
    for rank in (0, 1):
        dataclasses.replace(ran, local_dir=place / f"local{rank}").settle()
    assert main.run(["report", str(ran.run_dir), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["measurements"]
    for nic, direction in ((wire.interfaces[0], "sent"), (wire.interfaces[1], "received")):
        steps = {item["scope"]["statistic"]: item for item in found if item["name"] == "network.step_bytes"
                 and item["scope"]["nic"] == nic and item["scope"]["direction"] == direction}  # fmt: skip
        assert steps["mean"]["n"] == NUM_STEPS
        for statistic in ("min", "mean", "max"):
            assert 0.95 * SENT_BYTES <= steps[statistic]["value"] <= 1.05 * SENT_BYTES * (1 + HEADER_RATIO), statistic
    other = [item["value"] for item in found if item["name"] == "network.step_bytes"
             and item["scope"]["nic"] == wire.interfaces[0] and item["scope"]["direction"] == "received"]  # fmt: skip
    assert len(other) == 3 and max(other) < 0.05 * SENT_BYTES  # only acknowledgements come back
    assert main.run(["report", str(ran.run_dir)]) == 0
    text = capsys.readouterr().out
    assert "Network" in text and all(nic in text for nic in wire.interfaces)
