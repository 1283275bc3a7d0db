"""The journal's writer on disks that are full, torn and recovered."""

import errno
import json
import os
from pathlib import Path

import pytest

from rankscope.schema.journal import decode
from rankscope.tracer import journal as journal_module
from rankscope.tracer.journal import Journal


def kinds(path: Path) -> list[str | None]:
    return [None if line is None else str(line.body.get("text")) for line in decode(path.read_bytes())]


def test_lines_wait_until_there_is_a_file(tmp_path):
    journal = Journal()
    journal.write("note", {"text": "a"})
    assert journal.start(tmp_path / "j")
    journal.write("note", {"text": "b"})
    journal.close()
    assert kinds(tmp_path / "j") == ["a", "b"]
    assert (tmp_path / "j").stat().st_mode & 0o777 == 0o600


def test_a_full_disk_delays_and_the_torn_line_is_written_again(tmp_path, monkeypatch):
    journal, write = Journal(), os.write
    journal.start(tmp_path / "j")
    room = [3]

    def narrow(descriptor: int, data: bytes) -> int:
        if not room:
            return write(descriptor, data)
        left = room.pop()
        if left == 0:
            room.append(0)
            raise OSError(errno.ENOSPC, "full")
        room.append(0)
        return write(descriptor, data[:left])

    monkeypatch.setattr(os, "write", narrow)
    for text in "abc":
        journal.write("note", {"text": text})
    assert journal.num_errors == 3
    room.clear()
    journal.write("note", {"text": "d"})
    journal.close()
    assert kinds(tmp_path / "j") == [None, "a", "b", "c", "d"]


def test_what_waits_is_bounded_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "MAX_WAITING", 10)
    journal = Journal()
    for number in range(15):
        journal.write("note", {"text": str(number)})
    assert journal.num_dropped == 5
    journal.start(tmp_path / "j")
    assert len(kinds(tmp_path / "j")) == 10
    journal.close()


def test_an_abandoned_file_leaves_its_lines_to_the_next(tmp_path, monkeypatch):
    journal = Journal()
    journal.write("note", {"text": "a"})
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        assert not journal.start(tmp_path / "j")
    journal.abandon()
    assert not (tmp_path / "j").exists()
    assert journal.start(tmp_path / "k")
    assert kinds(tmp_path / "k") == ["a"]
    journal.close()


def test_an_existing_file_or_link_is_not_taken(tmp_path):
    (tmp_path / "there").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "new")
    for name in ("there", "link"):
        with pytest.raises(OSError):
            Journal().start(tmp_path / name)
    assert not (tmp_path / "new").exists()


def test_values_that_json_cannot_hold_are_written_as_text(tmp_path):
    journal = Journal()
    journal.start(tmp_path / "j")
    journal.write("note", {"text": tmp_path})
    journal.close()
    assert json.loads((tmp_path / "j").read_text())["text"] == str(tmp_path)
