"""Shadow steps of a real job: no rows of collectives in them on any rank, the numbers go on, the report compares."""

import json
import re
from typing import Any

import pytest

from rankscope.cli import main

pytestmark = pytest.mark.system

NUM_STEPS, ONE_IN = 60, 3

JOB = f"""
import torch, torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import rankscope.auto

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
tensor, peer = torch.ones(3), 1 - dist.get_rank()
for step in range({NUM_STEPS}):
    with torch.no_grad():
        model.module(torch.ones(2, 4))  # a teacher in every step: no step is an evaluation
    model(torch.ones(2, 4)).sum().backward()
    dist.all_reduce(tensor)
    dist.barrier()
    funcol.wait_tensor(funcol.all_reduce(torch.ones(3), "sum", dist.group.WORLD))
    if dist.get_rank():
        dist.send(tensor, 0)
    else:
        dist.recv(tensor, 1)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""

PER_STEP = ["all_reduce", "all_reduce", "all_reduce", "barrier"]


def test_shadow_steps_have_no_rows_and_numbers_go_on(
    torchrun: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = torchrun(JOB, 2, env={"RANKSCOPE_CALIBRATE": str(ONE_IN)}).check()
    job.settle()

    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(job.local_dir))
    monkeypatch.setenv("COLUMNS", "160")

    def rankscope(*arguments: str) -> str:
        assert main.run(list(arguments)) == 0
        return capsys.readouterr().out

    def rows(sql: str) -> list[list[Any]]:
        found: list[list[Any]] = json.loads(rankscope("query", str(job.run_dir), sql, "--json"))["rows"]
        return found

    shadow = [step for step in range(2, NUM_STEPS) if step % ONE_IN == ONE_IN - 1]
    for rank in (0, 1):
        left_out = dict(rows(f"SELECT step, left_out FROM step WHERE rank = {rank}"))
        assert sorted(left_out) == list(range(NUM_STEPS))
        assert [step for step in sorted(left_out) if left_out[step] == "shadow"] == shadow
        assert {why for step, why in left_out.items() if step not in shadow} == {None, "warmup"}
        found = rows(f"SELECT step, list(op ORDER BY seq), min(seq), max(seq) FROM collective WHERE rank = {rank} "
                     "AND op NOT IN ('send', 'recv') AND step BETWEEN 3 AND 58 GROUP BY 1 ORDER BY 1")  # fmt: skip
        assert [step for step, *_ in found] == [step for step in range(3, 59) if step not in shadow]
        starts = [low - len(PER_STEP) * step for step, _, low, _ in found]
        assert len(set(starts)) == 1 and all(high - low == len(PER_STEP) - 1 for _, _, low, high in found)
        assert all(sorted(ops) == PER_STEP for _, ops, _, _ in found)
        transfers = rows(f"SELECT step, seq FROM collective WHERE rank = {rank} AND op IN ('send', 'recv') ORDER BY 1")
        assert transfers == [[step, step] for step in range(NUM_STEPS) if step not in shadow]
        hot = "kind IN ('forward', 'eval', 'backward', 'optimizer')"  # a pause of the collector is told at any time
        steps = {step for (step,) in rows(f"SELECT step FROM span WHERE rank = {rank} AND {hot}")}
        assert steps == set(range(NUM_STEPS)) - set(shadow)
    text = " ".join(rankscope("report", str(job.run_dir)).split())
    assert re.search(rf"by shadow steps .*interval .* {len(shadow)} shadow steps\); a second opinion", text)
    found = json.loads(rankscope("report", str(job.run_dir), "--json"))["measurements"]
    (told,) = [item for item in found if item["name"] == "capture.shadow_overhead"]
    low, high = told["interval"]["low"], told["interval"]["high"]
    assert told["n"] == len(shadow) and (told["value"] is None) == (low <= 0 <= high)
