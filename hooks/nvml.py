"""NVIDIA devices through NVML (`pynvml`, of the package nvidia-ml-py; driver 450 or later): table `device_sample`.

Devices are known by UUID, never by ordinal: NVML ignores CUDA_VISIBLE_DEVICES. What a device does not tell is null with
the reason, column by column: not supported (asked once only), no permission, a function that the driver lacks, a GPU
that is lost. MIG devices are listed behind their whole and tell little more than memory. Costs about a dozen driver
calls a device and reading, 0.01 to 1 ms each, in the agent.
"""

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pynvml

from rankscope.schema.errors import HookUnavailable
from rankscope.schema.paths import local_base

from .device_library import READ_COLUMNS, DeviceLibraryError, Listing, Reading
from .devices import DeviceSampler
from .nvml_calls import QUESTIONS, Asked, Question, active_links
from .sampling import Row, Surroundings
from .visible_devices import ListedDevice

LIBRARY: Final = "libnvidia-ml.so.1"
NO_XID: Final = "none since sampling began"
GPU_NOT_FOUND: Final = 28
"""NVML_ERROR_GPU_NOT_FOUND, which pynvml 12.535 does not name."""

_REASONS: Final = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not supported by this device",
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "this driver has no such function",
    pynvml.NVML_ERROR_GPU_IS_LOST: "the GPU is lost",
    GPU_NOT_FOUND: "the GPU is lost",
    pynvml.NVML_ERROR_RESET_REQUIRED: "the GPU needs a reset",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "NVIDIA's driver and its library are of different versions",
}  # fmt: skip
_FOR_GOOD: Final = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
_LOST: Final = (pynvml.NVML_ERROR_GPU_IS_LOST, GPU_NOT_FOUND, pynvml.NVML_ERROR_RESET_REQUIRED)
_NOT_OF_PARTS: Final = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT)


def make(surroundings: Surroundings) -> DeviceSampler:
    """See `sampling`. Raises HookUnavailable without NVIDIA's library."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        raise HookUnavailable(f"no NVIDIA driver here: {LIBRARY} is not found") from None
    return DeviceSampler(surroundings, NvmlLibrary(surroundings.sysfs), "nvml", local_base())


class NvmlLibrary:
    """Implements `device_library.DeviceLibrary`. sysfs: where NUMA nodes are looked up."""

    def __init__(self, sysfs: Path) -> None:
        self._sysfs = sysfs

    def open(self) -> Listing:
        """Initialise NVML and list the devices that answer, in bus order."""
        try:
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise DeviceLibraryError(reason(error)) from error
        devices: list[NvmlDevice] = []
        problems = []
        for index in range(count):
            try:
                devices += self._device(index)
            except pynvml.NVMLError as error:
                problems.append(f"device {index}: {reason(error)}")
        return Listing(devices, tuple(problems))

    def _device(self, index: int) -> "list[NvmlDevice]":
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        whole = NvmlDevice(handle, ListedDevice(_uuid(handle), _name(handle)), self._sysfs)
        parts = [
            NvmlDevice(part, ListedDevice(_uuid(part), _name(part), whole.listed.uuid), self._sysfs)
            for part in _parts(handle)
        ]
        return [whole, *parts]


class NvmlDevice:
    """Implements `device_library.Device`. Not for several threads at once, except `describe`."""

    def __init__(self, handle: Any, listed: ListedDevice, sysfs: Path) -> None:
        self._listed, self._handle, self._sysfs = listed, handle, sysfs
        self._asked = Asked(handle)
        self._never: dict[Question, str] = {}

    @property
    def listed(self) -> ListedDevice:
        """See `device_library.Device`."""
        return self._listed

    def read(self) -> Reading:
        """See `device_library.Device`. Once a device says that it is lost, the rest is not asked."""
        columns: dict[str, object] = {}
        reasons: dict[str, str] = {}
        for question in QUESTIONS:
            why = self._never.get(question) or self._ask(question, columns)
            reasons |= dict.fromkeys(question.columns, why) if why else {}
            if why in (_REASONS[code] for code in _LOST):
                reasons |= {name: why for name in READ_COLUMNS if name not in columns}
                break
        if columns.get("last_xid", 0) is None:
            reasons["last_xid"] = NO_XID
        return Reading(columns, reasons)

    def _ask(self, question: Question, columns: dict[str, object]) -> str:
        """Fill the question's columns; why they are not there, else ""."""
        try:
            columns.update(zip(question.columns, question.ask(self._asked), strict=True))
            return ""
        except pynvml.NVMLError as error:
            parent = self._listed.parent
            why = f"not told of a part, see {parent}" if parent and error.value in _NOT_OF_PARTS else reason(error)
            if error.value in _FOR_GOOD:
                self._never[question] = why
            return why
        except (AttributeError, LookupError, TypeError, ValueError) as error:  # this pynvml and this driver disagree
            self._never[question] = why = f"pynvml cannot read it: {error}"
            return why

    def describe(self) -> Row:
        """See `device_library.Device`; what is not told is left out."""
        handle, parent = self._handle, self._listed.parent
        row: Row = {"device_uuid": self._listed.uuid, "name": self._listed.name, "mig": _mig(handle, parent)}
        bus_id = _told(lambda: bus_id_of(pynvml.nvmlDeviceGetPciInfo(handle).busId))
        if bus_id:
            row |= {"pci_bus_id": bus_id, "numa_node": numa_node(self._sysfs, bus_id)}
        row["memory_bytes"] = _told(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).total))
        row["power_limit_watts"] = _told(lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000)
        row["nvlink_peers"] = None if parent else nvlink_peers(handle)
        return row


def reason(error: Any) -> str:
    """An NVML error in words."""
    return _REASONS.get(error.value) or str(error)


def bus_id_of(text: str | bytes) -> str:
    """NVML's "00000000:3B:00.0" as the kernel writes it: "0000:3b:00.0"."""
    plain = (text.decode() if isinstance(text, bytes) else text).lower()
    domain, _, rest = plain.partition(":")
    return f"{domain[-4:]}:{rest}"


def numa_node(sysfs: Path, bus_id: str) -> int | None:
    """The NUMA node that a PCI device is attached to; None where the kernel does not say (-1)."""
    try:
        node = int((sysfs / "bus/pci/devices" / bus_id / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def nvlink_peers(handle: Any) -> dict[str, int] | None:
    """PCI bus id of what is at the other end (a GPU or a switch) -> number of active links. None without NVLink."""
    found: dict[str, int] = {}
    for link in active_links(handle):
        peer = _told(lambda link=link: bus_id_of(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId))
        found[str(peer or "unknown")] = found.get(str(peer or "unknown"), 0) + 1
    return found or None


def _parts(handle: Any) -> Iterator[Any]:
    if _mig(handle, "") != "enabled":
        return
    for index in range(_told(lambda: int(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle))) or 0):
        part = _told(lambda index=index: pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
        if part is not None:
            yield part


def _mig(handle: Any, parent: str) -> str | None:
    """The parent's UUID for a part; else enabled or disabled; None where the device cannot be divided."""
    if parent:
        return parent
    mode = _told(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0])
    return None if mode is None else ("enabled" if mode == pynvml.NVML_DEVICE_MIG_ENABLE else "disabled")


def _told(ask: Any) -> Any:
    try:
        return ask()
    except pynvml.NVMLError:
        return None


def _uuid(handle: Any) -> str:
    return _text(pynvml.nvmlDeviceGetUUID(handle))


def _name(handle: Any) -> str:
    return _text(_told(lambda: pynvml.nvmlDeviceGetName(handle)) or "")


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
