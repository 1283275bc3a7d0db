"""What two nodes send each other, found by the agents in the interfaces' counters, per step: over a real veth pair.

The nodes are network namespaces of this host with host names of their own; each has its own agent.
"""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

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


class Wire(NamedTuple):
    """Two network namespaces, joined by a veth pair: names of the namespaces, the interfaces, the first address."""

    spaces: tuple[str, str]
    interfaces: tuple[str, str]
    address: str


@pytest.fixture
def wire() -> Iterator[Wire]:
    """A pair of nodes; skips where network namespaces are not allowed."""
    number = os.getpid() % 60000
    spaces, interfaces = (f"rs{number}a", f"rs{number}b"), (f"rsa{number}", f"rsb{number}")
    subnet = f"10.{200 + number % 50}.{number // 250 % 250}"
    try:
        _ip("link", "add", interfaces[0], "type", "veth", "peer", "name", interfaces[1])
        for at, (space, interface) in enumerate(zip(spaces, interfaces, strict=True)):
            _ip("netns", "add", space)
            _ip("link", "set", interface, "netns", space)
            _ip("-n", space, "address", "add", f"{subnet}.{at + 1}/24", "dev", interface)
            _ip("-n", space, "link", "set", interface, "up")
            _ip("-n", space, "link", "set", "lo", "up")
    except (OSError, subprocess.CalledProcessError) as error:
        _remove(spaces, interfaces)
        pytest.skip(f"no network namespaces here: {getattr(error, 'stderr', b'') or error}")
    yield Wire(spaces, interfaces, f"{subnet}.1")
    _remove(spaces, interfaces)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=20)


def _remove(spaces: tuple[str, str], interfaces: tuple[str, str]) -> None:
    for command in (["link", "del", interfaces[0]], *(["netns", "del", space] for space in spaces)):
        subprocess.run(["ip", *command], check=False, capture_output=True, timeout=20)


def _start(wire: Wire, rank: int, script: str, local_dir: str) -> str:
    """A shell command that runs one rank on its node."""
    settings = f"RANK={rank} WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR={wire.address} MASTER_PORT=29500"
    own = f"GLOO_SOCKET_IFNAME={wire.interfaces[rank]} RANKSCOPE_LOCAL_DIR={local_dir}{rank}"
    named = f"hostname {wire.spaces[rank]}; exec env {settings} {own} {sys.executable} {script}"
    return f"ip netns exec {wire.spaces[rank]} unshare --uts sh -c '{named}'"


@pytest.mark.system
def test_bytes_sent_are_found_per_step(jobs: Any, wire: Wire, capsys: pytest.CaptureFixture[str]) -> None:
    place = jobs.place()
    script, local = str(jobs.script(JOB, place)), str(place / "local")
    commands = [_start(wire, rank, script, local) for rank in (0, 1)]
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
