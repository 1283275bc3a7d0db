"""A real slow link: four nodes on a bridge, one of which sends at a fraction of the others' rate."""

import dataclasses
import json
from typing import Any

import pytest
from linked_nodes import bridged_nodes, limit_rate, start_rank

from rankscope.cli import main

JOB = """
import rankscope, rankscope.auto, torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
data = torch.ones(250_000)
for step in range(40):
    dist.all_reduce(data, group=mesh.get_group("tp"))
    dist.all_reduce(data, group=mesh.get_group("dp"))
    rankscope.step()
dist.destroy_process_group()
"""


def report_of(jobs: Any, slow_node: int | None, capsys: pytest.CaptureFixture[str]) -> tuple[Any, tuple[str, ...]]:
    """The report of the job, and the names of its nodes."""
    with bridged_nodes(4) as wire:
        if slow_node is not None:
            limit_rate(wire.spaces[slow_node], wire.interfaces[slow_node], 200)
        place = jobs.place()
        script, local = str(jobs.script(JOB, place)), str(place / "local")
        commands = [start_rank(wire, rank, script, local, rank, 4, 0) for rank in range(4)]
        started = " & ".join(commands) + " & status=0; for job in $(jobs -p); do wait $job || status=1; done; "
        ran = jobs.run(["bash", "-c", f"{started} exit $status"], place, {"RANKSCOPE_AGENT": "now"}, 110).check()
        for node in range(4):
            dataclasses.replace(ran, local_dir=place / f"local{node}").settle()
    assert main.run(["report", str(ran.run_dir), "--json"]) == 0
    return json.loads(capsys.readouterr().out), wire.spaces


@pytest.mark.system
def test_the_node_with_the_slow_link_is_named(jobs: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found, nodes = report_of(jobs, 3, capsys)
    [verdict] = [item for item in found["verdicts"] if item["kind"] == "slow_link"]
    assert verdict["ranks"] == [3] and verdict["confidence"] > 0.8
    assert f"transfers of node {nodes[3]}" in verdict["text"] and " of 39 counted steps" in verdict["text"]
    [slowdown] = [item for item in found["measurements"] if item["name"] == "placement.slowdown"]
    assert slowdown["value"] > 2 and slowdown["scope"]["ranks"] == "3"
    assert any(line["text"].startswith("Slow link: ") for line in found["headlines"])


@pytest.mark.system
@pytest.mark.slow
def test_of_four_equal_nodes_none_is(jobs: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found, _ = report_of(jobs, None, capsys)
    assert [item for item in found["verdicts"] if item["kind"] == "slow_link"] == []
