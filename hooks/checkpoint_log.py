"""Rows of table checkpoint: written when a save or load begins, and again when the training goes on and when it ends.

So one that never ended is visible (outcome `unfinished`). The rows go by the journal: two lines for a synchronous
operation, three for an asynchronous one. While the training is held up there is a span of kind checkpoint, and the step
is marked as left out. An operation inside another one (torch.save inside torch.distributed.checkpoint) is not told.

Digests on request (RANKSCOPE_CHECKPOINT_DIGESTS=1): the files are read again by a thread of their own, and the row
written once more. The digest of a checkpoint is the sum of those of its files, modulo 2**64, so the rows of all ranks
add up to it; that of a file is BLAKE2b of its name and contents.

Cost: about 100 us an operation and one `stat` a file; with digests, one more read of the files, beside the training.
"""

import hashlib
import itertools
import os
import sys
import threading
from typing import Any, Final

from rankscope.schema.enums import code

from . import base
from .base import Guard, Recorder, now_ns
from .spans import KINDS, PHASE_OF, SpanWriter
from .steps import clock_for

MAX_ROWS: Final = 10_000
"""Operations told per process; the rest is counted as dropped. A program that saves every second takes 3 hours."""
_BLOCK: Final = 1 << 20
_DATA_PHASE: Final = code("phase", "data")

Columns = dict[str, object]


class Operation:
    """A save or load in progress. files: paths of what this process wrote or read, None while nobody said."""

    __slots__ = ("columns", "files", "is_blocking", "num_bytes", "outer_phase", "outer_step", "span")

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.files: set[str] | None = None
        self.num_bytes: int | None = None
        self.is_blocking, self.span, self.outer_phase, self.outer_step = True, -1, 0, 0

    def add_file(self, path: object) -> None:
        """This process wrote or read `path`."""
        if self.files is None:
            self.files = set()
        self.files.add(os.fspath(path))  # type: ignore[call-overload]


class CheckpointLog:
    """Writes the rows of one hook. `begin` returns None where nothing is to be told; every other call takes that."""

    def __init__(self, recorder: Recorder, guard: Guard) -> None:
        self.recorder, self.guard = recorder, guard
        self._writer = SpanWriter(recorder, guard.hook)
        self._takes_digests = os.environ.get("RANKSCOPE_CHECKPOINT_DIGESTS", "").strip() == "1"

    def begin(self, action: str, form: str, place: object, mode: str = "sync", **columns: object) -> Operation | None:
        """A save or load of format `form` begins in this thread, at a path or address."""
        if self.guard.is_off or not self.recorder.is_on or current() is not None:
            return None
        if action == "load" and self.recorder.phase == _DATA_PHASE:  # a data set that reads its samples so
            return None
        entered = self.guard.enter()
        try:
            return self._begin(action, form, place, mode, columns)
        except Exception as error:  # noqa: BLE001
            self.guard.failed(error)
            return None
        finally:
            if entered:
                self.guard.leave(entered)

    def went_on(self, operation: Operation | None) -> None:
        """The call returned, the training goes on; the rest is done beside it."""
        if operation is None:
            return
        try:
            self._went_on(operation, is_failed=False)
            self._write(operation)
        except Exception as error:  # noqa: BLE001
            self.guard.failed(error)

    def ended(self, operation: Operation | None, *, is_failed: bool = False) -> None:
        """All is written or read, or the operation failed."""
        if operation is None:
            return
        try:
            if operation.is_blocking:
                self._went_on(operation, is_failed)
            self._end(operation, is_failed)
        except Exception as error:  # noqa: BLE001
            self.guard.failed(error)

    def _begin(self, action: str, form: str, place: object, mode: str, columns: Columns) -> Operation | None:
        number = next(_numbers)
        if number >= MAX_ROWS:
            self.guard.count_dropped(1)
            return None
        recorder = self.recorder
        global_step = recorder.global_step if recorder.global_step >= 0 else None
        operation = Operation({
            "record": number, "step": recorder.step, "global_step": global_step, "action": action, "mode": mode,
            "path": _told(place), "format": form, "start_ns": now_ns(), "outcome": "unfinished", **columns,
        })  # fmt: skip
        self._write(operation)
        clock_for(recorder).leave_out("checkpoint")
        operation.outer_phase, operation.outer_step = recorder.phase, recorder.step
        operation.span = self._writer.begin(KINDS["checkpoint"], self._writer.name(f"{form} {action}"))
        recorder.phase = PHASE_OF["checkpoint"]
        set_current(operation)
        return operation

    def _went_on(self, operation: Operation, is_failed: bool) -> None:
        operation.is_blocking = False
        set_current(None)
        operation.columns["blocking_end_ns"] = now_ns()
        self.recorder.phase = operation.outer_phase if operation.outer_step == self.recorder.step else 0
        self._writer.end(operation.span, is_failed)

    def _end(self, operation: Operation, is_failed: bool) -> None:
        columns = operation.columns
        is_sync = columns["mode"] == "sync"
        columns["end_ns"] = columns["blocking_end_ns"] if is_sync else columns.get("end_ns") or now_ns()
        columns["outcome"] = "failed" if is_failed else "ok"
        if operation.files is not None:
            columns["num_files"] = len(operation.files)
            columns["bytes"] = _size(operation)
        self._write(operation)
        self.guard.count_row()
        if self._takes_digests and operation.files and not is_failed:
            arguments = (self, operation)
            threading.Thread(target=_add_digest, args=arguments, name="rankscope-digest", daemon=True).start()

    def _write(self, operation: Operation) -> None:
        self.recorder.journal("row", table="checkpoint", row=dict(operation.columns))


def current() -> Operation | None:
    """The operation in progress in this thread."""
    found: Operation | None = getattr(_thread, "operation", None)
    return found


def set_current(operation: Operation | None) -> None:
    """This thread works on `operation` from now on."""
    _thread.operation = operation


def world_size() -> int:
    """Ranks of the default process group; 1 without one."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 1
    return int(distributed.get_world_size())


def _told(place: object) -> str | None:
    if place is None:
        return None
    text = os.fspath(place) if isinstance(place, (str, os.PathLike)) else str(place)
    text = text.decode(errors="replace") if isinstance(text, bytes) else text
    return base.redact(text if "://" in text else os.path.abspath(text))


def _size(operation: Operation) -> int | None:
    """Bytes of the files on disk; None where one cannot be looked at (an object store)."""
    if operation.num_bytes is not None:
        return operation.num_bytes
    try:
        return sum(os.stat(path).st_size for path in operation.files or ())
    except OSError:
        return None


def _add_digest(log: CheckpointLog, operation: Operation) -> None:
    try:
        total = sum(_file_digest(path) for path in operation.files or ())
        operation.columns["digest"] = f"{total % (1 << 64):016x}"
        log._write(operation)
    except OSError:  # gone or changed meanwhile: the row keeps a null
        return
    except Exception as error:  # noqa: BLE001
        log.guard.failed(error)


def _file_digest(path: str) -> int:
    found = hashlib.blake2b(os.path.basename(path).encode() + b"\0", digest_size=8)
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return int.from_bytes(found.digest(), "little")


_thread = threading.local()
_numbers = itertools.count()
