"""The journal's writer: rare things of one process, appended to a local file at once (see `rankscope.schema.journal`).

Until the process records its first row, lines wait in memory: a process that never does leaves no file behind.
A full disk never stops the training: lines wait (up to MAX_WAITING; what exceeds it is counted) and are written when
there is room again. Costs one system call a line, from any thread.
"""

import errno
import os
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Final

from rankscope.schema.journal import encode
from rankscope.schema.liveness import hold

MAX_WAITING: Final = 4096
"""Lines kept in memory while the file cannot be written; further ones are dropped and counted."""


class Journal:
    """One process's journal. `write` never raises for what the disk does."""

    def __init__(self) -> None:
        self.descriptor: int | None = None
        self.path: Path | None = None
        self.num_errors = 0
        self.num_dropped = 0
        self._is_torn = False
        self._waiting: deque[bytes] = deque()
        self._lock = threading.Lock()

    def start(self, path: Path) -> bool:
        """Create the file and write what waited; False if it takes no lines now. Raises OSError if there is none.

        The agent, which may be at work already, takes a journal without a lock for that of a dead process, drains what
        little there is, and deletes it: so the file gets its name when it has its lock.
        """
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        nameless = path.with_suffix(".new")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.descriptor, self.path = os.open(nameless, flags, 0o600), nameless
        try:
            with suppress(OSError):  # a file system without locks
                hold(self.descriptor)
            self.flush()
            nameless.rename(path)
        except BaseException:
            self.abandon()
            raise
        self.path = path
        return not self._waiting

    def write(self, kind: str, body: dict[str, object]) -> None:
        """Append one line, now or as soon as the file can take it."""
        line = encode(kind, time.monotonic_ns(), body)
        with self._lock:
            if len(self._waiting) >= MAX_WAITING:
                self.num_dropped += 1
            else:
                self._waiting.append(line)
            self._drain()

    def flush(self) -> None:
        """Try again to write what waits."""
        with self._lock:
            self._drain()

    def abandon(self) -> None:
        """Remove the file just started; its lines go to the next one."""
        if self.descriptor is not None and self.path is not None:
            os.close(self.descriptor)
            self.path.unlink(missing_ok=True)
        self.descriptor, self.path, self._is_torn = None, None, False

    def close(self) -> None:
        """Close the file, which drops the lock on it. Later lines only wait."""
        with self._lock:
            self._drain()
            descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def forget(self) -> None:
        """In a forked child: close our copy of the descriptor, write nothing more. The parent's file is untouched."""
        descriptor, self.descriptor = self.descriptor, None
        self._waiting, self._lock, self._is_torn, self.path = deque(), threading.Lock(), False, None
        if descriptor is not None:
            os.close(descriptor)

    def _drain(self) -> None:
        while self._waiting and self.descriptor is not None:
            line = self._waiting[0]
            if self._is_torn:
                line = b"\n" + line
            try:
                written = os.write(self.descriptor, line)
            except OSError:
                self.num_errors += 1
                return
            if written < len(line):
                # the disk filled up in the middle of a line: readers skip the stump, the whole line follows later
                self.num_errors += 1
                self._is_torn = True
                return
            self._is_torn = False
            self._waiting.popleft()
