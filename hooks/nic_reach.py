"""Which interfaces a rank's traffic can use, and how near they are: by PCIe to its device, by NUMA node to its CPUs.

Every interface of the node can be used; what differs is the way there. "pcie": below the same root port or switch as
the rank's device (where that is known); "numa": on a NUMA node of the rank's CPUs; "far": on another one; "unknown":
the kernel does not say (one NUMA node, virtual interfaces). Communication libraries take the nearest by the same rule.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from .kernel_files import read_number
from .sampling import LocalProcess

_MIN_SHARED: Final = 2
"""Components of the PCIe path that two devices below one switch share: the host bridge and a port below it."""


def reachable(sysfs: Path, nics: Iterable[tuple[str, str]], process: LocalProcess | None) -> list[dict[str, Any]]:
    """One entry per interface (name, kind), nearest first; without a process only where each lies."""
    found = [_entry(sysfs, name, kind, process) for name, kind in nics]
    order = ("pcie", "numa", "unknown", "far")
    return sorted(found, key=lambda entry: (order.index(entry.get("near", "unknown")), entry["nic"]))


def _entry(sysfs: Path, name: str, kind: str, process: LocalProcess | None) -> dict[str, Any]:
    device = _device(sysfs, name, kind)
    numa = read_number(device / "numa_node").value if device else None
    numa = numa if numa is not None and numa >= 0 else None  # -1: the firmware does not say
    pci = _pci_path(device)
    entry: dict[str, Any] = {"nic": name, "kind": kind, "numa_node": numa, "pci_bus_id": pci[-1] if pci else None}
    if process is not None:
        entry["near"] = _near(sysfs, pci, numa, process)
    return entry


def _near(sysfs: Path, pci: tuple[str, ...], numa: int | None, process: LocalProcess) -> str:
    if process.pci_bus_id and pci:
        own = _pci_path(sysfs / "bus/pci/devices" / process.pci_bus_id.lower())
        if _num_shared(own, pci) >= _MIN_SHARED:
            return "pcie"
    if numa is None or not process.numa_nodes:
        return "unknown"
    return "numa" if numa in process.numa_nodes else "far"


def _device(sysfs: Path, name: str, kind: str) -> Path | None:
    folder = sysfs / "class/net" / name if kind == "ethernet" else sysfs / "class/infiniband" / name.partition("/")[0]
    return folder / "device" if (folder / "device").exists() else None


def _pci_path(device: Path | None) -> tuple[str, ...]:
    """The bridges above a device and itself: ("pci0000:00", "0000:00:01.0", "0000:01:00.0")."""
    if device is None:
        return ()
    parts = device.resolve().parts
    first = next((index for index, part in enumerate(parts) if part.startswith("pci") and ":" in part), None)
    if first is None:
        return ()
    return (parts[first], *(part for part in parts[first + 1 :] if part.count(":") == 2))


def _num_shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    number = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        number += 1
    return number
