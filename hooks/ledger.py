"""What the sources of operations share: the thread's state, the open operations, and the one way to write a row.

Three sources see operations (`class_methods`, `dispatcher` or `native`, `functional`); each operation is counted by the
outermost one. `Thread` is how they know of each other: it is set by whoever is on the way to the backend.
"""

import threading
from itertools import count
from typing import Any, Final

from rankscope.schema.enums import code

from .base import Guard, Recorder
from .completion import LAYOUT, Completion
from .device_times import DeviceTimes
from .groups import Group, Registry
from .operations import dtype_codes, is_real, reduction_reader

OPEN_COLUMNS: Final = (
    "bytes_in", "bytes_out", "issued_ns", "step", "group_id", "seq", "src", "dst", "tag", "coalescing_id", "stage",
    "chunk", "microbatch", "op", "reduce_op", "dtype", "is_async", "role", "phase", "tier",
)  # fmt: skip
"""The order in which rows are written; checked against the layout at install."""
NOBODY: Final = (-1, -1, -1)
"""(src or root, dst, tag) of an operation without any."""
DTYPE_OTHER: Final = code("dtype", "other")


class Thread(threading.local):
    """What one thread is doing.

    inside: a source has counted the operation under way, inner ones let it pass. has_fired: a kernel or native hook saw
    an operation since this was set to False. is_waiting: a wait under way is being measured. coalescing: number of the
    open coalesced call (0 none), its rows in `batch`. hint: (op, reduce_op) codes of the functional collective under
    way, more precise than what C++ tells. begun: what the last native pre-hook opened.
    """

    inside: bool = False
    has_fired: bool = False
    is_waiting: bool = False
    coalescing: int = 0
    batch: tuple[tuple[int, int, int], ...] = ()
    hint: tuple[int, int] | None = None
    begun: Any = None


class Ledger:
    """The operations of this process, and what the sources need to write more."""

    __slots__ = (
        "coalescings", "completion", "device", "dtypes", "open", "plain", "recorder", "reduction", "registry", "thread",
    )  # fmt: skip

    def __init__(self, recorder: Recorder, device: DeviceTimes, waits: Guard) -> None:
        import torch

        if LAYOUT.open_columns != OPEN_COLUMNS:
            raise AssertionError(f"the record of table collective has changed: {LAYOUT.open_columns}")
        self.recorder, self.registry, self.completion = recorder, Registry(recorder), Completion(recorder, waits)
        self.thread, self.device, self.open = Thread(), device, recorder.open
        self.dtypes, self.reduction = dtype_codes(), reduction_reader()
        self.plain = frozenset({torch.Tensor, torch.nn.Parameter})
        self.coalescings = count(1)

    def is_real(self, tensor: Any) -> bool:
        """Whether this tensor can reach a backend (None: an operation without tensors can)."""
        return tensor is None or type(tensor) in self.plain or is_real(tensor)

    def failed(self, record: int, guard: Guard) -> None:
        """The issuing call raised; never raises itself."""
        try:
            self.completion.failed(record)
        except Exception as error:  # noqa: BLE001 - the guard's
            guard.failed(error)

    def write(  # noqa: PLR0913 - a row has many columns
        self, group: Group, seq: int, issued_ns: int, op: int, tier: int, tensor: Any, sizes: tuple[int, int],
        reduction: int, peer: tuple[int, int, int], is_async: bool,
    ) -> int:  # fmt: skip
        """Open the row of an operation and return its record. tensor: its first, or None; peer: see NOBODY."""
        recorder, thread = self.recorder, self.thread
        return self.open(
            LAYOUT, sizes[0], sizes[1], issued_ns, recorder.step, group.number, seq, *peer, thread.coalescing,
            -1, -1, -1, op, reduction, 0 if tensor is None else self.dtypes.get(tensor.dtype, DTYPE_OTHER), is_async,
            0, recorder.phase, tier,
        )  # fmt: skip
