"""The agent's start: once per launch folder, with nothing of ours but the lock, and not our child."""

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from rankscope.schema.paths import AGENT_LOCK, AGENT_LOG
from rankscope.tracer import launch

FAKE = """
import json, os, sys, time
own = "/proc/self/fd/"
fds = {name: os.readlink(own + name) for name in os.listdir(own) if os.path.exists(own + name)}
told = {"argv": sys.argv[1:], "fds": fds, "sid": os.getsid(0), "pid": os.getpid(), "cwd": os.getcwd(),
        "nice": os.getpriority(os.PRIO_PROCESS, 0), "omp": os.environ["OMP_NUM_THREADS"]}
open(sys.argv[2] + "/told.part", "w").write(json.dumps(told))
os.rename(sys.argv[2] + "/told.part", sys.argv[2] + "/told")
time.sleep(float(os.environ.get("FAKE_SECONDS", "0")))
"""


@pytest.fixture
def fake_agent(tmp_path, monkeypatch):
    """Instead of the agent, a script that tells what it was given."""
    path = tmp_path / "fake.py"
    path.write_text(FAKE)
    run = subprocess.run

    def replaced(command, **options):
        return run(
            [part if part != "rankscope.tracer.agent" else str(path) for part in command if part != "-m"], **options
        )

    monkeypatch.setattr(subprocess, "run", replaced)
    monkeypatch.setattr(launch, "_step_aside", lambda: None)  # would slow the test's own thread down for good
    return path


def told(folder: Path) -> dict[str, Any]:
    for _ in range(400):
        if (folder / "told").exists():
            found: dict[str, Any] = json.loads((folder / "told").read_text())
            return found
        time.sleep(0.02)
    pytest.fail("no agent was started")


def test_the_agent_gets_the_lock_and_nothing_else(tmp_path, fake_agent):
    before = psutil.Process().children()  # other tests' pools leave a helper that never ends
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    lock = launch.take_lock(tmp_path)
    assert lock is not None
    launch.start_agent(tmp_path, lock)
    os.close(lock)
    found = told(tmp_path)
    assert found["argv"] == ["--folder", str(tmp_path), "--lock-fd", str(lock)]
    inherited = {name: place for name, place in found["fds"].items() if not place.startswith("/proc/")}
    assert inherited == {
        "0": "/dev/null", "1": str(tmp_path / AGENT_LOG), "2": str(tmp_path / AGENT_LOG),
        str(lock): str(tmp_path / AGENT_LOCK),
    }  # fmt: skip
    assert found["sid"] != os.getsid(0) and found["cwd"] == "/" and found["omp"] == "1"
    os.close(write_end)
    assert os.read(read_end, 1) == b""
    os.close(read_end)
    assert psutil.Process().children() == before  # a job that waits for any child does not meet the agent
    with pytest.raises(ChildProcessError):
        os.waitpid(found["pid"], os.WNOHANG)


def test_the_lock_is_held_until_the_agent_ends(tmp_path, fake_agent, monkeypatch):
    monkeypatch.setenv("FAKE_SECONDS", "0.5")
    lock = launch.take_lock(tmp_path)
    assert lock is not None and launch.take_lock(tmp_path) is None
    launch.start_agent(tmp_path, lock)
    os.close(lock)
    assert launch.take_lock(tmp_path) is None
    for _ in range(400):
        again = launch.take_lock(tmp_path)
        if again is not None:
            os.close(again)
            return
        time.sleep(0.02)
    pytest.fail("the lock was never released")


def test_a_linked_lock_file_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / AGENT_LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        launch.take_lock(tmp_path)


def watch(folder, mode="auto", attached_s=None):
    failures: list[BaseException] = []
    made = launch.Watch(
        folder, mode, time.monotonic() if attached_s is None else attached_s, lambda: None, failures.append
    )
    return made, failures


def test_a_short_job_starts_it_at_exit_only(tmp_path, fake_agent):
    made, failures = watch(tmp_path)
    made.start()
    assert not (tmp_path / AGENT_LOCK).exists()
    made.finish()
    assert told(tmp_path) and failures == []


def test_off_starts_none(tmp_path, fake_agent):
    made, failures = watch(tmp_path, "off")
    made.start()
    made.finish()
    assert list(tmp_path.glob("agent*")) == [] and failures == []


def test_one_of_two_ranks_starts_it(tmp_path, fake_agent, monkeypatch):
    monkeypatch.setenv("FAKE_SECONDS", "5")
    started: list[int] = []
    start = launch.start_agent

    def counted(folder: Path, lock: int) -> None:
        started.append(lock)
        start(folder, lock)

    monkeypatch.setattr(launch, "start_agent", counted)
    for made in [watch(tmp_path)[0] for _ in range(2)]:
        made.start()
        made.finish()
    assert len(started) == 1


def test_whoever_watches_replaces_a_dead_agent(tmp_path, fake_agent, monkeypatch):
    monkeypatch.setattr(launch, "PERIOD_SECONDS", 0.05)
    lock = launch.take_lock(tmp_path)
    assert lock is not None
    made, _ = watch(tmp_path, "now")
    made.start()
    time.sleep(0.2)
    assert not (tmp_path / "told").exists()
    os.close(lock)
    assert told(tmp_path)
    made.finish()


def test_what_fails_in_the_watch_is_told_and_it_goes_on(tmp_path, monkeypatch):
    failures: list[BaseException] = []
    ticks: list[int] = []
    monkeypatch.setattr(launch, "PERIOD_SECONDS", 0.01)

    def tick() -> None:
        ticks.append(1)
        raise ZeroDivisionError

    made = launch.Watch(tmp_path / "missing", "now", 0.0, tick, failures.append)
    made.start()
    while len(ticks) < 3:
        time.sleep(0.01)
    made.finish()
    assert {type(error) for error in failures} == {ZeroDivisionError, FileNotFoundError}


def test_the_agents_environment_means_the_same_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = launch.agent_environment({
        "PYTHONPATH": f"src{os.pathsep}/abs", "RANKSCOPE_DIR": "run", "RANKSCOPE_LOCAL_DIR": "s3://x/y", "A": "b",
        "PYTHONWARNINGS": "error", "OMP_NUM_THREADS": "8",
    })  # fmt: skip
    assert found["PYTHONPATH"] == f"{tmp_path}/src{os.pathsep}/abs"
    assert found["RANKSCOPE_DIR"] == f"{tmp_path}/run" and found["A"] == "b" and found["OMP_NUM_THREADS"] == "1"
    assert "PYTHONWARNINGS" not in found


def test_it_steps_aside_in_its_own_thread_only():
    script = (
        "import os, threading\nfrom rankscope.tracer import launch\n"
        "thread = threading.Thread(target=launch._step_aside)\nthread.start()\nthread.join()\n"
        "print(os.getpriority(os.PRIO_PROCESS, 0), sorted(os.sched_getaffinity(0)) == sorted(before))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", "import os\nbefore = os.sched_getaffinity(0)\n" + script],
        capture_output=True, text=True, check=True, timeout=30,
    )  # fmt: skip
    assert done.stdout.split() == [str(os.getpriority(os.PRIO_PROCESS, 0)), "True"]


def test_flock_and_record_locks_do_not_meet(tmp_path):
    lock = launch.take_lock(tmp_path)
    assert lock is not None
    fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(lock)
