"""`rankscope collectives` on eight real ranks, against waits and skews worked out apart, and on a live job."""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from command_line import printed

on_real_traces = pytest.mark.skipif("RANKSCOPE_TEST_DATA" not in os.environ, reason="RANKSCOPE_TEST_DATA is not set")
DATA = Path(os.environ.get("RANKSCOPE_TEST_DATA", "")) / "kineto"
US = 1000
NUM_STEPS = 8
LATE_SECONDS = 0.06
ELEMENTS = 50_000
JOB = f"""
import time
import rankscope, rankscope.auto, torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
pair = dist.new_group([0, 1])
data = torch.ones({ELEMENTS})
for step in range({NUM_STEPS}):
    if rank == 2:
        time.sleep({LATE_SECONDS})
    dist.all_reduce(data)
    if rank == 1:
        time.sleep({LATE_SECONDS})
    dist.broadcast(data, 1)
    dist.reduce(data, 2)
    dist.gather(data, [torch.empty_like(data) for _ in range(size)] if rank == 0 else None, 0)
    dist.scatter(torch.empty_like(data), [data] * size if rank == 3 else None, 3)
    dist.all_gather([torch.empty_like(data) for _ in range(size)], data)
    dist.reduce_scatter(torch.empty_like(data), [data] * size)
    dist.all_to_all_single(torch.empty(400), torch.ones(400))
    if rank == 0:
        dist.send(data, 1)
    if rank == 1:
        dist.recv(data, 0)
    there, back = (rank + 1) % size, (rank - 1) % size
    ring = [dist.P2POp(dist.isend, data, there), dist.P2POp(dist.irecv, torch.empty_like(data), back)]
    for work in dist.batch_isend_irecv(ring):
        work.wait()
    if rank < 2:
        dist.all_reduce(data, group=pair)
    dist.barrier()
    rankscope.step()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def dlrm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("dlrm") / "run"
    printed("import", "kineto", str(DATA / "dlrm_v100_8ranks"), "-o", str(run))
    return run


@on_real_traces
def test_waits_and_skews_of_eight_ranks(dlrm: Path) -> None:
    answers = json.loads((DATA / "dlrm_v100_8ranks_collectives.json").read_text())
    found: dict[str, Any] = json.loads(printed("collectives", str(dlrm), "--json", "--operations", "all"))
    assert [item["seq"] for item in found["operations"]] == [int(answer["collective_id"]) for answer in answers]
    for operation, answer in zip(found["operations"], answers, strict=True):
        waits = {member["rank"]: member["wait_ns"] for member in operation["members"]}
        assert waits == {rank: US * answer[f"rank_{rank}_wait_time"] for rank in range(8)}
        starts = [member["arrival_ns"] for member in operation["members"]]
        assert max(starts) - min(starts) == US * answer["skew in start time"]
        assert operation["end_skew_ns"] == US * answer["skew in end time"]
        assert operation["wait_ns"] == 8 * US * answer["avg_wait_time"]
        assert waits[operation["last_rank"]] == 0  # the last one waits for nobody
        assert operation["timing_source"] == "device" and operation["size_bytes"] is operation["busbw"] is None
    caused = {item["scope"]["rank"]: item["value"] for item in found["measurements"]
              if item["name"] == "collective.wait_caused"}  # fmt: skip
    assert sum(caused.values()) == round(8 * US * sum(answer["avg_wait_time"] for answer in answers))


@on_real_traces
def test_what_people_see(dlrm: Path) -> None:
    text = printed("collectives", str(dlrm), "--operations", "1")
    assert "8 matched collectives 97 % is waiting" in text
    assert "all_to_all 0 in world, step 0: rank 7 last, transfer 10.0 µs, end skew 2.00 µs" in text
    lines = [line.split() for line in text.splitlines() if line.strip().startswith("rank ") and "waited" in line]
    assert [line[1] for line in lines[1:]] == ["7", "6", "2", "0", "5", "4", "3", "1"]


@on_real_traces
def test_traces_of_two_ranks_in_a_hundred_name_nobody_wrongly(tmp_path: Path) -> None:
    """Two of 128 ranks: what the numbers of their operations put together and does not end together is left out."""
    run = tmp_path / "run"
    printed("import", "kineto", str(DATA / "sampled_2_of_128"), "-o", str(run))
    found = json.loads(printed("collectives", str(run), "--json"))
    assert sum(item["num_operations"] for item in found["unmatched"]) > 0
    assert {item["reason"] for item in found["unmatched"]} == {
        "it seems to end before its last member came: its times contradict each other",
        "not every member left a row of it",
    }


@pytest.mark.system
def test_every_kind_of_operation_of_a_live_job_is_matched(torchrun: Any) -> None:
    """Rank 2 comes late to every all_reduce, rank 1, the root, to every broadcast; nothing is left unmatched."""
    ran = torchrun(JOB, 4).check()
    ran.settle()
    found: dict[str, Any] = json.loads(printed("collectives", str(ran.run_dir), "--json", "--operations", "all"))
    assert found["unmatched"] == []
    operations = found["operations"]
    by_op = Counter(item["op"] for item in operations)
    once = ("broadcast", "reduce", "gather", "scatter", "all_gather", "reduce_scatter", "all_to_all_single", "barrier")
    assert by_op == dict.fromkeys(once, NUM_STEPS) | {"all_reduce": 2 * NUM_STEPS, "send_recv": 5 * NUM_STEPS}
    world = [item for item in operations if item["group_kind"] == "world"]
    late = {op: [item for item in world if item["op"] == op] for op in ("all_reduce", "broadcast")}
    for item in late["all_reduce"]:
        assert item["size_bytes"] == 4 * ELEMENTS and item["wait_ns"] > 2 * LATE_SECONDS * 1e9
    assert Counter(item["last_rank"] for item in late["all_reduce"]).most_common(1)[0][0] == 2
    assert {item["last_rank"] for item in late["broadcast"]} == {1}
    sizes = {item["op"]: item["size_bytes"] for item in world}
    full = 4 * 4 * ELEMENTS
    assert [sizes[op] for op in ("all_gather", "reduce_scatter", "gather", "scatter")] == [full] * 4
    assert (sizes["send_recv"], sizes["all_to_all_single"], sizes["barrier"]) == (4 * ELEMENTS, 1600, 0)
    parts = [item["value"] for item in found["measurements"] if item["name"] == "placement.exposed_share"]
    assert sum(parts) == pytest.approx(1)
