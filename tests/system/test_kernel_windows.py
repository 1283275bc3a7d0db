"""Kernel windows of a live job: operators of the chosen steps on both ranks, and the job's own profiler undisturbed."""

import json
from pathlib import Path
from typing import Any

from rankscope.analyzers.run import Run

JOB = """
import json, os, sys
import rankscope.auto
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(16, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
own = None
for step in range(14):
    if step == 9 and dist.get_rank() == 0:  # while a window is open (steps 8 and 9)
        own = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
        own.__enter__()
    optimizer.zero_grad()
    model(torch.ones(4, 16)).sum().backward()
    optimizer.step()
    if step == 10 and own is not None:
        own.__exit__(None, None, None)
        with open("own.json", "w") as file:
            json.dump([event.key for event in own.key_averages()], file)
dist.barrier()
dist.destroy_process_group()
"""


def test_operators_of_the_chosen_steps(torchrun: Any) -> None:
    job = torchrun(JOB, 2, env={"RANKSCOPE_KERNELS": "4:2", "RANKSCOPE_AGENT": "now"}).check()
    job.settle()
    with Run.open(str(job.run_dir)) as run:
        steps: dict[int, list[int]] = dict(
            run.rows("SELECT rank, list_sort(list(DISTINCT step)) FROM kernel WHERE step IS NOT NULL GROUP BY 1")
        )
        names = {row[0] for row in run.rows("SELECT DISTINCT name FROM kernel WHERE category = 'cpu_op'")}
        [(num, distinct)] = run.rows("SELECT count(*), count(DISTINCT (proc, record)) FROM kernel")
        [(outside,)] = run.rows(
            "SELECT count(*) FROM kernel k JOIN step s USING (proc, incarnation, step) "
            "WHERE k.start_ns < s.start_ns - 20000000 OR k.end_ns > s.end_ns + 20000000"
        )
        [(communication,)] = run.rows("SELECT count(*) FROM kernel WHERE kernel_class = 'communication'")
    # rank 0 gave the window of steps 8 and 9 up for its own profiler; 12 and 13 are whole again
    assert steps == {0: [4, 5, 12, 13], 1: [4, 5, 8, 9, 12, 13]}
    assert {"aten::linear", "aten::addmm"} <= names
    assert num == distinct and outside == 0 and communication > 0
    place = Path(job.run_dir).parent
    assert "aten::linear" in json.loads((place / "own.json").read_text())
    assert not list(place.glob("rankscope-kernels-*"))  # the traces are gone


def test_without_the_setting_nothing_is_patched(torchrun: Any) -> None:
    job = torchrun("""
import rankscope.auto
import torch, torch.distributed as dist
from torch.autograd.profiler import profile
dist.init_process_group("gloo")
assert "kernel_windows" not in profile._prepare_trace.__module__
dist.destroy_process_group()
""", 1).check()  # fmt: skip
    assert job.returncode == 0
