"""Every way into a training: it records what it should, and a process that is no rank leaves nothing behind."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from busy import PATIENT_THREAD_AGENT

from rankscope.schema import paths
from rankscope.schema.leftovers import find_leftovers
from rankscope.schema.process_state import ProcessState, read_journal

if TYPE_CHECKING:
    from tests.conftest import JobResult

pytestmark = pytest.mark.system

NUM_STEPS = 4
OFF = {"RANKSCOPE_AGENT": "off"}

TRAIN = f"""
def train(model=None):
    import torch
    import torch.distributed as dist
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range({NUM_STEPS}):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        if dist.is_initialized():
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()
"""
INIT = "import torch.distributed as dist\ndist.init_process_group('gloo')\n"
DESTROY = "import torch.distributed as dist\ndist.destroy_process_group()\n"
AUTO = "import rankscope.auto\n"


def journals(job: "JobResult") -> list[ProcessState]:
    """The journals of a job whose agent was off."""
    found = [read_journal(str(path)) for path in sorted(job.local_dir.glob("*/*/*.journal"))]
    assert all(state.num_bad_lines == 0 for state in found)
    return found


def rows(job: "JobResult", table: str, monkeypatch: pytest.MonkeyPatch, run_dir: Path | None = None) -> list[dict]:
    """The rows of a job whose agent was off, of all its processes."""
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(job.local_dir))
    found: list[dict] = []
    for leftover in find_leftovers(str(run_dir or job.run_dir)):
        for (name, incarnation, _), part in leftover.tables().items():
            if name == table:
                found += [{"incarnation": incarnation, **row} for row in part.to_pylist() if not is_collector(row)]
        assert leftover.problems == []
    return found


def is_collector(row: dict[str, Any]) -> bool:
    """Pauses of Python's collector come when they come."""
    return row.get("kind") == "gc" or str(row.get("name")).startswith("gc.")


def check_two_ranks(job: "JobResult", monkeypatch: pytest.MonkeyPatch) -> list[ProcessState]:
    """Two ranks of one run with all their steps and collectives."""
    states = journals(job)
    assert {state.joins[-1].rank for state in states} == {0, 1} and len(states) == 2
    assert len({(state.joins[-1].run_id, state.joins[-1].incarnation) for state in states}) == 1
    assert [state.num_records is not None for state in states] == [True, True]
    assert Counter(row["rank"] for row in rows(job, "step", monkeypatch)) == {0: NUM_STEPS, 1: NUM_STEPS}
    reduced = [row for row in rows(job, "collective", monkeypatch) if row["op"] == "all_reduce"]
    assert Counter(row["rank"] for row in reduced) == {0: 2 * NUM_STEPS, 1: 2 * NUM_STEPS}
    return states


@pytest.mark.parametrize(
    "script",
    [
        AUTO + INIT + TRAIN + "train()\n" + DESTROY,
        "import torch\n" + AUTO + INIT + TRAIN + "train()\n" + DESTROY,
        INIT + AUTO + TRAIN + "train()\n" + DESTROY,
        INIT
        + TRAIN
        + "import rankscope\nrankscope.attach(job_id='j')\ntrain()\nrankscope.detach()\ntrain()\n"
        + DESTROY,
    ],
    ids=["before torch", "after torch", "after init_process_group", "attach and detach"],
)
def test_torchrun(torchrun, monkeypatch, script):
    check_two_ranks(torchrun(script, 2, env=OFF).check(), monkeypatch)


@pytest.mark.parametrize("agent", ["auto", "now", "thread"])
def test_the_whole_way_to_parquet(torchrun, agent):
    """With the agent, as a user has it: rows and entities lie in the run directory, the local ones are gone."""
    import pyarrow.parquet as parquet

    script = AUTO + (PATIENT_THREAD_AGENT if agent == "thread" else "") + INIT + TRAIN + "train()\n" + DESTROY
    job = torchrun(script, 2, env={"RANKSCOPE_AGENT": agent}).check()
    job.settle()
    assert len(parquet.read_table(job.run_dir / "step").to_pylist()) == 2 * NUM_STEPS
    (run,) = parquet.read_table(job.run_dir / "run").to_pylist()
    assert run["world_size"] == 2 and run["run_id"].startswith("train-")
    manifest = json.loads(run["manifest"])
    assert manifest["versions"]["torch"] and manifest["command"][-1].endswith("train.py")
    assert manifest["environment"]["OMP_NUM_THREADS"] == "1"
    assert list(job.local_dir.rglob("*.journal")) == []
    assert list(paths.tmpfs_base().glob(f"{next(job.local_dir.glob('*/*')).name}/*.ring")) == []


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_torch_multiprocessing(plain, monkeypatch, method):
    script = AUTO + TRAIN + (
        "def rank(index, port):\n"
        "    import torch.distributed as dist\n"
        "    dist.init_process_group('gloo', init_method=f'tcp://127.0.0.1:{port}', rank=index, world_size=2)\n"
        "    train()\n    dist.destroy_process_group()\n"
        "if __name__ == '__main__':\n"
        "    import socket, torch.multiprocessing as mp\n"
        "    with socket.socket() as free:\n        free.bind(('127.0.0.1', 0))\n        port = free.getsockname()[1]\n"
        f"    mp.start_processes(rank, args=(port,), nprocs=2, start_method={method!r})\n"
    )  # fmt: skip
    states = check_two_ranks(plain(script, env=OFF).check(), monkeypatch)
    assert len({state.process["launch"] for state in states}) == 1  # the parent left nothing, and no folder of its own


def test_plain_python_is_a_run_of_its_own(plain, monkeypatch):
    job = plain(AUTO + TRAIN + "train()\n", env=OFF).check()
    (state,) = journals(job)
    (join,) = state.joins
    assert (join.rank, join.incarnation, join.body["world_size"]) == (0, 0, 1)
    assert join.run_id.startswith("train-")
    assert len(rows(job, "step", monkeypatch)) == NUM_STEPS
    assert [row["rank"] for row in rows(job, "step", monkeypatch)] == [0] * NUM_STEPS


def test_the_default_run_directory_is_below_the_jobs_folder(plain, monkeypatch):
    job = plain(AUTO + TRAIN + "train()\n", env={**OFF, "RANKSCOPE_DIR": ""}).check()
    (state,) = journals(job)
    assert (
        state.run is not None and Path(state.run.run_dir) == job.local_dir.parent / "rankscope-runs" / state.run.run_id
    )


@pytest.mark.parametrize("script", [AUTO, AUTO + "import torch\n", AUTO + "import torch\ntorch.ones(3).sum()\n"])
def test_a_process_that_trains_nothing_leaves_nothing(plain, script):
    job = plain(script).check()
    assert (job.stdout, job.stderr) == ("", "")
    assert not job.local_dir.exists() and not job.run_dir.exists()


def test_off_is_off(plain):
    script = AUTO + (
        "import sys, rankscope, torch\n"
        "def state(): return dict(vars(torch.distributed.ProcessGroup)), torch.optim.Optimizer.step, sys.meta_path[:]\n"
        "before = state()\n"
        "session = rankscope.attach(run_id='never/mind')\n"
        "rankscope.step(); rankscope.log(loss=1.0)\nwith rankscope.span('eval'): pass\n"
        "assert not session.is_on; session.detach(); rankscope.detach()\n"
        "assert before == state()\n"
        "ours = ('rankscope.hooks', 'rankscope.tracer.session')\n"
        "print(sorted(name for name in sys.modules if name.startswith(ours)))\n"
    ) + TRAIN + "train()\n"  # fmt: skip
    job = plain(script, env={"RANKSCOPE": "0"}).check()
    assert job.stdout == "[]\n" and not job.local_dir.exists() and not job.run_dir.exists()


def test_wrong_settings_are_one_line_and_off(plain):
    job = plain(AUTO + TRAIN + "train()\nprint('trained')\n", env={"RANKSCOPE_AGENT": "sometimes"}).check()
    assert job.stdout == "trained\n" and not job.local_dir.exists()
    (line,) = job.stderr.splitlines()
    assert line.startswith("rankscope: off: RANKSCOPE_AGENT is 'sometimes'") and "auto, now, thread, off" in line


def test_attach_raises_what_says_the_fix(plain):
    script = (
        "import rankscope\ntry:\n    rankscope.attach(global_batch=0)\n"
        "except ValueError as error:\n    print(error)\nrankscope.step()\n"
    )
    job = plain(script).check()
    assert "attach(global_batch=...)" in job.stdout and "at least 1" in job.stdout


def test_attached_twice_is_once_and_the_second_adds(plain, monkeypatch):
    script = (
        AUTO + "import rankscope\nassert rankscope.attach(job_id='j', layout={'dp': 1}) is rankscope.attach()\n" + TRAIN
    )
    job = plain(script + "train()\n", env=OFF).check()
    (state,) = journals(job)
    assert len(rows(job, "step", monkeypatch)) == NUM_STEPS
    (run,) = [row.body for row in state.rows if row.table == "run"]
    assert (run["job_id"], run["dp"]) == ("j", 1)


def test_detached_and_attached_again_is_another_run(plain, monkeypatch):
    script = (
        "import rankscope\n"
        + TRAIN
        + "for _ in range(2):\n    rankscope.attach()\n    train()\n    rankscope.detach()\n"
    )
    job = plain(script, env=OFF).check()
    states = journals(job)
    assert len({state.proc for state in states}) == 2 and len({state.process["pid"] for state in states}) == 1
    assert Counter(row["proc"] for row in rows(job, "step", monkeypatch)) == {state.proc: NUM_STEPS for state in states}


def test_a_second_process_group_is_a_second_incarnation(torchrun, monkeypatch, tmp_path):
    # each group has its own store: torchrun's keeps the first one's addresses, which a fast rank finds (torch 2.13)
    script = AUTO + TRAIN + (
        "import os, sys\nimport torch.distributed as dist\nrank = int(os.environ['RANK'])\n"
        "for number in range(2):\n"
        "    dist.init_process_group('gloo', init_method=f'file://{sys.argv[1]}/{number}', rank=rank, world_size=2)\n"
        "    train()\n    dist.destroy_process_group()\n"
    )  # fmt: skip
    job = torchrun(script, 2, env=OFF, args=(str(tmp_path),)).check()
    assert [[join.incarnation for join in state.joins] for state in journals(job)] == [[0, 1], [0, 1]]
    steps = Counter((row["incarnation"], row["rank"], row["step"]) for row in rows(job, "step", monkeypatch))
    assert steps == {(number, rank, step): 1 for number in (0, 1) for rank in (0, 1) for step in range(NUM_STEPS)}


def test_an_elastic_restart_is_the_same_run(torchrun):
    script = AUTO + INIT + TRAIN + (
        "train()\nimport os, sys\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': sys.exit(3)\n"
    ) + DESTROY  # fmt: skip
    # the shared store keeps gloo's addresses across the restart, which a fast rank finds (torch 2.13)
    env = {**OFF, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    job = torchrun(script, 2, env=env, options=("--max-restarts=1",)).check()
    states = journals(job)
    assert len(states) == 4 and len({join.run_id for state in states for join in state.joins}) == 1
    joined = Counter((state.process["restart_count"], join.incarnation) for state in states for join in state.joins)
    assert set(joined) == {(0, 0), (1, 1000)} and joined[1, 1000] == 2


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_loader_workers_record_nothing(plain, monkeypatch, method):
    script = AUTO + TRAIN + (
        "import torch\n"
        "class Data(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 8\n"
        "    def __getitem__(self, index): return torch.nn.Linear(2, 2)(torch.ones(2)).detach()\n"
        "if __name__ == '__main__':\n"
        f"    how = dict(num_workers=2, multiprocessing_context={method!r})\n"
        "    loader = torch.utils.data.DataLoader(Data(), batch_size=2, **how)\n"
        "    train()\n    print(sum(1 for _ in loader))\n    train()\n"
    )  # fmt: skip
    job = plain(script, env=OFF, timeout=110).check()
    assert job.stdout == "4\n" and len(journals(job)) == 1
    assert len(rows(job, "step", monkeypatch)) == 2 * NUM_STEPS


def test_a_forked_child_writes_nothing(plain, monkeypatch):
    script = AUTO + TRAIN + "import os\ntrain()\nif os.fork() == 0:\n    train()\nelse:\n    os.wait()\n    train()\n"
    job = plain(script, env=OFF).check()
    (state,) = journals(job)
    found = rows(job, "step", monkeypatch)
    assert len(found) == 2 * NUM_STEPS and {row["proc"] for row in found} == {state.proc}


def test_a_user_says_more(plain, monkeypatch):
    script = AUTO + (
        "import rankscope\nfor number in range(3):\n"
        "    with rankscope.span('eval'): pass\n    rankscope.log(number, loss=number / 2)\n"
        "    rankscope.step(samples=8, tokens=64, global_step=number + 10)\n"
    )  # fmt: skip
    job = plain(script, env=OFF).check()
    steps = rows(job, "step", monkeypatch)
    assert [(row["step"], row["global_step"], row["samples"], row["tokens"], row["boundary"]) for row in steps] == [
        (number, number + 10, 8, 64, "explicit") for number in range(3)
    ]
    assert [(row["name"], row["global_step"], row["value"]) for row in rows(job, "metric", monkeypatch)] == [
        ("loss", number, number / 2) for number in range(3)
    ]
    assert [(row["kind"], row["step"]) for row in rows(job, "span", monkeypatch)] == [("eval", n) for n in range(3)]


@pytest.fixture
def inside(jobs):
    """`inside(mounts, script, env)`: plain python in a mount namespace of its own, after the shell line `mounts`."""
    if os.getuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mounting a small file system needs root and unshare")

    def start(mounts: str, script: str, env: dict[str, str] | None = None) -> "JobResult":
        place = jobs.place()
        environment = {**OFF, "PLACE": str(place), **(env or {})}
        command = ["unshare", "--mount", "sh", "-ec", mounts + '\nexec "$@"', "sh", sys.executable]
        result: JobResult = jobs.run([*command, str(jobs.script(script, place))], place, environment, 60)
        return result

    return start


TRAINED = AUTO + TRAIN + "train()\nprint('trained')\n"


def test_a_small_tmpfs_is_left_alone(inside, monkeypatch):
    job = inside(
        "mount -t tmpfs -o size=16m tmpfs /dev/shm", TRAINED + "import os\nprint(os.listdir('/dev/shm'))\n"
    ).check()
    assert job.stdout == "trained\n[]\n"
    (state,) = journals(job)
    assert state.is_tmpfs is False and state.ring_path.startswith(str(job.local_dir))
    assert len(rows(job, "step", monkeypatch)) == NUM_STEPS


def test_a_full_local_disk_is_bypassed(inside, monkeypatch):
    full = (
        'mkdir "$RANKSCOPE_LOCAL_DIR"; mount -t tmpfs -o size=64k tmpfs "$RANKSCOPE_LOCAL_DIR"\n'
        'mkdir -m 700 "$RANKSCOPE_LOCAL_DIR/rankscope-0"\n'
        'cat /dev/zero > "$RANKSCOPE_LOCAL_DIR/filler" 2>/dev/null || true'
    )
    job = inside(full, TRAINED).check()
    assert job.stdout == "trained\n"
    try:
        assert len(rows(job, "step", monkeypatch)) == NUM_STEPS
    finally:
        for leftover in find_leftovers(str(job.run_dir)):
            shutil.rmtree(Path(leftover.source).parent)


@pytest.mark.parametrize("place", ["/sys/kernel/rankscope", "/proc/rankscope"])
def test_nowhere_to_write_is_one_line(inside, place):
    job = inside("mount -t tmpfs -o ro tmpfs /dev/shm", TRAINED, {"RANKSCOPE_LOCAL_DIR": place}).check()
    assert job.stdout == "trained\n"
    (line,) = job.stderr.splitlines()
    assert line.startswith("rankscope: nothing is recorded in this process: ") and place in line


def test_no_room_for_the_ring_is_one_line_and_in_the_report(inside, monkeypatch):
    small = (
        "mount -t tmpfs -o size=1m tmpfs /dev/shm\n"
        'mkdir "$RANKSCOPE_LOCAL_DIR"; mount -t tmpfs -o size=1m tmpfs "$RANKSCOPE_LOCAL_DIR"\n'
    )
    keep = "import shutil, os\nshutil.copytree(os.environ['RANKSCOPE_LOCAL_DIR'], os.environ['PLACE'] + '/kept')\n"
    job = inside(small, TRAINED + keep).check()
    assert job.stdout == "trained\n"
    (line,) = job.stderr.splitlines()
    assert "not recorded in this process: no place for the ring" in line and "KiB free" in line
    (state,) = [read_journal(str(path)) for path in (job.local_dir.parent / "kept").glob("*/*/*.journal")]
    assert state.ring_capacity == 0
    assert any("no place for the ring" in str(row.body.get("why")) for row in state.rows)


def test_importing_loads_nothing_heavy():
    heavy = ("torch", "numpy", "pyarrow", "duckdb", "rich", "opentelemetry", "typer")
    script = f"import sys, rankscope, rankscope.auto\nprint([name for name in {heavy} if name in sys.modules])"
    environment = {**os.environ, "RANKSCOPE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n" and done.stderr == ""


def test_without_the_process_groups_hook_ranks_still_know_their_run(torchrun, monkeypatch):
    env = {**OFF, "RANKSCOPE_HOOKS": "-process_groups"}
    job = torchrun(AUTO + INIT + TRAIN + "train()\n" + DESTROY, 2, env=env).check()
    assert {state.joins[-1].rank for state in journals(job)} == {0, 1}
    assert Counter(row["rank"] for row in rows(job, "step", monkeypatch)) == {0: NUM_STEPS, 1: NUM_STEPS}
    assert rows(job, "collective", monkeypatch) == []


def test_nonsense_from_the_user_does_not_stop_the_training(jobs, plain):
    script = AUTO + (
        "import rankscope\nrankscope.step(samples='many'); rankscope.log(loss='high', replicated=3)\n"
        "with rankscope.span([1]): pass\nwith rankscope.span(None): pass\nprint('trained')\n"
    )  # fmt: skip
    assert plain(script, env=OFF).check().stdout == "trained\n"
    jobs.swallowed.unlink(missing_ok=True)  # it is noted, which is right


def test_the_public_names():
    import rankscope

    assert rankscope.__all__ == sorted(rankscope.__all__)
    assert all(getattr(rankscope, name) for name in rankscope.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rankscope.nothing  # noqa: B018
