"""Reads single values from CUDA devices without ever waiting for them.

How: the value is copied into pinned host memory behind the work that is already in the current stream, and an event
follows it; `query` on the event says when it is there. The pinned buffer and the events are made once, at the first
use (that call may take a millisecond). Nothing is recorded while a stream captures a graph. Source: torch.cuda, 2.0.
"""

from typing import Any, Final

NUM_SLOTS: Final = 256


class CudaReader:
    """Implements `metrics.DeviceReader` for CUDA tensors."""

    __slots__ = ("_buffer", "_free", "_torch")

    def __init__(self) -> None:
        import torch

        self._torch: Any = torch
        self._buffer: Any = None
        self._free: list[int] = []

    def read(self, tensor: Any) -> "CudaValue | None":
        """See `metrics.DeviceReader.read`. None on other devices, during graph capture, or with all slots in use."""
        torch = self._torch
        if tensor.device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return None
        if self._buffer is None:
            self._buffer = torch.empty(NUM_SLOTS, dtype=torch.float64, pin_memory=True)
            self._free = list(range(NUM_SLOTS))
        if not self._free:
            return None
        slot = self._free.pop()
        with torch.no_grad(), torch.cuda.device(tensor.device):
            self._buffer[slot].copy_(tensor.detach().reshape(()), non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        return CudaValue(self, slot, event)

    def take(self, slot: int) -> float:
        """The value in `slot`, which is free again."""
        value = float(self._buffer[slot].item())
        self._free.append(slot)
        return value


class CudaValue:
    """One value on its way."""

    __slots__ = ("_event", "_reader", "_slot")

    def __init__(self, reader: CudaReader, slot: int, event: Any) -> None:
        self._reader, self._slot, self._event = reader, slot, event

    def value(self) -> float | None:
        """See `metrics.Pending.value`."""
        return self._reader.take(self._slot) if self._event.query() else None
