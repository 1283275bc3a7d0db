"""Checkpoints by safetensors: `save_file` and `load_file` of safetensors.torch (also under save_model and load_model).

How: the two names are replaced in that module; see `checkpoint_log`. Cannot see: `safe_open`, which maps a file and
reads parts of it when they are asked for; `from safetensors.torch import save_file` before the hook was installed.
Source: safetensors 0.4 and later.
"""

import functools
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from rankscope.schema.errors import HookUnavailable

from .base import Guard, Recorder, claim, patch
from .checkpoint_log import CheckpointLog, world_size

Wrapper = Callable[..., Any]


def install(recorder: Recorder, undo: ExitStack) -> None:
    """See `base.Hook`. Raises HookUnavailable without safetensors."""
    try:
        import safetensors.torch as library
    except ImportError as error:
        raise HookUnavailable(f"safetensors_files: {error}") from error
    if not claim("safetensors_files", undo):
        return
    log = CheckpointLog(recorder, Guard(recorder, "safetensors_files"))
    patch(library, "save_file", lambda original: _wrap(original, log, "save", 1), undo)
    patch(library, "load_file", lambda original: _wrap(original, log, "load", 0), undo)


def _wrap(original: Wrapper, log: CheckpointLog, action: str, position: int) -> Wrapper:
    """position: of the argument `filename`."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        path = args[position] if len(args) > position else kwargs.get("filename")
        operation = log.begin(action, "safetensors", path, world_size=world_size() if action == "save" else None)
        try:
            result = original(*args, **kwargs)
        except BaseException:
            log.ended(operation, is_failed=True)
            raise
        if operation is not None:
            operation.add_file(path)
        log.ended(operation)
        return result

    return call
