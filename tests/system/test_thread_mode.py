"""Thread mode, where a rank outlives local rank 0 and with it the agent: another rank takes over and seals."""

from typing import Any

import pyarrow.parquet as parquet
import pytest
from busy import PATIENT_THREAD_AGENT

from rankscope.schema import paths

pytestmark = pytest.mark.system

NUM_STEPS = 5

JOB = f"""
import time
import torch, torch.distributed as dist
import rankscope, rankscope.auto

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range({NUM_STEPS}):
    dist.all_reduce(torch.ones(3))
    rankscope.step()
dist.destroy_process_group()
if rank == 1:
    time.sleep(LATER)
    rankscope.step()
"""


@pytest.mark.parametrize("later", [4, 9])
def test_a_rank_that_outlives_the_agent_seals(torchrun: Any, later: int) -> None:
    """At its exit (4 s: rank 0 waits for 2 s of them), and as an agent of its own (9 s: its watch looks every 3 s)."""
    job = torchrun(
        PATIENT_THREAD_AGENT + JOB.replace("LATER", str(later)), 2, env={"RANKSCOPE_AGENT": "thread"}
    ).check()
    job.settle()
    assert len(parquet.read_table(job.run_dir / "collective").to_pylist()) == 2 * NUM_STEPS
    assert len(parquet.read_table(job.run_dir / "step").to_pylist()) == 2 * NUM_STEPS + 1
    ends = {row["rank"]: row["exit_kind"] for row in parquet.read_table(job.run_dir / "process").to_pylist()}
    assert ends == {0: "clean", 1: "clean"}
    assert list(job.local_dir.rglob("*.journal")) == [] and not (job.run_dir / paths.LIVE).exists()
    assert list(paths.tmpfs_base().glob(f"{next(job.local_dir.glob('*/*')).name}/*.ring")) == []


def test_a_rank_that_ends_slowly_is_sealed_by_the_agent_that_it_found(torchrun: Any) -> None:
    """It sees that there is an agent, and leaves the sealing to it; what the user does at the exit takes 5 s more."""
    slow = "import atexit, os, time\nif os.environ['RANK'] == '1':\n    atexit.register(time.sleep, 5)\n"
    script = slow + PATIENT_THREAD_AGENT + JOB.replace("LATER", "0")
    job = torchrun(script, 2, env={"RANKSCOPE_AGENT": "thread"}).check()
    job.settle()
    assert len(parquet.read_table(job.run_dir / "step").to_pylist()) == 2 * NUM_STEPS + 1
    assert list(job.local_dir.rglob("*.journal")) == [] and not (job.run_dir / paths.LIVE).exists()
