"""Shared fixtures: real jobs in folders of their own, and a watch on what guards swallow."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest
from busy import BUSY_MACHINE

from rankscope.hooks import base
from rankscope.schema import paths

AGENT_PATIENCE_SECONDS = 30.0
hypothesis.settings.register_profile("busy", deadline=None)  # a slow example on a busy machine is no finding
hypothesis.settings.load_profile("busy")

_SITE = """
import os
import wrapt

def _watch(base):
    def note(hook, error):
        import traceback
        with open(os.environ["RANKSCOPE_TEST_SWALLOWED"], "a") as file:
            file.write(f"{hook}: " + "".join(traceback.format_exception(error)) + "\\n")
    base.on_swallow = note

wrapt.register_post_import_hook(_watch, "rankscope.hooks.base")
"""
"""The sitecustomize of the jobs: what their guards swallow is written to a file that the fixture reads."""


@dataclass(frozen=True)
class JobResult:
    """What a job left. run_dir: RANKSCOPE_DIR; local_dir: RANKSCOPE_LOCAL_DIR."""

    returncode: int
    stdout: str
    stderr: str
    run_dir: Path
    local_dir: Path

    def settle(self, timeout: float = AGENT_PATIENCE_SECONDS) -> None:
        """Wait until no agent of the job is left (at most `timeout` seconds, else the test fails)."""
        deadline = time.monotonic() + timeout
        while any(map(_is_locked, self.local_dir.glob(f"*/*/{paths.AGENT_LOCK}"))):
            if time.monotonic() > deadline:
                pytest.fail(f"an agent is still there after {timeout} s")
            time.sleep(0.05)

    def check(self) -> "JobResult":
        """This result, if the job ended well; else the test fails with what the job printed."""
        if self.returncode != 0:
            pytest.fail(f"the job ended with {self.returncode}\n{self.stdout[-2000:]}\n{self.stderr[-6000:]}")
        return self


Torchrun = Callable[..., JobResult]


class Jobs:
    """Runs commands as jobs; every process of a job is gone, and its rings are deleted, when the test ends."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.swallowed = folder, folder / "swallowed.txt"
        self._num, self._groups = 0, list[int]()
        site = folder / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(_SITE)

    def environment(self, place: Path, env: Mapping[str, str] | None) -> dict[str, str]:
        """The environment of a job that keeps its files below `place`."""
        own = {
            name: value for name, value in os.environ.items() if not name.startswith(("RANKSCOPE", "TORCH", "PYTEST"))
        }
        own |= {
            "OMP_NUM_THREADS": "1", "PYTHONPATH": str(self.folder / "site"),
            "RANKSCOPE_TEST_SWALLOWED": str(self.swallowed), "TMPDIR": str(place),
            "RANKSCOPE_DIR": str(place / "run"), "RANKSCOPE_LOCAL_DIR": str(place / "local"),
        }  # fmt: skip
        own.pop("PYTHONDONTWRITEBYTECODE", None)  # each of many processes would compile the package anew
        return own | dict(env or {})

    def place(self) -> Path:
        """A new folder for one job."""
        self._num += 1
        place = self.folder / f"job{self._num}"
        place.mkdir()
        return place

    def script(self, source: str | Path, place: Path) -> Path:
        """`source` as a file: a path is taken as it is, a text is written below `place`."""
        if isinstance(source, Path):
            return source
        path = place / "train.py"
        path.write_text(source)
        return path

    def run(self, command: Sequence[str], place: Path, env: Mapping[str, str] | None, timeout: float) -> JobResult:
        """Run `command` to its end; kills all of it and fails the test after `timeout` seconds of a free machine."""
        timeout *= BUSY_MACHINE
        environment = self.environment(place, env)
        with (place / "stdout").open("wb") as out, (place / "stderr").open("wb") as err:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=place,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self._groups.append(process.pid)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            _kill(process.pid)
            process.wait()
            text = (place / "stderr").read_text(errors="replace")
            pytest.fail(f"the job was not done after {timeout} s\n{text[-6000:]}")
        out_text, err_text = ((place / name).read_text(errors="replace") for name in ("stdout", "stderr"))
        run_dir = Path(environment.get("RANKSCOPE_DIR", str(place / "run")))
        return JobResult(code, out_text, err_text, run_dir, Path(environment["RANKSCOPE_LOCAL_DIR"]))

    def close(self) -> None:
        """End what is left of the jobs and remove their rings from the tmpfs."""
        for group in self._groups:
            _kill(group)
        for launch in self.folder.glob("job*/local/*/*"):
            shutil.rmtree(paths.TMPFS_BASE / launch.parent.name / launch.name, ignore_errors=True)


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    """Runs jobs below the test's own folder; fails the test if a guard swallowed something in one of them."""
    folder = tmp_path / "jobs"
    folder.mkdir()
    made = Jobs(folder)
    yield made
    made.close()
    if made.swallowed.exists():
        pytest.fail("a guard swallowed in the job:\n" + made.swallowed.read_text()[-6000:])


@pytest.fixture
def torchrun(jobs: Jobs) -> Torchrun:
    """`torchrun(source_or_path, nproc, *, env=None, args=(), timeout=120, options=()) -> JobResult`."""

    def start(
        source: str | Path, nproc: int, *, env: Mapping[str, str] | None = None, args: Sequence[str] = (),
        timeout: float = 120, options: Sequence[str] = (),
    ) -> JobResult:  # fmt: skip
        place = jobs.place()
        script = jobs.script(source, place)
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={nproc}"]
        return jobs.run([*launcher, *options, str(script), *args], place, env, timeout)

    return start


@pytest.fixture
def plain(jobs: Jobs) -> Torchrun:
    """`plain(source_or_path, *, env=None, args=(), timeout=60) -> JobResult`: the script under plain python."""

    def start(
        source: str | Path, *, env: Mapping[str, str] | None = None, args: Sequence[str] = (), timeout: float = 60
    ) -> JobResult:
        place = jobs.place()
        return jobs.run([sys.executable, str(jobs.script(source, place)), *args], place, env, timeout)

    return start


@pytest.fixture(autouse=True)
def swallowed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, BaseException]]]:
    """What guards swallowed in this process: the test fails unless it takes note (clears the list)."""
    seen: list[tuple[str, BaseException]] = []
    monkeypatch.setattr(base, "on_swallow", lambda hook, error: seen.append((hook, error)))
    yield seen
    if seen:
        hook, error = seen[0]
        raise AssertionError(f"hook {hook} swallowed {len(seen)} errors") from error


def _is_locked(path: Path) -> bool:
    """Asked of /proc/locks, because taking the lock for a moment could turn an agent away."""
    try:
        inode = path.stat().st_ino
    except OSError:
        return False
    lines = Path("/proc/locks").read_text().splitlines()
    return any(" FLOCK " in line and f":{inode} " in line for line in lines)


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
