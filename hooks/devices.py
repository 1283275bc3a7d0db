"""Readings of a node's accelerators, through a vendor's library (`nvml`, `amd_smi`), for the ranks that live on it.

Each device is read in a thread of its own, and so is the library's start: a driver call that hangs holds up that device
alone, whose rows are then null with the reason "no answer for n s" until it comes back. Read are the devices that some
local rank can use (`visible_devices`) and that no other agent of this user reads (`device_lock`); parts of a divided
device (MIG) come with their whole, which alone knows power and temperature. Costs a few ms per device and reading, in
the agent.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rankscope.schema.paths import hash63

from .device_library import Device, DeviceLibrary, DeviceLibraryError, Listing, Reading
from .device_lock import DeviceLocks
from .sampling import LocalProcess, Row, Rows, Surroundings
from .visible_devices import Visible, own_device, visible_devices
from .watched_call import WatchedCall

ANSWER_SECONDS: Final = 0.5
"""So long a reading waits for all devices together; who has not answered by then is null in it, and is not waited for
again before it has come back."""
RETRY_NS: Final = 60_000_000_000
"""A library that did not start is tried again after this long."""


class DeviceSampler:
    """Implements `sampling.Sampler` over `library`. name: the sampler's, in table `capture`."""

    def __init__(self, surroundings: Surroundings, library: DeviceLibrary, name: str, lock_folder: Path) -> None:
        self._surroundings, self._name = surroundings, name
        self._locks = DeviceLocks(lock_folder)
        self._opening: WatchedCall[Listing] = WatchedCall(library.open, f"rankscope-{name}-open")
        self._devices: tuple[Device, ...] | None = None
        self._readers: dict[str, WatchedCall[Reading]] = {}
        self._rows: dict[str, WatchedCall[Row]] = {}
        self._retry_ns, self._told = 0, dict[str, str]()
        self._described: set[tuple[object, ...]] = set()

    def sample(self, now_ns: int) -> Rows:
        """See `sampling.Sampler`. Raises HookUnavailable where the library says that there never will be a device."""
        problems: dict[str, str] = {}
        if self._devices is None:
            self._open(now_ns, problems)
        if self._devices is None:
            return self._with_problems({}, problems, now_ns)
        processes = self._surroundings.processes()
        seen = {process.proc: self._visible(process) for process in processes}
        wanted = self._wanted(list(seen.values()))
        mine = [device for device in wanted if self._is_mine(device, problems)]
        self._locks.keep_only({device.listed.uuid for device in wanted})
        rows: Rows = {
            "device_sample": self._read(mine, now_ns),
            "device": self._describe(wanted, processes),
            "process": self._own_devices(processes, seen, problems),
        }
        return self._with_problems({table: found for table, found in rows.items() if found}, problems, now_ns)

    def _open(self, now_ns: int, problems: dict[str, str]) -> None:
        if now_ns < self._retry_ns:
            return
        self._opening.ask()
        try:
            listing = self._opening.answer(ANSWER_SECONDS)
        except TimeoutError:
            problems["open"] = "the driver does not answer"
        except DeviceLibraryError as error:
            problems["open"] = str(error)
            self._retry_ns = now_ns + RETRY_NS
        else:
            self._devices = tuple(listing.devices)
            problems["open"] = "; ".join(listing.problems)

    def _visible(self, process: LocalProcess) -> Visible:
        listed = [device.listed for device in self._devices or ()]
        return visible_devices(process.visible_devices, process.device_order, listed)

    def _wanted(self, seen: Sequence[Visible]) -> list[Device]:
        """The devices that some process can use, and their wholes; all of them where one cannot tell which it uses."""
        devices = self._devices or ()
        uuids = {uuid for visible in seen for uuid in visible.uuids}
        if None in uuids:
            return list(devices)
        uuids |= {device.listed.parent for device in devices if device.listed.uuid in uuids}
        return [device for device in devices if device.listed.uuid in uuids]

    def _is_mine(self, device: Device, problems: dict[str, str]) -> bool:
        uuid = device.listed.uuid
        try:
            if self._locks.hold(uuid):
                problems[uuid] = ""
                return True
            problems[uuid] = f"{uuid} is read by another agent of this node"
        except OSError as error:
            problems[uuid] = f"{uuid} is not read: its lock cannot be taken ({error.strerror})"
        return False

    def _read(self, devices: Sequence[Device], now_ns: int) -> list[Row]:
        deadline = time.monotonic() + ANSWER_SECONDS
        asked = [(device, call, call.ask()) for device in devices for call in [self._reader(device)]]
        return [
            self._row(device, _answer(call, deadline if is_asked else 0.0), now_ns) for device, call, is_asked in asked
        ]

    def _reader(self, device: Device) -> WatchedCall[Reading]:
        uuid = device.listed.uuid
        if uuid not in self._readers:
            self._readers[uuid] = WatchedCall(device.read, f"rankscope-{uuid[:12]}")
        return self._readers[uuid]

    def _row(self, device: Device, reading: Reading, now_ns: int) -> Row:
        return {"node": self._surroundings.node, "device_uuid": device.listed.uuid, "time_ns": now_ns,
                **reading.columns, "reason": dict(reading.reasons) or None}  # fmt: skip

    def _describe(self, devices: Sequence[Device], processes: Sequence[LocalProcess]) -> list[Row]:
        """The devices' own rows, again for every process that comes: it may be of another run."""
        found: list[Row] = []
        deadline = time.monotonic() + ANSWER_SECONDS
        for device in devices:
            uuid = device.listed.uuid
            key = (uuid, *sorted(process.proc for process in processes))
            if key in self._described:
                continue
            call = self._rows.setdefault(uuid, WatchedCall(device.describe, f"rankscope-{uuid[:12]}-row"))
            if not call.ask():
                continue
            try:
                found.append({"node": self._surroundings.node, **call.answer(deadline - time.monotonic())})
                self._described.add(key)
            except (TimeoutError, DeviceLibraryError):  # next time; the samples say that it is silent
                continue
        return found

    def _own_devices(
        self, processes: Sequence[LocalProcess], seen: dict[int, Visible], problems: dict[str, str]
    ) -> list[Row]:
        """Which device each process works on, in columns of table `process`; once, and again if it changes."""
        found = []
        for process in processes:
            visible = seen[process.proc]
            uuid = own_device(visible, process.device_index, process.local_rank)
            key = (process.proc, process.incarnation, uuid)
            if uuid is None:
                problems[f"proc {process.proc}"] = f"rank {process.rank}: {visible.why or 'no device of its own'}"
            elif key not in self._described:
                self._described.add(key)
                found.append({"proc": process.proc, "incarnation": process.incarnation, "device_uuid": uuid})
        return found

    def _with_problems(self, rows: Rows, problems: dict[str, str], now_ns: int) -> Rows:
        """`rows`, and a row of `capture` for each problem that is new. An empty text takes a problem back."""
        found = []
        for number, (subject, why) in enumerate(problems.items()):
            if why and self._told.get(subject) != why:
                proc = hash63(self._surroundings.node, self._name, subject)
                found.append({"proc": proc, "time_ns": now_ns + number, "hook": self._name, "is_on": True, "why": why})
            self._told[subject] = why
        return {**rows, "capture": found} if found else rows


def _answer(call: WatchedCall[Reading], deadline: float) -> Reading:
    try:
        return call.answer(deadline - time.monotonic())
    except (TimeoutError, DeviceLibraryError) as error:
        return Reading.nothing(str(error))
