"""Where the ring lies and how it is made, so that a store into it can neither fail nor wait for a disk.

A store into a mapped page without a block behind it raises SIGBUS, which no guard catches. So the file is allocated in
full before it is mapped, every page is touched, and file systems that take a new block for each write-back
(copy-on-write), or that lie behind a network, are refused. Pages of a disk can stall a store under write-back, so tmpfs
comes first where it is roomy: containers often give /dev/shm 64 MB, which NCCL and data loaders need.

Making one takes 1 to 10 ms. The process holds the record lock of `rankscope.schema.liveness` on it until it dies.
"""

import mmap
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rankscope.schema import ring
from rankscope.schema.errors import CaptureError
from rankscope.schema.liveness import hold
from rankscope.schema.ring_header import RingHeader, encode_header
from rankscope.schema.version import ONTOLOGY_VERSION

ROOM_FACTOR: Final = 10
"""tmpfs is used only where this many times the need is free."""
MOUNTS: Final = Path("/proc/self/mountinfo")
MEMORY_FILE_SYSTEMS: Final = frozenset({"tmpfs", "ramfs"})
UNSAFE_FILE_SYSTEMS: Final = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "ceph", "glusterfs", "beegfs", "afs", "orangefs", "9p", "virtiofs",
    "btrfs", "zfs", "bcachefs",
})  # fmt: skip
_OPEN: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class RingFile:
    """A ring that is allocated, mapped and locked. descriptor: holds the lock, and nothing else."""

    path: Path
    view: mmap.mmap
    descriptor: int
    capacity: int
    is_tmpfs: bool


def create(name: str, proc: int, local_folder: Path, tmpfs_folder: Path | None, capacity: int) -> RingFile:
    """Allocate, map, touch and lock a new ring called `name`, on tmpfs by the rule, else in `local_folder`.

    Raises CaptureError, which gives the reason for each place that was refused.
    """
    reasons = []
    for folder in (tmpfs_folder, local_folder):
        if folder is None:
            continue
        try:
            return _create_in(folder, name, proc, capacity)
        except (OSError, CaptureError) as error:
            reasons.append(f"{folder}: {getattr(error, 'strerror', None) or error}")
    raise CaptureError("no place for the ring (" + "; ".join(reasons) + ")")


def private_folder(folder: Path) -> Path:
    """Make `folder` and its parent with mode 0700. Raises CaptureError where another user could have made them."""
    for part in (folder.parent, folder):
        try:
            part.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise CaptureError(f"{part}: {error.strerror}") from error
        found = part.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise CaptureError(f"{part} is not a folder of this user alone (mode 0700)")
    return folder


def file_system(path: Path) -> str:
    """Type of the file system that holds `path`, as the kernel names it; "" where it does not tell."""
    target, best, found = os.path.realpath(path), "", ""
    for mount_point, kind in _mounts():
        inside = mount_point in ("/", target) or target.startswith(mount_point + "/")
        if inside and len(mount_point) >= len(best):
            best, found = mount_point, kind
    return found


def keep_lock(made: RingFile) -> None:
    """Take the lock again: where it is a POSIX one, an agent in a thread, which opens its own process's ring, drops it.

    Raises OSError where the descriptor is no longer open: the training closed descriptors it did not open.
    """
    if _is_ours(made):
        hold(made.descriptor)


def let_go(made: RingFile) -> None:
    """Close what holds the lock, unless the training closed it, and has another file under its number."""
    with suppress(OSError):
        if _is_ours(made):
            os.close(made.descriptor)


def _create_in(folder: Path, name: str, proc: int, capacity: int) -> RingFile:
    size, base = ring.ring_bytes(capacity), _existing(folder)
    kind = file_system(base)
    if kind in UNSAFE_FILE_SYSTEMS or kind.startswith("fuse"):
        raise CaptureError(f"on {kind} a mapped file is not safe")
    is_tmpfs = kind in MEMORY_FILE_SYSTEMS
    free, need = _free_bytes(base), ROOM_FACTOR * size if is_tmpfs else size
    if free < need:
        raise CaptureError(f"{free >> 10} KiB free on {kind or 'disk'}, {need >> 10} KiB needed")
    path = private_folder(folder) / name
    descriptor = os.open(path, _OPEN | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        view = _allocated(descriptor, size)
        _touch(view, proc, capacity)
        return RingFile(path, view, _locked(path), capacity, is_tmpfs)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _allocated(descriptor: int, size: int) -> mmap.mmap:
    """A map of the file, which keeps a duplicate of `descriptor`; this one is closed."""
    try:
        os.posix_fallocate(descriptor, 0, size)
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)


def _locked(path: Path) -> int:
    """A descriptor that the map does not share: a forked child, which keeps the map, can let go of the lock."""
    descriptor = os.open(path, _OPEN)
    try:
        hold(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_ours(made: RingFile) -> bool:
    mine, there = os.fstat(made.descriptor), made.path.lstat()
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


def _touch(view: mmap.mmap, proc: int, capacity: int) -> None:
    for offset in range(0, len(view), mmap.PAGESIZE):
        view[offset] = 0
    view[: ring.HEADER_BYTES] = encode_header(RingHeader(proc, capacity, ONTOLOGY_VERSION, time.monotonic_ns()))


def _existing(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _free_bytes(folder: Path) -> int:
    figures = os.statvfs(folder)
    return figures.f_bavail * figures.f_frsize


def _mounts() -> Iterator[tuple[str, str]]:
    """Mount point and type of each mount, in the kernel's order (later ones lie over earlier ones)."""
    try:
        text = MOUNTS.read_text(errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ", 1)[0]
        if len(fields) > 4:
            yield fields[4].replace("\\040", " "), kind
