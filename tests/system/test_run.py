"""`rankscope run`: the script as it is, under every launcher, gives the rows that `import rankscope.auto` gives."""

import importlib.util
import random
import socket
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rankscope.schema.leftovers import find_leftovers
from rankscope.schema.process_state import read_journal

if TYPE_CHECKING:
    from tests.conftest import JobResult, Jobs

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(900)]

NUM_STEPS = 3
RUN = (str(Path(sys.executable).with_name("rankscope")),)
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
ACCELERATE = (
    sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--num_machines=1",
    "--mixed_precision=no", "--dynamo_backend=no",
)  # fmt: skip
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")

TRAIN = f"""
def train(rank=None, meeting=None):
    import torch
    import torch.distributed as dist
    place = {{}} if meeting is None else dict(init_method=f"file://{{meeting}}", rank=rank, world_size=2)
    dist.init_process_group("gloo", **place)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range({NUM_STEPS}):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        dist.barrier()
    dist.destroy_process_group()
"""
SPAWN = (
    TRAIN
    + """
class Samples:
    def __len__(self):
        return 4
    def __getitem__(self, index):
        import torch
        layer = torch.nn.Linear(1, 1)
        layer(torch.ones(1)).backward()
        torch.optim.SGD(layer.parameters()).step()
        return torch.ones(1)

HELPER = '''
import torch
layer = torch.nn.Linear(1, 1)
layer(torch.ones(1)).backward()
torch.optim.SGD(layer.parameters()).step()
print("helper done", flush=True)
'''

def work(rank, meeting):
    import subprocess, sys, torch
    train(rank, meeting)
    if rank == 0:
        list(torch.utils.data.DataLoader(Samples(), num_workers=1, multiprocessing_context="spawn"))
        subprocess.run([sys.executable, "-c", HELPER], check=True)

if __name__ == "__main__":
    import os, torch.multiprocessing as mp
    mp.spawn(work, args=(os.path.abspath("meeting"),), nprocs=2)
"""
)


def start(jobs: "Jobs", source: str, *command: str) -> "JobResult":
    place = jobs.place()
    return jobs.run([*command, str(jobs.script(source, place))], place, {"RANKSCOPE_AGENT": "off"}, 240).check()


def quiet_port() -> int:
    """A free port below those that the kernel gives to whoever asks for any.

    One of these may be taken by anybody between the moment in which it is found free and the one in which it is used;
    `accelerate launch` needs seconds from the one to the other on a busy machine.
    """
    first = int(EPHEMERAL.read_text().split()[0])
    for port in random.sample(range(first // 2, first), 100):
        with socket.socket() as free:
            try:
                free.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    pytest.fail("no port is free")


def counts(job: "JobResult", monkeypatch: pytest.MonkeyPatch) -> Counter:
    """Rows by table, rank and what they tell of; without those whose number the machine decides."""
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(job.local_dir))
    found: Counter = Counter()
    for leftover in find_leftovers(str(job.run_dir)):
        for (table, _, _), part in leftover.tables().items():
            if table in ("step", "collective", "span", "join", "process", "run"):
                rows = part.to_pylist()
                found.update(
                    (table, row.get("rank"), row.get("op") or row.get("kind"))
                    for row in rows
                    if row.get("kind") != "gc"
                )
    return found


def test_the_same_rows_by_import_by_run_and_by_accelerate(jobs, monkeypatch):
    # one write a line: launchers start ranks with -u, where `print` is two, and two ranks share the output
    script = TRAIN + "train()\nimport os\nos.write(1, b'from the job\\n')\n"
    by_import = start(jobs, "import rankscope.auto\n" + script, *TORCHRUN)
    expected = counts(by_import, monkeypatch)
    assert expected["step", 0, None] == expected["step", 1, None] == NUM_STEPS
    assert expected["collective", 0, "all_reduce"] >= NUM_STEPS
    ways: list[tuple[str, ...]] = [TORCHRUN]
    if importlib.util.find_spec("accelerate"):
        ways.append((*ACCELERATE, f"--main_process_port={quiet_port()}"))
    for way in ways:
        by_run = start(jobs, script, *RUN, "run", "--", *way)
        assert counts(by_run, monkeypatch) == expected
        assert sorted(by_run.stdout.split("\n")) == ["", *["from the job"] * 2]
        assert by_run.stderr.splitlines()[-1] == f"rankscope: the run is at {by_run.run_dir}"


def test_spawned_ranks_only(jobs, monkeypatch):
    """Neither the parent of `mp.spawn`, nor a loader's worker, nor a script that a rank starts leaves anything."""
    job = start(jobs, SPAWN, *RUN, "run", "--", sys.executable)
    assert job.stdout == "helper done\n"
    journals = [read_journal(str(path)) for path in job.local_dir.glob("*/*/*.journal")]
    assert {state.joins[-1].rank for state in journals if state.joins} == {0, 1} and len(journals) == 2
    assert {row: number for row, number in counts(job, monkeypatch).items() if row[0] == "step"} == {
        ("step", 0, None): NUM_STEPS, ("step", 1, None): NUM_STEPS,
    }  # fmt: skip
    assert job.stderr.splitlines()[-1] == f"rankscope: the run is at {job.run_dir}"
    assert not list(Path(job.local_dir.parent).glob("rankscope-told-*"))
