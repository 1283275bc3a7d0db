"""Scalars from the job (`rankscope.log`): numbers, and tensors of one element, as rows of table `metric`.

A CPU tensor is read at once. A tensor on a device is copied asynchronously behind the work already in its stream, and
read at a later call once an event says that the copy is done: nothing waits. What is not ready when the job ends is
counted as dropped. Left out with one note in the journal: text, tensors of several elements, tensors whose reading
would communicate or wait (sharded or partial DTensors, results of pending functional collectives), everything while a
graph is captured.

Cost: about 3 us a number; a device value is one small copy and one event. Needs no torch for numbers.
"""

import sys
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple, Protocol

from rankscope.schema.ring import layout_of

from .base import Guard, Recorder, now_ns

MAX_PENDING: Final = 256
"""Device values on their way at once; more are dropped and counted."""
MAX_NAMES: Final = 1024

_LAYOUT: Final = layout_of("metric")
_DROPPED: Final = 5


class Pending(Protocol):
    """A value on its way from a device."""

    def value(self) -> float | None:
        """The value, or None while it is not there yet; never waits."""
        ...


class DeviceReader(Protocol):
    """Begins to copy one-element tensors from devices."""

    def read(self, tensor: Any) -> Pending | None:
        """Start the copy; None if that cannot be done now."""
        ...


class _Row(NamedTuple):
    """A row whose value is to come."""

    pending: Pending
    global_step: int
    time_ns: int
    step: int
    name: int
    is_replicated: bool


class MetricLog:
    """Writes the job's scalars; one per session."""

    __slots__ = ("_names", "_pending", "_reader", "_refused", "guard", "recorder")

    def __init__(self, recorder: Recorder, reader: DeviceReader | None = None, hook: str = "metrics") -> None:
        """reader: how device tensors are read; CUDA's way if none is given. hook: under whose name rows are counted."""
        self.recorder, self.guard = recorder, Guard(recorder, hook)
        self._reader = reader
        self._names: dict[str, int] = {}
        self._pending: list[_Row] = []
        self._refused: set[str] = set()

    def log(
        self,
        scalars: Mapping[str, object],
        step: int | None = None,
        replicated: Collection[str] = (),
        of_step: int | None = None,
    ) -> None:
        """Write `scalars`; step: that of the whole training; replicated: names that should be equal on all ranks.

        of_step: the step ordinal they belong to, where that is not the current one.
        """
        guard = self.guard
        if guard.is_off or not self.recorder.is_on:
            return
        entered = guard.enter()
        try:
            if self._pending:
                self.poll()
            global_step = self.recorder.global_step if step is None else int(step)
            for name, value in scalars.items():
                self._take(name, value, global_step, name in replicated, of_step)
        except Exception as error:  # noqa: BLE001
            guard.failed(error)
        if entered:
            guard.leave(entered)

    def poll(self) -> None:
        """Write what has arrived from devices; called at every log and worth calling at step boundaries."""
        waiting, self._pending = self._pending, []
        for row in waiting:
            value = row.pending.value()
            if value is None:
                self._pending.append(row)
            else:
                self._write(row.global_step, row.time_ns, value, row.step, row.name, row.is_replicated)

    def finish(self) -> None:
        """The job ends: write what has arrived, count the rest as dropped."""
        try:
            self.poll()
            self.guard.count_dropped(len(self._pending))
            self._pending = []
        except Exception as error:  # noqa: BLE001
            self.guard.failed(error)

    def _take(
        self, name: str, value: object, global_step: int, is_replicated: bool, of_step: int | None = None
    ) -> None:
        now, step = now_ns(), self.recorder.step if of_step is None else of_step
        try:
            found = self._read(value)
        except (RuntimeError, TypeError, ValueError, OverflowError) as error:  # a strange value, not a fault of ours
            found = f"{type(error).__name__} when reading a {type(value).__name__}"
        if isinstance(found, float):
            self._write(global_step, now, found, step, self._name(name), is_replicated)
        elif isinstance(found, str):
            self._refuse(name, found)
        elif len(self._pending) >= MAX_PENDING:
            self.guard.count_dropped(1)
        else:
            self._pending.append(_Row(found, global_step, now, step, self._name(name), is_replicated))

    def _read(self, value: object) -> "float | Pending | str":
        """The value, a pending one, or why there is none."""
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(value, torch.Tensor):
            if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
                return f"a {type(value).__name__} is not a number"
            return float(value)
        return self._read_tensor(torch, value)

    def _read_tensor(self, torch: Any, tensor: Any) -> "float | Pending | str":
        if hasattr(tensor, "placements"):
            if not all(placement.is_replicate() for placement in tensor.placements):
                return "reading a sharded or partial DTensor would communicate"
            tensor = tensor.detach()._local_tensor
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            return f"reading a {type(tensor).__name__} could wait"
        if tensor.numel() != 1 or tensor.is_complex():
            return "only tensors of one real element can be logged"
        if tensor.device.type == "cpu":
            return float(tensor.detach().item())
        if self._reader is None:
            from .device_values import CudaReader

            self._reader = CudaReader()
        return self._reader.read(tensor) or f"a tensor on {tensor.device.type} could not be read without waiting"

    def _write(self, global_step: int, time_ns: int, value: float, step: int, name: int, is_replicated: bool) -> None:
        # In the order of the layout.
        self.recorder.write(_LAYOUT, global_step, time_ns, value, step, name, is_replicated)
        self.guard.count_row()

    def _refuse(self, name: str, why: str) -> None:
        self.guard.count_dropped(1)
        if why not in self._refused:
            self._refused.add(why)
            self.recorder.journal("note", text=f"log({name}=...): {why}")

    def _name(self, text: str) -> int:
        number = self._names.get(text)
        if number is None:
            if len(self._names) >= MAX_NAMES:
                text = "(other)"
            number = self._names[text] = self.recorder.intern(text)
        return number
