"""Checkpoints by `torch.distributed.checkpoint`: save, async_save and load. See `checkpoint_log`.

How: the three functions are replaced in the package and in their modules. Which files this process wrote or read, and
the mesh of the tensors in them, is seen at the file system's writer and reader; rank 0's row holds the metadata file
too, so over the ranks of a save the rows add up to the folder. async_save calls save in a thread of its own, which is
joined to its row; with a process of its own only times are seen, files and bytes are null.

A load's world size is the one that the checkpoint was written with, from the names of its files. What the whole
checkpoint holds, and which share of it the ranks asked for, is told by the rank that plans (`checkpoint_extent`).
Cannot see: the deprecated save_state_dict and load_state_dict; files of storage writers that are not the file
system's. Source: torch.distributed.checkpoint (2.6 and later).
"""

import functools
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from rankscope.schema.errors import HookUnavailable

from .base import Guard, Recorder, claim, now_ns, patch
from .checkpoint_extent import WRITER, note_extent
from .checkpoint_log import CheckpointLog, Operation, current, set_current, world_size
from .dynamo import hide_our_code

Wrapper = Callable[..., Any]
MAX_TENSORS: Final = 1000
"""Entries of a state dict that are looked at for one with a mesh."""


def num_active() -> int:
    """Operations of this process that are in progress, in whichever thread."""
    return _count[0]


def install(recorder: Recorder, undo: ExitStack) -> None:
    """See `base.Hook`. Raises HookUnavailable where torch has no distributed checkpoints."""
    try:
        import torch.distributed.checkpoint as package
        from torch.distributed.checkpoint import filesystem, state_dict_loader, state_dict_saver
    except ImportError as error:
        raise HookUnavailable(f"distributed_checkpoints: {error}") from error
    if not claim("distributed_checkpoints", undo):
        return
    guard = Guard(recorder, "distributed_checkpoints")
    log, waiting = CheckpointLog(recorder, guard), _Waiting()
    for module in (state_dict_saver, package):
        patch(module, "save", lambda original: _wrap_save(original, log, waiting), undo)
        patch(module, "async_save", lambda original: _wrap_async(original, log, waiting), undo)
    for module in (state_dict_loader, package):
        patch(module, "load", lambda original: _wrap_load(original, log), undo)
    writer, reader = getattr(filesystem, "_FileSystemWriter", filesystem.FileSystemWriter), filesystem.FileSystemReader
    patch(writer, "_write_data", lambda original: _wrap_write(original, guard), undo)
    for owner, name, note in (
        (writer, "finish", _finished), (reader, "read_data", _read), (reader, "read_metadata", _read_metadata),
        (reader, "prepare_global_plan", _planned),
    ):  # fmt: skip
        patch(owner, name, functools.partial(_wrap_storage, note=note, guard=guard), undo)
    hide_our_code()


class _Waiting:
    """Asynchronous saves whose thread has not begun yet, by their arguments."""

    def __init__(self) -> None:
        self._lock, self._found = threading.Lock(), list[tuple[tuple[object, int], Operation]]()

    def add(self, operation: Operation | None, kwargs: dict[str, Any]) -> None:
        if operation is not None:
            with self._lock:
                self._found.append((_key(kwargs), operation))

    def take(self, kwargs: dict[str, Any]) -> Operation | None:
        """The oldest one with these arguments, unless this is the thread that began it."""
        with self._lock:
            for index, (key, operation) in enumerate(self._found):
                if key == _key(kwargs) and operation is not current():
                    return self._found.pop(index)[1]
        return None

    def drop(self, operation: Operation | None) -> None:
        with self._lock:
            self._found = [item for item in self._found if item[1] is not operation]


def _key(kwargs: dict[str, Any]) -> tuple[object, int]:
    place = kwargs.get("checkpoint_id")
    return None if place is None else str(place), id(kwargs.get("storage_writer"))


def _wrap_save(original: Wrapper, log: CheckpointLog, waiting: _Waiting) -> Wrapper:
    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        background = waiting.take(kwargs)
        if background is not None:
            return _save_beside(original, background, args, kwargs)
        operation = log.begin("save", "dcp", _place(kwargs, "storage_writer"), world_size=_ranks(kwargs))
        return _run(original, log, operation, args, kwargs)

    return save


def _wrap_load(original: Wrapper, log: CheckpointLog) -> Wrapper:
    @functools.wraps(original)
    def load(*args: Any, **kwargs: Any) -> Any:
        operation = log.begin("load", "dcp", _place(kwargs, "storage_reader"))
        return _run(original, log, operation, args, kwargs)

    return load


def _run(
    original: Wrapper, log: CheckpointLog, operation: Operation | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:  # fmt: skip
    _count[0] += 1
    try:
        result = original(*args, **kwargs)
    except BaseException:
        log.ended(operation, is_failed=True)
        raise
    finally:
        _count[0] -= 1
    log.ended(operation)
    return result


def _save_beside(original: Wrapper, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The part of an asynchronous save that its own thread does; the row is written when its future is done."""
    _count[0] += 1
    set_current(operation)
    try:
        return original(*args, **kwargs)
    finally:
        set_current(None)
        operation.columns["end_ns"] = now_ns()
        _count[0] -= 1


def _wrap_async(original: Wrapper, log: CheckpointLog, waiting: _Waiting) -> Wrapper:
    @functools.wraps(original)
    def async_save(*args: Any, **kwargs: Any) -> Any:
        place = _place(kwargs, "storage_writer")
        operation = log.begin("save", "dcp", place, mode="async", world_size=_ranks(kwargs))
        waiting.add(operation, kwargs)
        try:
            response = original(*args, **kwargs)
        except BaseException:
            waiting.drop(operation)
            log.ended(operation, is_failed=True)
            raise
        log.went_on(operation)
        _when_done(response, operation, log, waiting)
        return response

    return async_save


def _when_done(response: Any, operation: Operation | None, log: CheckpointLog, waiting: _Waiting) -> None:
    if operation is None:
        return

    def done(future: Any) -> None:
        waiting.drop(operation)  # a save in a process of its own was not taken
        try:
            is_failed = future.cancelled() or future.exception() is not None
        except Exception as error:  # noqa: BLE001
            log.guard.failed(error)
            return
        log.ended(operation, is_failed=is_failed)

    try:
        getattr(response, "upload_completion", response).add_done_callback(done)
    except Exception as error:  # noqa: BLE001
        log.guard.failed(error)


def _wrap_storage(original: Wrapper, *, note: Callable[..., None], guard: Guard) -> Wrapper:
    """`original`, after which `note` is told of it, while an operation of ours is in progress in this thread."""

    @functools.wraps(original)
    def call(storage: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(storage, *args, **kwargs)
        operation = current()
        if operation is not None and not guard.is_off:
            try:
                note(operation, storage, args, kwargs, result)
            except Exception as error:  # noqa: BLE001
                guard.failed(error)
        return result

    return call


def _wrap_write(original: Wrapper, guard: Guard) -> Wrapper:
    """`_write_data(planner, file_queue)`: the queue holds (path, name, items) of every file, also of empty ones."""

    @functools.wraps(original)
    def write_data(storage: Any, planner: Any, file_queue: Any, *args: Any, **kwargs: Any) -> Any:
        operation = current()
        if operation is not None and not guard.is_off:
            try:
                operation.files = operation.files or set()
                for path, *_ in list(file_queue.queue):
                    operation.add_file(path)
                _note_layout(operation, planner)
            except Exception as error:  # noqa: BLE001
                guard.failed(error)
        return original(storage, planner, file_queue, *args, **kwargs)

    return write_data


def _finished(operation: Operation, storage: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """`finish` on the coordinator: the metadata file is there now."""
    alone = storage.rank if not getattr(storage, "use_collectives", True) else None
    path = storage._get_metadata_path(alone) if alone is not None else storage._get_metadata_path()
    operation.add_file(path)


def _read(operation: Operation, storage: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """`read_data(plan, planner)`: the files of the plan's items."""
    plan = args[0] if args else kwargs["plan"]
    known = storage.storage_data
    operation.files = operation.files or set()
    for name in {known[item.storage_index].relative_path for item in plan.items}:
        operation.add_file(storage.fs.concat_path(storage.path, name))
    found = (WRITER.search(name) for name in {str(info.relative_path) for info in known.values()})
    writers = [int(match[1]) for match in found if match]
    operation.columns["world_size"] = max(writers) + 1 if writers else None


def _read_metadata(
    operation: Operation, storage: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:  # fmt: skip
    operation.add_file(storage._get_metadata_path(kwargs.get("rank")))


def _planned(operation: Operation, storage: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """`prepare_global_plan(plans)` on the coordinator: what all ranks are going to read."""
    note_extent(operation, storage, result)


def _note_layout(operation: Operation, planner: Any) -> None:
    """The mesh of the first tensor that has one: dimensions and sizes, such as "dp=2,tp=2" or "2x2" without names."""
    entries = getattr(planner, "state_dict", None) or {}
    for _, value in zip(range(MAX_TENSORS), entries.values(), strict=False):
        mesh = getattr(value, "device_mesh", None)
        if mesh is not None:
            names, sizes = mesh.mesh_dim_names, tuple(mesh.mesh.shape)
            pairs = zip(names, sizes, strict=True) if names else ()
            operation.columns["layout"] = ",".join(f"{name}={size}" for name, size in pairs) or "x".join(
                map(str, sizes)
            )
            return


def _place(kwargs: dict[str, Any], storage: str) -> object:
    place = kwargs.get("checkpoint_id")
    if place is not None:
        return place
    found: object = getattr(kwargs.get(storage), "path", None)
    return found if isinstance(found, (str, os.PathLike)) else None


def _ranks(kwargs: dict[str, Any]) -> int:
    group = kwargs.get("process_group")
    return world_size() if group is None else int(group.size())


_count = [0]
