"""Is the process behind a ring file still alive?

A rank holds an exclusive record lock on its journal from before anybody can find it, and on its ring file, for as long
as it lives: the kernel drops them at any death, and they mean the same in every PID namespace of the host. A journal
says where the ring lies; until it does, its own lock counts, as it does for a process without a ring (capture off).

The locks are open-file-description locks (Linux 3.15): a process that reads its own files keeps them. Forked children
inherit such a lock with the descriptor, so they close theirs at once (`RingRecorder.forked`), and the descriptor of a
ring's lock is no other's: a map keeps a duplicate of the one that it was made from. Where the kernel has none of these
locks they are POSIX ones, which a process loses when it closes any descriptor of the file.
"""

import errno
import fcntl
import os
import struct
from typing import Final

_FLOCK: Final = "hhqqi4x"
_WHOLE_FILE: Final = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_UNKNOWN_COMMAND: Final = (errno.EINVAL, errno.ENOSYS)


def hold(descriptor: int) -> None:
    """Take the lock that says this process lives, or take it again. It goes when `descriptor` is closed.

    Raises OSError where somebody else holds it, or where the file system has no locks.
    """
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _WHOLE_FILE)
    except OSError as error:
        if error.errno not in _UNKNOWN_COMMAND:
            raise
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_alive(path: str) -> bool:
    """True while some process, be it this one, holds the record lock on `path`. A missing file is not alive.

    Only asks (F_GETLK): never takes the lock, so it cannot disturb the holder.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        answer = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, _WHOLE_FILE))
    finally:
        os.close(descriptor)
    return bool(answer[0] != fcntl.F_UNLCK)
