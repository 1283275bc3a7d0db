"""The ring file: allocated in full, on the right file system, private, locked."""

import errno
import os
from pathlib import Path

import pytest

from rankscope.schema import decode, ring
from rankscope.schema.errors import CaptureError
from rankscope.tracer import ring_file

CAPACITY = 64


def make(folder: Path, tmpfs: Path | None = None) -> ring_file.RingFile:
    return ring_file.create("7.ring", 7, folder, tmpfs, CAPACITY)


def test_a_ring_is_allocated_in_full_and_opens(tmp_path):
    made = make(tmp_path / "base" / "launch")
    figures = made.path.stat()
    assert figures.st_size == ring.ring_bytes(CAPACITY)
    assert figures.st_blocks * 512 >= figures.st_size  # not sparse
    assert figures.st_mode & 0o777 == 0o600
    assert made.path.parent.stat().st_mode & 0o777 == 0o700
    header, view = decode.open_ring(str(made.path))
    assert (header.proc, header.capacity) == (7, CAPACITY)
    assert len(decode.snapshot(view, header)[0]) == 0
    os.close(made.descriptor)


def test_tmpfs_is_taken_where_it_is_roomy(tmp_path, monkeypatch):
    (tmp_path / "shm").mkdir()
    monkeypatch.setattr(ring_file, "file_system", lambda path: "tmpfs" if "shm" in str(path) else "ext4")
    made = make(tmp_path / "disk" / "rings", tmp_path / "shm" / "mine" / "rings")
    assert made.is_tmpfs and made.path.parent == tmp_path / "shm" / "mine" / "rings"


def test_a_small_tmpfs_is_left_to_the_job(tmp_path, monkeypatch):
    (tmp_path / "shm").mkdir()
    need = ring.ring_bytes(CAPACITY)
    monkeypatch.setattr(ring_file, "file_system", lambda path: "tmpfs" if "shm" in str(path) else "ext4")
    monkeypatch.setattr(
        ring_file, "_free_bytes", lambda path: need * (ring_file.ROOM_FACTOR - 1) if "shm" in str(path) else need
    )
    made = make(tmp_path / "disk" / "rings", tmp_path / "shm" / "rings")
    assert not made.is_tmpfs and made.path.parent == tmp_path / "disk" / "rings"
    assert list((tmp_path / "shm").iterdir()) == []


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "btrfs", "zfs", "fuse.sshfs", "virtiofs"])
def test_file_systems_whose_pages_can_fail_are_refused(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(ring_file, "file_system", lambda path: kind)
    with pytest.raises(CaptureError, match=kind):
        make(tmp_path / "base" / "launch")
    assert list(tmp_path.rglob("*.ring")) == []


def test_a_disk_that_cannot_allocate_leaves_no_file(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(CaptureError, match="No space left"):
        make(tmp_path / "base" / "launch")
    assert list(tmp_path.rglob("*.ring")) == []


def test_a_folder_that_others_could_have_made_is_refused(tmp_path):
    (tmp_path / "base").mkdir(mode=0o700)
    (tmp_path / "base" / "launch").mkdir()
    (tmp_path / "base" / "launch").chmod(0o777)
    with pytest.raises(CaptureError, match="this user alone"):
        make(tmp_path / "base" / "launch")


def test_a_linked_folder_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "base").mkdir(mode=0o700)
    (tmp_path / "base" / "launch").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CaptureError):
        make(tmp_path / "base" / "launch")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_file_system_is_that_of_the_innermost_mount(tmp_path, monkeypatch):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/sda rw\n"
        f"2 1 0:5 / {tmp_path} rw shared:1 - tmpfs tmpfs rw\n"
        f"3 2 0:6 / {tmp_path}/far rw - nfs4 server:/x rw\n"
        f"4 1 0:7 / {tmp_path}x rw - xfs /dev/sdb rw\n"
    )
    monkeypatch.setattr(ring_file, "MOUNTS", mounts)
    assert ring_file.file_system(tmp_path / "near") == "tmpfs"
    assert ring_file.file_system(tmp_path / "far" / "deep") == "nfs4"
    assert ring_file.file_system(Path("/")) == "ext4"
