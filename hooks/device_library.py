"""The seam between the device sampler and the vendors' libraries: NVML (`nvml`) and AMD SMI (`amd_smi`).

Everything here may block for as long as a driver likes; the sampler calls it from threads that it watches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from rankscope.schema.tables import TABLES

from .sampling import Row
from .visible_devices import ListedDevice

READ_COLUMNS: Final = tuple(
    name for name in TABLES["device_sample"].names if name not in ("node", "device_uuid", "time_ns", "reason")
)
"""The columns that one reading of a device fills, or says why not."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of one device: its columns in the units of `device_sample`, and why others are not there."""

    columns: Mapping[str, object] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def nothing(cls, why: str) -> "Reading":
        """No column, all for one reason."""
        return cls({}, dict.fromkeys(READ_COLUMNS, why))


class Device(Protocol):
    """One device, or one part of a divided one."""

    @property
    def listed(self) -> ListedDevice:
        """How it is called."""
        ...

    def describe(self) -> Row:
        """Its row in table `device`, without node."""
        ...

    def read(self) -> Reading:
        """One reading; never raises for what a device does not tell."""
        ...


@dataclass(frozen=True, slots=True)
class Listing:
    """The devices that the driver lists, in bus order, parts behind their whole; problems: one line for each other."""

    devices: Sequence[Device] = ()
    problems: tuple[str, ...] = ()


class DeviceLibrary(Protocol):
    """A vendor's library."""

    def open(self) -> Listing:
        """Initialise the library and list the devices. Raises DeviceLibraryError, or HookUnavailable for good."""
        ...


class DeviceLibraryError(Exception):
    """The library does not work at the moment; the text says why."""
