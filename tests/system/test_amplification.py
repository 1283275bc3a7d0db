"""What two nodes send for the collectives of four ranks, against what they must: over a real veth pair.

Gloo reduces in a ring in the order of the ranks. With ranks 0 and 1 on one node and 2 and 3 on the other a node sends
once round the ring, 1.5 S, where S would do; with the ranks dealt out alternately it sends 3 S.
"""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest
from linked_nodes import Wire, limit_rate, start_rank, two_nodes

from rankscope.cli import main

SIZE_BYTES = 8_000_000
NUM_STEPS = 6
JOB = f"""
import glob, os, time
import rankscope, rankscope.auto, torch
import torch.distributed as dist

dist.init_process_group("gloo")
data = torch.ones({SIZE_BYTES} // 4)
patience = time.monotonic() + 60
while len(glob.glob(os.environ["RANKSCOPE_DIR"] + "/live/*/nic_sample*.arrows")) < 2:  # both agents are at work
    assert time.monotonic() < patience, "no agent samples"
    time.sleep(0.05)
dist.barrier()
for step in range({NUM_STEPS}):
    dist.all_reduce(data)
    rankscope.step()
time.sleep(0.8)  # one more reading on both nodes
dist.destroy_process_group()
"""


@pytest.fixture
def wire() -> Iterator[Wire]:
    with two_nodes() as found:
        yield found


def run_job(jobs: Any, wire: Wire, node_of: tuple[int, ...]) -> str:
    """The run directory of four ranks on two nodes."""
    place = jobs.place()
    script, local = str(jobs.script(JOB, place)), str(place / "local")
    commands = [start_rank(wire, node, script, local, rank, len(node_of), node_of[:rank].count(node))
                for rank, node in enumerate(node_of)]  # fmt: skip
    started = " & ".join(commands) + " & status=0; for job in $(jobs -p); do wait $job || status=1; done; exit $status"
    settings = {"RANKSCOPE_AGENT": "now", "RANKSCOPE_SAMPLE_SECONDS": "0.1"}
    ran = jobs.run(["bash", "-c", started], place, settings, 110).check()
    for node in (0, 1):
        dataclasses.replace(ran, local_dir=place / f"local{node}").settle()
    return str(ran.run_dir)


def ratios(run: str, capsys: pytest.CaptureFixture[str]) -> dict[tuple[str, str], float]:
    """network.amplification by node and bound."""
    assert main.run(["collectives", run, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["measurements"]
    expected = {item["scope"]["bound"]: item["value"] for item in found if item["name"] == "network.expected"}
    assert NUM_STEPS * SIZE_BYTES <= expected["least"] <= 1.01 * NUM_STEPS * SIZE_BYTES
    assert expected["ring"] == pytest.approx(1.5 * expected["least"])
    return {(item["scope"]["node"], item["scope"]["bound"]): item["value"] for item in found
            if item["name"] == "network.amplification"}  # fmt: skip


@pytest.mark.system
@pytest.mark.parametrize(
    ("node_of", "rings"), [((0, 0, 1, 1), 1), pytest.param((0, 1, 0, 1), 2, marks=pytest.mark.slow)]
)
def test_a_ring_sends_what_a_ring_must(
    node_of: tuple[int, ...], rings: int, jobs: Any, wire: Wire, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_job(jobs, wire, node_of)
    found = ratios(run, capsys)
    assert len(found) == 4
    for (_, bound), value in found.items():
        ring = rings * (1.5 if bound == "least" else 1.0)
        assert ring * 0.97 <= value <= ring * 1.12, found
    assert main.run(["collectives", run]) == 0
    text = capsys.readouterr().out
    assert "times what its" in text and "must send" in text and all(space in text for space in wire.spaces)


RATE_MEGABITS = 160
SLOW_JOB = f"""
import rankscope, rankscope.auto, torch
import torch.distributed as dist

dist.init_process_group("gloo")
data = torch.ones({SIZE_BYTES} // 4)
for step in range(4):
    dist.all_reduce(data)
    rankscope.step()
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.system
def test_bus_bandwidth_is_that_of_the_wire(jobs: Any, wire: Wire, capsys: pytest.CaptureFixture[str]) -> None:
    """Two ranks, one a node, over a wire of 20 MB/s each way: gloo fills most of it, and nothing can exceed it."""
    for space, interface in zip(wire.spaces, wire.interfaces, strict=True):
        limit_rate(space, interface, RATE_MEGABITS)
    place = jobs.place()
    script, local = str(jobs.script(SLOW_JOB, place)), str(place / "local")
    commands = [start_rank(wire, rank, script, local, rank, 2, 0) for rank in (0, 1)]
    both = f"{commands[0]} & first=$!; {commands[1]}; second=$?; wait $first && exit $second"
    ran = jobs.run(["sh", "-c", both], place, {}, 110).check()
    for node in (0, 1):
        dataclasses.replace(ran, local_dir=place / f"local{node}").settle()
    assert main.run(["collectives", str(ran.run_dir), "--json"]) == 0
    found = {item["scope"]["statistic"]: item["value"] for item in json.loads(capsys.readouterr().out)["measurements"]
             if item["name"] == "collective.busbw"}  # fmt: skip
    wire_bytes = RATE_MEGABITS * 125_000
    assert 0.65 * wire_bytes <= found["p50"] <= 1.05 * wire_bytes
