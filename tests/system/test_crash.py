"""Nothing is lost: ranks, the agent, everything killed; disks that vanish, fill up or cannot be written; restarts.

The witness of what had completed is a file that the training script itself appends to, with one system call an
operation.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from busy import BUSY_MACHINE, slowness
from failing_disk import ClosedMount, FailingDisk
from node import read_everything

from rankscope.schema import paths
from rankscope.schema.tables import TABLES
from rankscope.tracer.seal import seal
from rankscope.tracer.verify import verify

pytestmark = [pytest.mark.system, pytest.mark.slow]

TRAIN = """
import os, sys, time
import torch, torch.distributed as dist
if "LATE" not in os.environ:
    import rankscope.auto

# A store prefix of each attempt: gloo on torch 2.13 reads the addresses of the attempt before, also without rankscope.
rank, address = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
store = dist.PrefixStore(os.environ["TORCHELASTIC_RESTART_COUNT"], dist.TCPStore(*address, is_master=False))
dist.init_process_group("gloo", store=store, rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
if "LATE" in os.environ:
    import rankscope.auto
witness = os.open(f"{os.environ['WITNESS']}/{rank}.{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
deadline = time.monotonic() + float(os.environ.get("SECONDS", "60"))
x, number = torch.ones(8), 0
while True:
    dist.all_reduce(x)
    number += 1
    os.write(witness, b"%d %d\\n" % (number, time.monotonic_ns()))
    time.sleep(0.004)
    stop = torch.tensor([float(time.monotonic() > deadline)])
    dist.broadcast(stop, 0)
    if stop.item():
        break
if os.environ.get("HANG") and rank == 1:
    time.sleep(600)
if os.environ.get("HANG"):
    dist.all_reduce(x)
dist.destroy_process_group()
"""


class LiveJob:
    """A job that runs beside the test, with its witnesses."""

    def __init__(
        self, jobs: Any, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], nproc: int, options: list[str]
    ) -> None:
        self.place = jobs.place()
        self.witness = self.place / "witness"
        self.witness.mkdir()
        environment = {"WITNESS": str(self.witness), "RANKSCOPE_AGENT": "now", **env}
        self.env = jobs.environment(self.place, environment)
        self.run_dir, self.local_dir = Path(self.env["RANKSCOPE_DIR"]), Path(self.env["RANKSCOPE_LOCAL_DIR"])
        monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(self.local_dir))
        script = jobs.script(TRAIN, self.place)
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={nproc}",
            *options,
            str(script),
        ]
        with (self.place / "err").open("wb") as err:
            self.process = subprocess.Popen(
                command, env=self.env, cwd=self.place, stdout=subprocess.DEVNULL, stderr=err, start_new_session=True
            )
        jobs._groups.append(self.process.pid)

    def counts(self) -> dict[int, tuple[int, int]]:
        """Per process id: how many all_reduces it completed, and when the last one was (CLOCK_MONOTONIC ns)."""
        found = {}
        for path in self.witness.iterdir():
            lines = path.read_bytes().split(b"\n")[:-1]
            if lines:
                number, time_ns = lines[-1].split()
                found[int(path.name.split(".")[1])] = (int(number), int(time_ns))
        return found

    def wait_for(self, condition: Callable[[], bool], what: str, timeout: float = 60) -> None:
        """Wait until `condition`; the test fails after `timeout` seconds of a free machine."""
        deadline = time.monotonic() + BUSY_MACHINE * timeout
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"no {what} after {timeout} s: {(self.place / 'err').read_text()[-3000:]}")
            time.sleep(0.02)

    def wait_for_rows(self, num: int = 20, ranks: int = 2) -> None:
        """Wait until every rank completed `num` operations."""
        self.wait_for(lambda: sum(count >= num for count, _ in self.counts().values()) >= ranks, f"{num} operations")

    def agents(self) -> list[int]:
        """The process ids of the job's agents."""
        return [
            pid for pid in _pids() if str(self.local_dir).encode() in _command(pid) and b"tracer.agent" in _command(pid)
        ]

    def wait_for_end(self, timeout: float = 60) -> int:
        """The exit status, once the job is over and its agent has left."""
        status = self.process.wait(BUSY_MACHINE * timeout)
        self.wait_for(lambda: not self.agents(), "end of the agent", 15)
        return status

    def kill_everything(self) -> None:
        """SIGKILL the launcher, the ranks and the agent."""
        for pid in [self.process.pid, *self.counts(), *self.agents()]:
            _kill(pid)
        self.process.wait()

    def completed(self, op: str = "all_reduce") -> Counter[int]:
        """Per process id: how many of its operations the report shows as completed."""
        pids = {row["proc"]: row["pid"] for row in read_everything(self.run_dir, "process")}
        rows = read_everything(self.run_dir, "collective")
        assert len({(row["proc"], row["record"]) for row in rows}) == len(rows)
        return Counter(pids[row["proc"]] for row in rows if row["op"] == op and row["state"] == "completed")

    def check_complete(self) -> None:
        """Every operation that a process completed is there."""
        completed = self.completed()
        for pid, (number, _) in self.counts().items():
            assert completed[pid] in (number, number + 1), (pid, completed, self.counts())


@pytest.fixture
def job(jobs: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LiveJob]:
    def start(nproc: int = 2, options: list[str] | None = None, **env: str) -> LiveJob:
        return LiveJob(jobs, monkeypatch, env, nproc, options or [])

    return start


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@contextmanager
def small_tmpfs(folder: Path, kib: int) -> Iterator[Path]:
    """A file system of `kib` KiB."""
    folder.mkdir(parents=True)
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=0700", "tmpfs", str(folder)], check=False
    ).returncode:
        pytest.fail("a small tmpfs cannot be mounted here; run this test as root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("victim", ["rank", "agent", "everything"])
@pytest.mark.parametrize("moment", [0, 1])
def test_what_was_completed_before_a_kill_is_there(job: Callable[..., LiveJob], victim: str, moment: int) -> None:
    running = job(SECONDS="6" if victim == "agent" else "60")
    running.wait_for_rows()
    running.wait_for(lambda: bool(running.agents()), "agent")
    time.sleep(random.uniform(0, 3))
    if victim == "rank":
        _kill(random.choice(list(running.counts())))
        assert running.wait_for_end() != 0
    elif victim == "agent":
        _kill(running.agents()[0])
        assert running.wait_for_end() == 0, "the job does not notice"
    else:
        running.kill_everything()
    running.check_complete()
    if victim == "everything":
        assert {row["exit_kind"] for row in read_everything(running.run_dir, "process")} == {"killed"}
        seal(str(running.run_dir))
    running.check_complete()
    assert verify(str(running.run_dir)).problems == ()
    assert not list(running.local_dir.rglob("*.journal")), "what is sealed is not kept"


def test_the_collective_in_flight_is_shown_as_issued(job: Callable[..., LiveJob]) -> None:
    running = job(SECONDS="0.5", HANG="1")
    running.wait_for_rows()
    time.sleep(2)
    running.kill_everything()
    running.check_complete()
    rows = read_everything(running.run_dir, "collective")
    (open_row,) = [row for row in rows if row["state"] == "issued"]
    assert open_row["op"] == "all_reduce" and open_row["rank"] == 0 and open_row["completed_ns"] is None


def test_with_the_local_directory_gone_at_most_two_seconds_are_missing(job: Callable[..., LiveJob]) -> None:
    running = job()
    running.wait_for_rows()
    running.wait_for(lambda: bool(running.agents()), "agent")
    time.sleep(random.uniform(4, 6))
    running.kill_everything()
    killed_ns = time.monotonic_ns()
    slow = slowness()
    for launch in running.local_dir.glob("*/*"):
        shutil.rmtree(paths.TMPFS_BASE / launch.parent.name / launch.name, ignore_errors=True)
    shutil.rmtree(running.local_dir)
    rows = [row for row in read_everything(running.run_dir, "collective") if row["state"] == "completed"]
    newest = {
        proc: max(row["completed_ns"] for row in rows if row["proc"] == proc) for proc in {row["proc"] for row in rows}
    }
    assert len(newest) == 2
    for proc, completed_ns in newest.items():
        assert killed_ns - completed_ns < 2e9 * slow + 300_000_000, "2 s, and what it took to kill them"
        records = sorted(row["record"] for row in rows if row["proc"] == proc)
        assert len(set(records)) == len(records)


@pytest.mark.parametrize("kind", [FailingDisk, ClosedMount])
def test_a_run_directory_that_becomes_read_only_in_the_middle(
    job: Callable[..., LiveJob], tmp_path: Path, kind: type[FailingDisk] | type[ClosedMount]
) -> None:
    disk = kind(tmp_path / "shared")
    if not disk.mount():
        assert kind is FailingDisk, "a tmpfs cannot be mounted here; run this test as root"
        pytest.skip("no loop devices here; the other case goes the same way without them")
    try:
        running = job(SECONDS="9", RANKSCOPE_DIR=str(disk.folder / "run"))
        running.wait_for_rows()
        running.wait_for((disk.folder / "run/run.json").exists, "run directory")
        running.wait_for(lambda: any((disk.folder / "run").rglob("*.arrows")), "stream")
        assert running.process.poll() is None, "it is to fail in the middle"
        disk.fail()
        assert running.wait_for_end() == 0
        running.check_complete()
        disk.mend()
        running.check_complete()
        seal(str(running.run_dir))
        running.check_complete()
        assert verify(str(running.run_dir)).problems == ()
        notes = [row["why"] for row in read_everything(running.run_dir, "capture") if row["hook"] == "agent"]
        assert any("cannot be written" in note for note in notes)
    finally:
        disk.unmount()


def test_a_run_directory_without_room(job: Callable[..., LiveJob], tmp_path: Path) -> None:
    with small_tmpfs(tmp_path / "shared", 64) as shared:
        running = job(SECONDS="5", RANKSCOPE_DIR=str(shared / "run"))
        assert running.wait_for_end() == 0
        running.check_complete()
        assert list(running.local_dir.rglob("*.journal")), "nothing is deleted until it is safely written"


def test_a_local_disk_that_fills_up_in_the_middle(job: Callable[..., LiveJob], tmp_path: Path) -> None:
    with small_tmpfs(tmp_path / "disk", 20_000) as disk:
        running = job(SECONDS="6", RANKSCOPE_LOCAL_DIR=str(disk))
        running.wait_for_rows()
        filler = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT)
        with pytest.raises(OSError, match="No space"):
            while True:
                os.write(filler, bytes(4096))
        os.close(filler)
        assert running.wait_for_end() == 0
        running.check_complete()


def test_restarted_ranks_are_told_apart_and_find_an_agent(job: Callable[..., LiveJob]) -> None:
    running = job(options=["--max-restarts=1", "--monitor-interval=0.5"], SECONDS="5")
    running.wait_for_rows()
    first = running.counts()
    _kill(max(first))
    running.wait_for_rows(ranks=4)
    assert running.wait_for_end() == 0
    assert not list(running.local_dir.rglob("*.journal"))
    running.check_complete()
    processes = read_everything(running.run_dir, "process")
    assert Counter(row["incarnation"] // 1000 for row in processes) == {0: 2, 1: 2}
    assert len({row["proc"] for row in processes}) == 4
    incarnations = {path.name for path in running.run_dir.glob("collective/*")}
    assert incarnations == {f"incarnation={row['incarnation']}" for row in processes}
    assert verify(str(running.run_dir)).problems == ()


def test_the_agent_leaves_within_five_seconds_and_holds_no_pipe(jobs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    place = jobs.place()
    (place / "witness").mkdir()
    env = jobs.environment(place, {"WITNESS": str(place / "witness"), "RANKSCOPE_AGENT": "now", "SECONDS": "3"})
    script = jobs.script(TRAIN, place)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    with subprocess.Popen(command, env=env, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        text = process.stdout.read()
        closed = time.monotonic()
        assert process.wait(20 * BUSY_MACHINE) == 0, text[-3000:]
        over = time.monotonic()
    slow = slowness()
    assert over - closed < 2 * slow, "the pipe was closed by the job's end, not by the agent's"
    locks = list((place / "local").glob(f"*/*/{paths.AGENT_LOCK}"))
    while any(_is_agent_of(pid, place) for pid in _pids()):
        assert time.monotonic() - closed < 5 * slow
        time.sleep(0.05)
    assert locks and not list((place / "local").rglob("*.journal"))


def test_a_job_of_a_second_is_reported_although_nobody_waits(jobs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    place = jobs.place()
    (place / "witness").mkdir()
    env = {"WITNESS": str(place / "witness"), "SECONDS": "0.5", "LATE": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    over = threading.Event()
    seen: list[float] = []

    def watch() -> None:
        while not over.wait(0.05):
            if any(_is_agent_of(pid, place) for pid in _pids()):
                seen.append(time.monotonic())

    watcher = threading.Thread(target=watch)
    watcher.start()
    result = jobs.run([*command, str(jobs.script(TRAIN, place))], place, env, 90)
    over.set()
    watcher.join()
    result.check()
    last = max(int(path.read_bytes().split()[-1]) for path in (place / "witness").iterdir())
    assert not seen or min(seen) > last / 1e9, "it starts at the end only"
    result.settle()
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(result.local_dir))
    counts = {
        int(path.name.split(".")[0]): len(path.read_bytes().splitlines()) for path in (place / "witness").iterdir()
    }
    rows = read_everything(result.run_dir, "collective")
    assert Counter(row["rank"] for row in rows if row["op"] == "all_reduce") == counts
    assert verify(str(result.run_dir)).problems == ()


def test_every_file_opens_with_any_tool(job: Callable[..., LiveJob]) -> None:
    import duckdb

    running = job(SECONDS="2")
    assert running.wait_for_end() == 0
    tables = {path.name for path in running.run_dir.iterdir()} & set(TABLES)
    assert {"collective", "process", "process_group", "run", "node", "clock", "capture"} <= tables
    for path in running.run_dir.rglob("*.parquet"):
        duckdb.execute(f"SELECT * FROM '{path}'").fetchall()


def _is_agent_of(pid: int, place: Path) -> bool:
    command = _command(pid)
    return b"tracer.agent" in command and str(place).encode() in command
