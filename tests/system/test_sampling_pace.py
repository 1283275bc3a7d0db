"""Long steps: the samplers of a real job's agent read once per step of the slowest rank, no more often."""

import json
from itertools import pairwise
from typing import Any

import pytest

from rankscope.cli import main

pytestmark = pytest.mark.system

STEP_SECONDS, NUM_STEPS, NUM_KNOWN = 1.5, 8, 3

JOB = f"""
import time
import torch, torch.distributed as dist
import rankscope, rankscope.auto

dist.init_process_group("gloo")
for step in range({NUM_STEPS}):
    time.sleep({STEP_SECONDS})
    dist.barrier()
    rankscope.step()
dist.destroy_process_group()
"""


def test_long_steps_are_sampled_once_each(torchrun: Any, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"RANKSCOPE_AGENT": "now", "RANKSCOPE_HOOKS": "steps,host"}
    job = torchrun(JOB, 2, env=settings).check()
    job.settle()
    begin = f"(SELECT max(end_ns) + 2500000000 FROM step WHERE step = {NUM_KNOWN - 1})"
    sql = f"SELECT DISTINCT time_ns FROM host_sample WHERE time_ns > {begin} ORDER BY 1"
    assert main.run(["query", str(job.run_dir), sql, "--json"]) == 0
    times = [time_ns for (time_ns,) in json.loads(capsys.readouterr().out)["rows"]][:-1]  # the last: at the end
    assert len(times) >= 2, times
    assert min(after - before for before, after in pairwise(times)) >= 0.95e9 * STEP_SECONDS, times
