"""The contract of samplers: what the node agent reads once for the whole node, from outside of the training.

A sampler module has `make(surroundings) -> Sampler`, which raises `HookUnavailable` where there is nothing to read, and
one line in `registry.SAMPLERS`. Each sampler has a thread of its own in the agent (`tracer/sampling_host.py`): one that
fails or never comes back is switched off with a reason in table `capture`, and the others go on. What cannot be read is
null, and the row's `reason` says why; a counter is given as the kernel counts it, differences are for the analyzers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Row = dict[str, Any]
Rows = dict[str, list[Row]]
"""Rows by table: readings, or columns of the entities `node`, `device` and `process` (with its key)."""


@dataclass(frozen=True, slots=True)
class LocalProcess:
    """A living process of a run on this node.

    pid: None where it lives in another PID namespace than the agent. numa_nodes: of the CPUs that it may use.
    pci_bus_id: of its device, where known. visible_devices, device_order: its CUDA_VISIBLE_DEVICES (None: not set) and
    CUDA_DEVICE_ORDER. device_index: its current device among those, where its torch has initialised one.
    """

    proc: int
    rank: int | None
    incarnation: int
    pid: int | None
    numa_nodes: tuple[int, ...] = ()
    pci_bus_id: str | None = None
    local_rank: int | None = None
    visible_devices: str | None = None
    device_order: str | None = None
    device_index: int | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a sampler reads. sysfs, proc: the roots RANKSCOPE_SYSFS and RANKSCOPE_PROC. processes: who lives now."""

    node: str
    sysfs: Path
    proc: Path
    processes: Callable[[], tuple[LocalProcess, ...]]


class Sampler(Protocol):
    """One sampler. It is always called from one thread."""

    def sample(self, now_ns: int) -> Rows:
        """One reading; now_ns is CLOCK_MONOTONIC at its beginning, for column time_ns."""
        ...


def with_reasons(row: Row, reasons: dict[str, str]) -> Row:
    """`row` with its column `reason`: why columns are null; none where nothing is missing."""
    missing = {name: why for name, why in reasons.items() if row.get(name) is None}
    return {**row, "reason": missing or None}
