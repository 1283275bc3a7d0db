"""Where rings, journals and the run would be written, by trying it: a ring is made and a file written, then removed."""

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from rankscope.schema import paths, ring
from rankscope.schema.errors import CaptureError

from . import ring_file
from .check import FINE, LIMITED, MISSING, NOTE, Check
from .rundir import RunDir
from .settings import Settings

NEED_BYTES: Final = 256 << 20
"""Local disk below which a warning is due: journals are small, but what cannot be sent is spooled here."""
_SHELL: Final = "/bin/sh"
_PATIENCE_SECONDS: Final = 20.0


def check_places(settings: Settings) -> Iterator[Check]:
    """Ring, journal, run directory, budget, agent."""
    yield _ring()
    yield _journal()
    yield _run_dir(settings)
    if settings.budget_bytes is not None:
        yield Check("budget", NOTE, f"RANKSCOPE_BUDGET_BYTES: {settings.budget_bytes:,} bytes per run and node; "
                    "over it whole steps are left out")  # fmt: skip
    yield _agent(settings)


def _ring() -> Check:
    size = ring.ring_bytes(ring.DEFAULT_CAPACITY)
    launch = f"doctor-{os.getpid()}"
    local, tmpfs = paths.local_base().absolute() / launch, paths.tmpfs_base() / launch
    try:
        made = ring_file.create("doctor.ring", 1, local, tmpfs, ring.DEFAULT_CAPACITY)
    except CaptureError as error:
        return Check("ring", MISSING, f"collectives and steps cannot be recorded: {error}",
                     "give the container a larger /dev/shm (docker run --shm-size), or set RANKSCOPE_LOCAL_DIR to a "
                     "local disk")  # fmt: skip
    finally:
        _remove(local, tmpfs)
    made.view.close()
    os.close(made.descriptor)
    if not made.is_tmpfs:
        return Check("ring", LIMITED, f"on {ring_file.file_system(local.parent) or 'disk'} below {local.parent}: "
                     "stores may wait for the disk", "give the container a larger /dev/shm")  # fmt: skip
    free = shutil.disk_usage(paths.TMPFS_BASE).free
    most = free // (ring_file.ROOM_FACTOR * size)
    return Check("ring", FINE, f"{size >> 10} KiB a rank on {paths.TMPFS_BASE}, where {free >> 20} MiB are free: room "
                 f"for about {most} ranks or more")  # fmt: skip


def _journal() -> Check:
    base = paths.local_base().absolute()
    try:
        ring_file.private_folder(base / f"doctor-{os.getpid()}")
    except CaptureError as error:
        return Check("local disk", LIMITED, f"{error}; journals go to {paths.TMPFS_BASE}",
                     "set RANKSCOPE_LOCAL_DIR to a folder of your own on a local disk")  # fmt: skip
    finally:
        _remove(base / f"doctor-{os.getpid()}")
    kind, free = ring_file.file_system(base.parent), shutil.disk_usage(base.parent).free
    if kind in ring_file.UNSAFE_FILE_SYSTEMS and kind not in ("btrfs", "zfs", "bcachefs"):
        return Check("local disk", LIMITED, f"{base} lies on {kind}: a training process would write over the network",
                     "set RANKSCOPE_LOCAL_DIR to a local disk")  # fmt: skip
    if free < NEED_BYTES:
        return Check(
            "local disk", LIMITED, f"{base}: {free >> 20} MiB free", "set RANKSCOPE_LOCAL_DIR to a roomier disk"
        )
    return Check("local disk", FINE, f"{base} ({kind or 'unknown file system'}), {free >> 20:,} MiB free")


def _run_dir(settings: Settings) -> Check:
    place = settings.run_dir or str(Path.cwd() / paths.RUNS_FOLDER)
    fix = "set RANKSCOPE_DIR to a folder or bucket that this user may write"
    try:
        if "://" in place:
            RunDir(place).probe()
        else:
            _try_folder(Path(place))
    except OSError as error:
        return Check("run directory", LIMITED, f"{place} cannot be written ({error.strerror or error}); rows would "
                     "stay on the local disk", fix)  # fmt: skip
    return Check("run directory", FINE, f"{place} can be written")


def _try_folder(folder: Path) -> None:
    """In the nearest folder that is there: nothing is left behind."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    descriptor, name = tempfile.mkstemp(prefix=".rankscope-doctor-", dir=folder)
    try:
        os.write(descriptor, bytes(8192))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
        os.unlink(name)


def _agent(settings: Settings) -> Check:
    if settings.agent == "off":
        return Check("agent", LIMITED, "RANKSCOPE_AGENT=off: no devices, NICs or host, and rows stay in local files",
                     "unset RANKSCOPE_AGENT")  # fmt: skip
    if settings.agent == "thread":
        return Check("agent", LIMITED, "RANKSCOPE_AGENT=thread: it runs in local rank 0, which then loads pyarrow",
                     "unset RANKSCOPE_AGENT where child processes are allowed")  # fmt: skip
    try:
        subprocess.run([_SHELL, "-c", "true &"], check=True, timeout=_PATIENCE_SECONDS, start_new_session=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Check("agent", MISSING, f"no child process can be started ({error})", "set RANKSCOPE_AGENT=thread")
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    limit = "" if most == resource.RLIM_INFINITY else f"; this user may have {most} processes and threads"
    return Check("agent", FINE, f"a child process can be started{limit}")


def _remove(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            folder.parent.rmdir()
