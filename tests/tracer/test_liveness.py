"""Who is taken for alive: the locks of a process's journal and ring, from outside and from inside."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.schema import decode, liveness
from rankscope.schema.journal import encode
from rankscope.schema.leftovers import all_leftovers
from rankscope.schema.liveness import is_alive
from rankscope.tracer import ring_file
from rankscope.tracer.journal import Journal

FORKING = """
import os, sys
import rankscope
from rankscope.tracer import api

rankscope.attach(agent="off")
rankscope.step()
begun, told = os.pipe()
if os.fork() == 0:
    os.write(told, b"x")
    sys.stdin.readline()
    os._exit(0)
os.read(begun, 1)
print(api._session.recorder.ring.path, api._session._journal.path, sep="\\n", flush=True)
sys.stdin.readline()
"""
ASK = "import sys\nfrom rankscope.schema.liveness import is_alive\nprint(is_alive(sys.argv[1]))"


def is_alive_from_outside(path: Path) -> bool:
    done = subprocess.run([sys.executable, "-c", ASK, str(path)], capture_output=True, text=True, check=True)
    return done.stdout.strip() == "True"


def make(folder: Path) -> ring_file.RingFile:
    return ring_file.create("7.ring", 7, folder / "base" / "launch", None, 64)


def test_a_process_lives_until_it_is_killed_and_its_forked_child_does_not_stand_for_it(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", FORKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "RANKSCOPE_LOCAL_DIR": str(tmp_path / "local"), "RANKSCOPE_DIR": str(tmp_path / "run")},
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None
    ring, journal = child.stdout.readline().strip(), child.stdout.readline().strip()
    assert is_alive(ring) and is_alive(journal)
    child.kill()
    child.wait()
    assert not is_alive(ring) and not is_alive(journal)  # the forked child still waits for its line
    child.stdin.close()
    child.stdout.close()
    os.unlink(ring)


def test_a_process_that_reads_its_own_ring_keeps_its_lock(tmp_path: Path) -> None:
    made = make(tmp_path)
    _, view = decode.open_ring(str(made.path))
    view.close()
    assert is_alive(str(made.path)) and is_alive_from_outside(made.path)
    ring_file.let_go(made)
    assert not is_alive(str(made.path))


def test_a_process_that_reads_its_own_journal_keeps_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(tmp_path))
    journal, path = Journal(), tmp_path / f"rankscope-{os.getuid()}" / "launch" / "8.journal"
    path.parent.mkdir(parents=True)
    journal.write("process", {"proc": 8, "run_id": "r", "run_dir": str(tmp_path / "run")})
    journal.start(path)
    assert [leftover.is_alive for leftover in all_leftovers() if leftover.source == str(path)] == [True]
    assert is_alive_from_outside(path)
    journal.close()
    assert not is_alive(str(path))


def test_a_kernel_without_such_locks_gives_posix_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "F_OFD_SETLK", 0x7FFF)  # the kernel refuses it as it would on Linux 3.14
    made = make(tmp_path)
    assert is_alive_from_outside(made.path)
    with pytest.raises(OSError, match="unavailable"), open(made.path, "r+b") as other:
        monkeypatch.undo()
        fcntl.fcntl(other, fcntl.F_OFD_SETLK, liveness._WHOLE_FILE)
    ring_file.keep_lock(made)
    ring_file.let_go(made)
    assert not is_alive_from_outside(made.path)


def test_a_journal_has_its_lock_and_its_lines_when_it_can_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an agent sees that looks at the worst moment: from a call that comes after each step of the making."""
    seen, write, rename = list[tuple[bool, bool]](), os.write, Path.rename
    path = tmp_path / "9.journal"

    def look() -> None:
        if path.exists():
            seen.append((is_alive_from_outside(path), path.read_bytes().endswith(b"\n")))

    def watched_write(descriptor: int, data: bytes) -> int:
        look()
        return write(descriptor, data)

    def watched_rename(self: Path, target: Path) -> Path:
        look()
        found = rename(self, target)
        look()
        return found

    monkeypatch.setattr(os, "write", watched_write)
    monkeypatch.setattr(Path, "rename", watched_rename)
    journal = Journal()
    journal.write("process", {"proc": 9})
    assert journal.start(path)
    assert seen == [(True, True)]
    assert path.read_bytes().count(b"\n") == 1 and encode("process", 0, {"proc": 9})[-9:] in path.read_bytes()
    assert os.listdir(tmp_path) == ["9.journal"]
    journal.close()


def test_a_journal_that_is_there_already_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "9.journal").write_bytes(b"evidence\n")
    with pytest.raises(FileExistsError):
        Journal().start(tmp_path / "9.journal")
    assert (tmp_path / "9.journal").read_bytes() == b"evidence\n" and os.listdir(tmp_path) == ["9.journal"]
