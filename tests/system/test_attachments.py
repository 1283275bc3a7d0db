"""Attached again and again, each time to another run, and read from within: no rank of any attachment is lost.

The agent looks at the launch folder every 0.8 s. Jobs hold still for two such looks at the moments in which a living
process could be taken for a dead one: whoever is taken for dead is drained once, and its files are deleted.
"""

from typing import Any

import pytest

from rankscope.analyzers.run import Run

pytestmark = [pytest.mark.system, pytest.mark.timeout(400)]

NUM_STEPS = 3
START = f"""
import os, sys, time
import torch, torch.distributed as dist
import rankscope
from rankscope.schema import paths
from rankscope.schema.liveness import is_alive

TWO_LOOKS = 2.0

def until_there_is_an_agent():
    (lock,) = paths.local_base().glob("*/" + paths.AGENT_LOCK)
    while not is_alive(str(lock)):
        time.sleep(0.02)

def train():
    for _ in range({NUM_STEPS}):
        dist.all_reduce(torch.ones(4))
        rankscope.step()

run_dir = os.environ.pop("RANKSCOPE_DIR")
dist.init_process_group("gloo")
"""
AGAIN = (
    START
    + """
rankscope.attach(run_dir=run_dir + "0", agent="now")
train()
dist.barrier()  # both have begun: there is a folder
until_there_is_an_agent()
rankscope.detach()

from rankscope.tracer import ring_file
create = ring_file.create

def slow(*arguments):
    time.sleep(TWO_LOOKS)
    return create(*arguments)

ring_file.create = slow
rankscope.attach(run_dir=run_dir + "1", agent="now")
train()
rankscope.detach()
dist.barrier()
dist.destroy_process_group()
"""
)
READ_FROM_WITHIN = (
    START
    + """
from rankscope.analyzers.run import Run

rankscope.attach(run_dir=run_dir + "0", agent="now")
train()
dist.barrier()
until_there_is_an_agent()
with Run.open(run_dir + "0") as run:
    seen = run.rows("SELECT count(*) FROM collective WHERE rank = ?", [dist.get_rank()])
time.sleep(TWO_LOOKS)
train()
os.write(1, f"{seen[0][0]}\\n".encode())
dist.barrier()
dist.destroy_process_group()
"""
)


def told(run_dir: str) -> tuple[list[Any], list[Any]]:
    """all_reduces and steps of each rank, and how its process ended."""
    with Run.open(run_dir) as run:
        work = run.rows("SELECT rank, (SELECT count(*) FROM collective c WHERE c.rank = s.rank AND op = 'all_reduce'), "
                        "count(*) FROM step s GROUP BY rank ORDER BY rank")  # fmt: skip
        return work, run.rows("SELECT rank, exit_kind FROM process ORDER BY rank")


def test_a_second_attachment_is_not_taken_for_a_dead_process(torchrun: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    job = torchrun(AGAIN, 2).check()
    job.settle()
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(job.local_dir))
    for number in range(2):
        work, ends = told(f"{job.run_dir}{number}")
        assert work == [(0, NUM_STEPS, NUM_STEPS), (1, NUM_STEPS, NUM_STEPS)]
        assert ends == [(0, "clean"), (1, "clean")]
    assert list(job.local_dir.rglob("*.journal")) == []


def test_ranks_that_read_their_own_run_are_not_taken_for_dead(torchrun: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    job = torchrun(READ_FROM_WITHIN, 2).check()
    assert all(int(line) >= NUM_STEPS for line in job.stdout.split())
    job.settle()
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(job.local_dir))
    work, ends = told(f"{job.run_dir}0")
    assert work == [(0, 2 * NUM_STEPS, 2 * NUM_STEPS), (1, 2 * NUM_STEPS, 2 * NUM_STEPS)]
    assert ends == [(0, "clean"), (1, "clean")]


ALONE_AT_FIRST = f"""
import os, sys, time
import torch.multiprocessing as mp

def work(rank, meeting):
    import torch, torch.distributed as dist
    import rankscope
    from rankscope.tracer import api
    rankscope.attach()
    rankscope.step()
    api._session._attached_s -= 20  # as if loading a model had taken so long
    api._session._tick()
    dist.init_process_group("gloo", init_method=f"file://{{meeting}}", rank=rank, world_size=2)
    for _ in range({NUM_STEPS}):
        dist.all_reduce(torch.ones(4))
        rankscope.step()
    while rank == 1 and api._session.joining.is_pending:  # rank 0 keeps the store until all have asked
        api._session.joining.poll()
        time.sleep(0.01)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(work, args=(os.path.abspath("meeting"),), nprocs=2)
"""


def test_a_rank_that_seemed_to_be_alone_is_described_as_what_it_became(
    plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = plain(ALONE_AT_FIRST, env={"RANKSCOPE_AGENT": "off"}).check()
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(job.local_dir))
    with Run.open(str(job.run_dir)) as run:
        assert run.rows("SELECT world_size FROM run") == [(2,)]
        assert run.rows("SELECT rank, incarnation FROM process ORDER BY rank") == [(0, 0), (1, 0)]
    work, ends = told(str(job.run_dir))
    assert work == [(rank, NUM_STEPS, NUM_STEPS + 1) for rank in range(2)]
    assert ends == [(0, "clean"), (1, "clean")]
