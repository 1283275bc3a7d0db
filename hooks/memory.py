"""Memory at step ends: one row in table `memory` per step, of torch's allocator and of the process.

How: a listener of the step clock reads the caching allocator's own counters (no synchronisation, no call into the
driver) and the kernel's `statm` of this process. Peaks are the allocator's running maxima: they are written where they
moved, and never reset, since they are the job's; where the job resets them, the next rise counts anew.

Cost: 10 to 20 us a step without CUDA, half of it the read of `statm`; with CUDA it was not measured. Cannot see: memory
that torch does not allocate (NCCL, cuDNN, the context; table `device_sample` has all of it), devices other than the
current one, anything while a graph is captured.
Without the steps hook a reading is taken after every step of an optimizer, with no step number.
Source: torch.cuda.memory_stats, torch 2.0.
"""

import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any, Final, NamedTuple, Protocol

from rankscope.schema.ring import layout_of

from .base import Guard, Recorder, claim, is_claimed, now_ns
from .steps import clock_for

NONE: Final = -1
"""What a ring holds for null."""
STATM: Final = "/proc/self/statm"

_LAYOUT: Final = layout_of("memory")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class AllocatorReading(NamedTuple):
    """The counters of one device's allocator, in bytes and numbers; peaks since the job last reset them."""

    device_uuid: str | None
    allocated: int
    reserved: int
    active: int
    inactive_split: int
    peak_allocated: int
    peak_reserved: int
    num_alloc_retries: int
    num_ooms: int


class Allocator(Protocol):
    """Where the readings come from: CUDA, or numbers in a test."""

    def read(self) -> AllocatorReading | None:
        """A reading of the current device, without waiting for it; None where there is none now."""
        ...


class Resident(Protocol):
    """Where the resident memory comes from: the kernel, or a number in a test."""

    def read(self) -> int:
        """Bytes; NONE where it is not known."""
        ...

    def close(self) -> None:
        """No further reading."""
        ...


class CudaAllocator:
    """torch.cuda's caching allocator (CUDA and ROCm), once the job has initialised it."""

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._uuids: dict[int, str | None] = {}

    def read(self) -> AllocatorReading | None:
        """See `Allocator`."""
        cuda = self._cuda
        if not cuda.is_initialized() or cuda.is_current_stream_capturing():
            return None
        index = cuda.current_device()
        stats: Mapping[str, Any] = cuda.memory_stats_as_nested_dict(index)
        if not stats:
            return None
        if index not in self._uuids:
            self._uuids[index] = device_uuid(cuda, index)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        return AllocatorReading(
            self._uuids[index], allocated["current"], reserved["current"], stats["active_bytes"]["all"]["current"],
            stats["inactive_split_bytes"]["all"]["current"], allocated["peak"], reserved["peak"],
            stats["num_alloc_retries"], stats["num_ooms"],
        )  # fmt: skip


class ResidentMemory:
    """Implements `Resident`: through one descriptor that stays open; a forked child opens its own."""

    def __init__(self, path: str = STATM) -> None:
        self._path, self._pid, self._descriptor = path, 0, -1

    def read(self) -> int:
        """Bytes; NONE where the kernel does not say."""
        if self._pid != os.getpid():
            self._open()
        if self._descriptor < 0:
            return NONE
        return int(os.pread(self._descriptor, 128, 0).split(b" ", 2)[1]) * _PAGE_BYTES

    def close(self) -> None:
        """Close it. A child closes what it inherited as well."""
        descriptor, self._descriptor, self._pid = self._descriptor, -1, 0
        if descriptor >= 0:
            with suppress(OSError):
                os.close(descriptor)

    def _open(self) -> None:
        self.close()
        self._pid = os.getpid()
        with suppress(OSError):
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)


class MemoryLog:
    """Writes the readings of one process; `boundary` is told of every step end."""

    __slots__ = ("_allocator", "_peaks", "_recorder", "_resident", "_uuids", "guard")

    def __init__(self, recorder: Recorder, allocator: Allocator, resident: Resident | None = None) -> None:
        self._recorder, self.guard = recorder, Guard(recorder, "memory")
        self._allocator: Allocator = allocator
        self._resident: Resident = resident or ResidentMemory()
        self._peaks: dict[str, tuple[int, int]] = {}
        self._uuids: dict[str, int] = {}

    def boundary(self) -> None:
        """A step has ended; the recorder already stands in the next one."""
        guard = self.guard
        if guard.is_off or not self._recorder.is_on or self._recorder.is_shadow:
            return
        entered = guard.enter()
        try:
            self._write(max(NONE, self._recorder.step - 1))
        except Exception as error:  # noqa: BLE001
            guard.failed(error)
        if entered:
            guard.leave(entered)

    def close(self) -> None:
        """The recording ends."""
        self._resident.close()

    def _write(self, step: int) -> None:
        found, rss = self._allocator.read(), self._resident.read()
        if found is None and rss == NONE:
            return
        time_ns, numbers = now_ns(), (NONE,) * 6
        uuid, retries, ooms = 0, NONE, NONE
        if found is not None:
            numbers = (found.allocated, found.reserved, found.active, found.inactive_split, *self._moved(found))
            uuid, retries, ooms = self._interned(found.device_uuid), found.num_alloc_retries, found.num_ooms
        # In the order of the layout: 8-byte columns first.
        self._recorder.write(_LAYOUT, time_ns, *numbers, rss, step, uuid, retries, ooms)
        self.guard.count_row()

    def _moved(self, found: AllocatorReading) -> tuple[int, int]:
        """The peaks that rose since the last reading, NONE for the others."""
        key = found.device_uuid or ""
        allocated, reserved = self._peaks.get(key, (NONE, NONE))
        self._peaks[key] = (found.peak_allocated, found.peak_reserved)
        return (
            found.peak_allocated if found.peak_allocated > allocated else NONE,
            found.peak_reserved if found.peak_reserved > reserved else NONE,
        )

    def _interned(self, uuid: str | None) -> int:
        if uuid is None:
            return 0
        if uuid not in self._uuids:
            self._uuids[uuid] = self._recorder.intern(uuid)
        return self._uuids[uuid]


def device_uuid(cuda: Any, index: int) -> str | None:
    """The UUID of a CUDA device as the driver's library writes it; None where torch does not tell (before 2.4)."""
    uuid = getattr(cuda.get_device_properties(index), "uuid", None)
    if uuid is None:
        return None
    text = str(uuid)
    return text if text.startswith(("GPU-", "MIG-")) else f"GPU-{text}"


def install(recorder: Recorder, undo: ExitStack) -> None:
    """See `base.Hook`."""
    if not claim("memory", undo):
        return
    log, clock = MemoryLog(recorder, CudaAllocator(sys.modules["torch"].cuda)), clock_for(recorder)
    undo.callback(log.close)
    listener = log.boundary
    clock.listeners.append(listener)
    undo.callback(clock.listeners.remove, listener)
    if not is_claimed("steps"):
        from torch.optim.optimizer import register_optimizer_step_post_hook

        handle = register_optimizer_step_post_hook(lambda *_: listener())
        undo.callback(handle.remove)
