"""Is the process behind a ring file still alive?

A rank holds an exclusive fcntl record lock on its ring file for as long as it lives: the kernel drops it at any death,
forked children do not inherit it, and it means the same in every PID namespace of the host. A process without a ring
(capture off) holds it on its journal instead.
"""

import fcntl
import os
import struct

_FLOCK = "hhqqi4x"


def is_alive(path: str) -> bool:
    """True while some process holds the record lock on `path`. A missing file is not alive.

    Only asks (F_GETLK): never takes the lock, so it cannot disturb the holder. Must not be called by the holder's own
    process, which would be told that nobody holds it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        probe = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, probe))
    finally:
        os.close(descriptor)
    return bool(answer[0] != fcntl.F_UNLCK)
