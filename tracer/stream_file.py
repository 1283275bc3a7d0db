"""Appending to an Arrow IPC stream, a batch at a time, so that what was appended survives the process and the node.

A batch is built in memory and written with one call, then brought to the disk. If that fails the file is cut back to
its last whole batch, and the stream must be given up: its writer has told the reader things that never arrived.
"""

import os
from typing import Any, Final

import pyarrow as pa

from rankscope.schema.arrow import arrow_schema

_OPTIONS: Final = {"compression": "lz4", "use_threads": False}


class StreamFile:
    """One growing stream of one table. Raises OSError where the file cannot be made (or is there already)."""

    def __init__(self, path: str, table: str) -> None:
        self.path, self.num_bytes = path, 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        self._sink = _Gathering()
        self._writer = pa.ipc.new_stream(self._sink, arrow_schema(table), options=pa.ipc.IpcWriteOptions(**_OPTIONS))

    def append(self, rows: pa.Table) -> None:
        """Write `rows` as one batch and bring them to the disk. Raises OSError; the stream is then of no more use."""
        for batch in rows.combine_chunks().to_batches():
            self._writer.write_batch(batch)
        data = memoryview(self._sink.take())
        try:
            written = 0
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
            os.fdatasync(self._descriptor)
        except OSError:
            self._cut_back()
            raise
        self.num_bytes += len(data)

    def close(self) -> None:
        """Close the file, without an end marker: a reader takes what is whole."""
        os.close(self._descriptor)

    def _cut_back(self) -> None:
        try:
            os.ftruncate(self._descriptor, self.num_bytes)
        except OSError:
            return


class _Gathering:
    """A sink that keeps what it is given until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        return len(part)

    def flush(self) -> None:
        """Nothing to do: the owner writes."""

    def take(self) -> bytes:
        found, self._parts = b"".join(self._parts), []
        return found
