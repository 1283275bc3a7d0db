"""Which devices a process can use: CUDA_VISIBLE_DEVICES against the devices that the driver lists.

The driver's library (NVML) knows nothing of that variable and lists all devices in the order of their PCI bus ids, so a
rank's "device 0" is found only by reading the variable as CUDA does: a list of ordinals, of UUIDs (`GPU-...`, also the
beginning of one that is unique) or of MIG devices (`MIG-...`), read up to the first entry that is none.

CUDA numbers devices by speed unless CUDA_DEVICE_ORDER=PCI_BUS_ID: the same as the bus order where all are of one kind;
where they are not, ordinals cannot be told, and that is said.
Source: CUDA C++ Programming Guide, "CUDA Environment Variables"; MIG User Guide, "Device Enumeration".
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

BUS_ORDER: Final = "PCI_BUS_ID"


class ListedDevice(NamedTuple):
    """A device as the driver lists it. parent: UUID of the device that a MIG device is a part of."""

    uuid: str
    name: str
    parent: str = ""


class Visible(NamedTuple):
    """The devices in the process's own order (its ordinal 0 first). None: there is one, but which cannot be told: why.

    Cut at the first entry that names no device, as CUDA does; why says that too.
    """

    uuids: tuple[str | None, ...]
    why: str = ""


def visible_devices(variable: str | None, order: str | None, devices: Sequence[ListedDevice]) -> Visible:
    """What a process with this CUDA_VISIBLE_DEVICES (None: not set) and CUDA_DEVICE_ORDER can use of `devices`."""
    whole = [device for device in devices if not device.parent]
    if variable is None:
        return _by_ordinals([str(number) for number in range(len(whole))], order, devices)
    entries = [entry.strip() for entry in variable.split(",")]
    if entries[0].isdigit():
        return _by_ordinals(entries, order, devices)
    found: list[str | None] = []
    for entry in entries:
        uuid = _by_uuid(entry, devices)
        if uuid is None or uuid in found:
            return Visible(tuple(found), f"{entry!r} in CUDA_VISIBLE_DEVICES names no further device" if entry else "")
        found.append(uuid)
    return Visible(tuple(found))


def own_device(visible: Visible, device_index: int | None, local_rank: int | None) -> str | None:
    """The UUID of the device that a process works on; None where that cannot be told.

    device_index: its current device, if it said so; else the usual rule holds: the local rank, or the only one.
    """
    uuids = visible.uuids
    index = device_index if device_index is not None else (local_rank or 0)
    if device_index is None and len(uuids) == 1:
        index = 0
    return uuids[index] if 0 <= index < len(uuids) else None


def _by_ordinals(entries: Sequence[str], order: str | None, devices: Sequence[ListedDevice]) -> Visible:
    whole = [device for device in devices if not device.parent]
    is_mixed = order != BUS_ORDER and len({device.name for device in whole}) > 1
    found: list[str | None] = []
    seen: set[int] = set()
    why = f"CUDA numbers devices of several kinds by speed; set CUDA_DEVICE_ORDER={BUS_ORDER}" if is_mixed else ""
    for entry in entries:
        number = int(entry) if entry.isdigit() else -1
        if not 0 <= number < len(whole) or number in seen:
            return Visible(tuple(found), why or f"{entry!r} in CUDA_VISIBLE_DEVICES names no further device")
        seen.add(number)
        uuid = None if is_mixed else _part_of(whole[number], devices)
        if uuid is None and not why:
            why = f"device {number} is divided into MIG devices; name one by its UUID"
        found.append(uuid)
    return Visible(tuple(found), why)


def _part_of(device: ListedDevice, devices: Sequence[ListedDevice]) -> str | None:
    """The device itself; if it is divided, its only part, and none if there are several."""
    parts = [other.uuid for other in devices if other.parent == device.uuid]
    if not parts:
        return device.uuid
    return parts[0] if len(parts) == 1 else None


def _by_uuid(entry: str, devices: Sequence[ListedDevice]) -> str | None:
    if not entry.startswith(("GPU-", "MIG-")):
        return None
    matching = [device.uuid for device in devices if device.uuid.startswith(entry)]
    return entry if entry in matching else (matching[0] if len(matching) == 1 else None)
