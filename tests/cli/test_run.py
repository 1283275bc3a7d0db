"""`rankscope run`: the job's output, status and signals are its own, and what is said about it is one line."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

RANKSCOPE = str(Path(sys.executable).with_name("rankscope"))
NOTHING = "rankscope: nothing was captured: "


def run(
    *job: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, told: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [RANKSCOPE, "run", "--", *job], env={**os.environ, **(env or {})}, cwd=cwd, input=told, capture_output=True,
        text=True, timeout=100, check=False,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.delenv("RANKSCOPE", raising=False)
    return folder


def test_output_input_and_status_pass(own_temporary_folder: Path) -> None:
    ran = run("sh", "-c", "cat; echo wrong >&2; exit 7", told="one\n")
    assert (ran.returncode, ran.stdout) == (7, "one\n")
    lines = ran.stderr.splitlines()
    assert lines[0] == "wrong" and lines[1].startswith(NOTHING) and len(lines) == 2
    assert list(own_temporary_folder.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_death_by_signal_is_passed_on(number: signal.Signals) -> None:
    assert run("sh", "-c", f"kill -{int(number)} $$").returncode == -number


def test_commands_that_cannot_be_started(tmp_path: Path) -> None:
    missing = run("no-such-command")
    assert (missing.returncode, missing.stderr) == (127, "rankscope: no-such-command: command not found\n")
    (tmp_path / "file").write_text("x")
    forbidden = run(str(tmp_path / "file"))
    assert forbidden.returncode == 126 and forbidden.stderr.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_signals_are_sent_on(number: signal.Signals) -> None:
    program = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: (print('came', flush=True), sys.exit(3)))\n"
        "print('ready', flush=True)\ntime.sleep(60)\n"
    )
    job = subprocess.Popen([RANKSCOPE, "run", "--", sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
                           stderr=subprocess.DEVNULL)  # fmt: skip
    assert job.stdout is not None and job.stdout.readline() == "ready\n"
    job.send_signal(number)
    assert job.communicate(timeout=60)[0] == "came\n" and job.returncode == 3


def test_the_job_does_not_outlive_a_kill() -> None:
    job = subprocess.Popen([RANKSCOPE, "run", "--", "sh", "-c", "echo $$; exec sleep 60"], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True)  # fmt: skip
    assert job.stdout is not None
    pid = int(job.stdout.readline())
    job.kill()
    job.wait(60)
    deadline = time.monotonic() + 30
    while _lives(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    job.stdout.close()


def test_a_job_that_stops_stops_us_until_both_go_on() -> None:
    job = subprocess.Popen([RANKSCOPE, "run", "--", "sh", "-c", "kill -STOP $$; echo resumed; exit 4"], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
    assert os.WIFSTOPPED(os.waitpid(job.pid, os.WUNTRACED)[1])
    job.send_signal(signal.SIGCONT)
    assert job.communicate(timeout=60)[0] == "resumed\n" and job.returncode == 4


def test_the_users_sitecustomize_runs_under_its_name(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("NAME = __name__, __file__\n")
    show = "import sys, sitecustomize; print(sitecustomize.NAME); print(*sys.path, sep='\\n')"
    environment = {"PYTHONPATH": str(tmp_path)}
    bare = subprocess.run(
        [sys.executable, "-c", show], env={**os.environ, **environment}, capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    assert run(sys.executable, "-c", show, env=environment).stdout == bare.stdout
    assert bare.stdout.startswith("('sitecustomize', ")


def test_a_sitecustomize_that_fails_fails_as_it_did(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise RuntimeError('theirs')\n")
    ran = run(sys.executable, "-c", "print('goes on')", env={"PYTHONPATH": str(tmp_path)})
    assert ran.stdout == "goes on\n" and "RuntimeError: theirs" in ran.stderr


@pytest.mark.parametrize("options", ["-I", "-S", "-E", "-uE"])
def test_options_that_shut_us_out_are_named_and_harmless(options: str) -> None:
    ran = run(sys.executable, options, "-c", "print('done')")
    first, last = ran.stderr.splitlines()
    assert (ran.returncode, ran.stdout) == (0, "done\n")
    assert first.startswith("rankscope: nothing can be captured: ") and last.startswith(NOTHING)


def test_nothing_is_loaded_into_a_process_without_torch() -> None:
    show = "import sys; print([name for name in sys.modules if name.split('.')[0] in ('rankscope', 'wrapt')])"
    bare = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, timeout=60, check=True)
    assert run(sys.executable, "-c", show).stdout == bare.stdout


def test_switched_off() -> None:
    ran = run(sys.executable, "-c", "import os; print(os.environ.get('PYTHONPATH'))",
              env={"RANKSCOPE": "0", "PYTHONPATH": "/x"})  # fmt: skip
    assert (ran.stdout, ran.stderr) == ("/x\n", "rankscope: off: RANKSCOPE=0\n")


def test_an_interpreter_without_rankscope_is_told_once(tmp_path: Path) -> None:
    """A stand-in for torch, and an interpreter that sees none of our packages."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("WHOLE = True\n")
    show = "import torch as t; print(t.WHOLE, type(t.__loader__).__name__, t.__spec__.loader is t.__loader__)"
    ran = run(sys._base_executable, "-c", show, env={"PYTHONPATH": str(tmp_path)})  # type: ignore[attr-defined]
    assert ran.stdout == "True SourceFileLoader True\n"
    told, place = ran.stderr.splitlines()
    assert told.startswith("rankscope: off: ") and "install rankscope there too" in told and place.startswith(NOTHING)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_rows_without_a_run_are_not_called_nothing(tmp_path: Path) -> None:
    """A rank that never meets the others: what it recorded is there, and belongs to no run yet."""
    program = (
        "import torch\n"
        "layer = torch.nn.Linear(1, 1)\n"
        "for _ in range(2):\n"
        "    layer(torch.ones(1)).backward()\n"
        "    torch.optim.SGD(layer.parameters()).step()\n"
    )
    local = tmp_path / "local"
    env = {"RANKSCOPE_LOCAL_DIR": str(local), "RANKSCOPE_AGENT": "off", "WORLD_SIZE": "2", "RANK": "1"}
    ran = run(sys.executable, "-c", program, env=env)
    assert ran.returncode == 0
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("rankscope: rows were recorded, but none") and f"they are below {local}/" in last
    assert list(local.rglob("*.journal"))
