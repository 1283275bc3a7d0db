"""Checkpoints by `torch.save` and `torch.load`: time, file, bytes, world size, how it ended. See `checkpoint_log`.

How: both names are replaced in `torch` and in `torch.serialization`. Told are files, by path or as open file objects;
buffers in memory are not checkpoints, and a load while the training waits for data is a data set's. What
torch.distributed.checkpoint writes in threads of its own goes through torch.save as well: while one of those is in
progress, file objects are its.

Cannot see: `from torch import save` before the hook was installed; files written by pickle or numpy; torch.jit.save.
Source: torch.serialization (2.0 and later).
"""

import functools
import io
import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from rankscope.schema.errors import HookUnavailable

from . import distributed_checkpoints
from .base import Guard, Recorder, claim, patch
from .checkpoint_log import CheckpointLog, Operation, world_size
from .dynamo import hide_our_code

Wrapper = Callable[..., Any]


def install(recorder: Recorder, undo: ExitStack) -> None:
    """See `base.Hook`. Raises HookUnavailable without torch."""
    try:
        import torch
        import torch.serialization as serialization
    except ImportError as error:
        raise HookUnavailable(f"checkpoints: {error}") from error
    if not claim("checkpoints", undo):
        return
    log = CheckpointLog(recorder, Guard(recorder, "checkpoints"))
    for module in (serialization, torch):
        patch(module, "save", lambda original: _wrap_save(original, log), undo)
        patch(module, "load", lambda original: _wrap_load(original, log), undo)
    hide_our_code()


def _wrap_save(original: Wrapper, log: CheckpointLog) -> Wrapper:
    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        file = args[1] if len(args) > 1 else kwargs.get("f")
        path = _path(file)
        if path is None:
            return original(*args, **kwargs)
        operation = log.begin("save", "torch", path, world_size=world_size())
        start = _position(file)
        try:
            result = original(*args, **kwargs)
        except BaseException:
            log.ended(operation, is_failed=True)
            raise
        _note_file(operation, path, file, start)
        log.ended(operation)
        return result

    return save


def _wrap_load(original: Wrapper, log: CheckpointLog) -> Wrapper:
    @functools.wraps(original)
    def load(*args: Any, **kwargs: Any) -> Any:
        path = _path(args[0] if args else kwargs.get("f"))
        if path is None:
            return original(*args, **kwargs)
        operation = log.begin("load", "torch", path)
        try:
            result = original(*args, **kwargs)
        except BaseException:
            log.ended(operation, is_failed=True)
            raise
        if operation is not None:
            operation.add_file(path)
        log.ended(operation)
        return result

    return load


def _path(file: Any) -> str | None:
    """The path behind what torch.save takes; None for a buffer, or what is part of a distributed checkpoint."""
    try:
        if isinstance(file, (str, os.PathLike)):
            return str(os.fspath(file))
        if isinstance(file, io.BytesIO) or distributed_checkpoints.num_active():
            return None
        name = getattr(file, "name", None)
        return name if isinstance(name, str) else None
    except Exception:  # noqa: BLE001  the user's own objects; torch will say what is wrong with them
        return None


def _position(file: Any) -> int | None:
    """Where the next byte goes, of an open file."""
    try:
        return None if isinstance(file, (str, os.PathLike)) else int(file.tell())
    except Exception:  # noqa: BLE001  the user's own objects
        return None


def _note_file(operation: Operation | None, path: str, file: Any, start: int | None) -> None:
    """What was written; an open file still holds a part of it in its buffer, so its position counts."""
    if operation is None:
        return
    operation.add_file(path)
    end = _position(file)
    if start is not None and end is not None:
        operation.num_bytes = end - start
