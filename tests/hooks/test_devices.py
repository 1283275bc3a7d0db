"""The device sampler over a library of numbers: starts, owners, silences, and whom it tells."""

import fcntl
import os
import threading
from pathlib import Path

import pytest

from rankscope.hooks import devices
from rankscope.hooks.device_library import READ_COLUMNS, DeviceLibraryError, Listing, Reading
from rankscope.hooks.device_lock import DeviceLocks
from rankscope.hooks.devices import RETRY_NS, DeviceSampler
from rankscope.hooks.sampling import LocalProcess, Row, Surroundings
from rankscope.hooks.visible_devices import ListedDevice
from rankscope.hooks.watched_call import WatchedCall


class Device:
    def __init__(self, uuid: str) -> None:
        self.listed = ListedDevice(uuid, "kind")
        self.gate = threading.Event()
        self.gate.set()
        self.num_reads = 0

    def describe(self) -> Row:
        return {"device_uuid": self.listed.uuid, "name": "kind"}

    def read(self) -> Reading:
        self.num_reads += 1
        assert self.gate.wait(30)
        return Reading({"power_watts": float(self.num_reads)})


class Library:
    def __init__(self, *found: Device, failures: int = 0) -> None:
        self.found, self.failures, self.num_opens = found, failures, 0

    def open(self) -> Listing:
        self.num_opens += 1
        if self.num_opens <= self.failures:
            raise DeviceLibraryError("the driver is not loaded")
        return Listing(self.found)


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "ANSWER_SECONDS", 5.0)


def _process(rank: int, visible: str | None = None) -> LocalProcess:
    return LocalProcess(100 + rank, rank, 0, None, local_rank=rank, visible_devices=visible)


def _sampler(folder: Path, library: Library, processes: list[LocalProcess]) -> DeviceSampler:
    return DeviceSampler(
        Surroundings("node", Path("/sys"), Path("/proc"), lambda: tuple(processes)), library, "x", folder
    )


def test_a_library_that_does_not_start_is_tried_again_later(tmp_path: Path) -> None:
    library = Library(Device("GPU-1"), failures=1)
    sampler = _sampler(tmp_path, library, [_process(0)])
    first, soon, later = sampler.sample(1), sampler.sample(2), sampler.sample(RETRY_NS + 2)
    assert [row["why"] for row in first["capture"]] == ["the driver is not loaded"] and soon == {}
    assert library.num_opens == 2 and later["device_sample"][0]["power_watts"] == 1


def test_a_silent_device_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Device("GPU-1"), Device("GPU-2")
    sampler = _sampler(tmp_path, Library(one, two), [_process(0)])
    assert [row["power_watts"] for row in sampler.sample(1)["device_sample"]] == [1, 1]
    one.gate.clear()
    monkeypatch.setattr(devices, "ANSWER_SECONDS", 0.2)
    for time_ns in (2, 3):
        silent, other = sampler.sample(time_ns)["device_sample"]
        assert silent["reason"].keys() == set(READ_COLUMNS) and other["power_watts"] == time_ns
    assert one.num_reads == 2  # the second silence asked nothing more
    one.gate.set()
    monkeypatch.setattr(devices, "ANSWER_SECONDS", 5.0)
    while (row := sampler.sample(4)["device_sample"][0]).get("power_watts") is None:
        pass
    assert row["power_watts"] == 3, "an answer that came too late is no reading of now"


def test_who_uses_no_device_frees_it(tmp_path: Path) -> None:
    processes = [_process(0, "GPU-1"), _process(1, "GPU-2")]
    sampler = _sampler(tmp_path, Library(Device("GPU-1"), Device("GPU-2")), processes)
    assert len(sampler.sample(1)["device_sample"]) == 2
    assert not DeviceLocks(tmp_path).hold("GPU-2")
    processes.pop()
    assert [row["device_uuid"] for row in sampler.sample(2)["device_sample"]] == ["GPU-1"]
    assert DeviceLocks(tmp_path).hold("GPU-2") and not DeviceLocks(tmp_path).hold("GPU-1")


def test_devices_are_told_again_to_whoever_comes(tmp_path: Path) -> None:
    processes = [_process(0)]
    sampler = _sampler(tmp_path, Library(Device("GPU-1"), Device("GPU-2")), processes)
    assert len(sampler.sample(1)["device"]) == 2 and "device" not in sampler.sample(2)
    processes.append(_process(1))
    rows = sampler.sample(3)
    assert len(rows["device"]) == 2 and [row["device_uuid"] for row in rows["process"]] == ["GPU-2"]


def test_locks_are_files_of_ones_own_and_follow_no_link(tmp_path: Path) -> None:
    folder, locks = tmp_path / "own", DeviceLocks(tmp_path / "own")
    assert locks.hold("GPU-1") and locks.hold("GPU-1")
    (path,) = folder.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600 and folder.stat().st_mode & 0o777 == 0o700
    other = os.open(path, os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    locks.keep_only(set())
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
    (folder / "device-GPU-2.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        locks.hold("GPU-2")


def test_a_watched_call_gives_answers_errors_and_silence() -> None:
    gate = threading.Event()
    answers = iter([1, ValueError("no")])

    def call() -> int:
        found = next(answers, None)
        if isinstance(found, ValueError):
            raise found
        if found is None:
            gate.wait(30)
        return 7 if found is None else int(str(found))

    watched = WatchedCall(call, "test")
    assert watched.ask() and watched.answer(5) == 1
    assert watched.ask()
    with pytest.raises(ValueError, match="no"):
        watched.answer(5)
    assert watched.silent_seconds() == 0 and watched.ask()
    with pytest.raises(TimeoutError, match="no answer for 1 s"):
        watched.answer(0)
    assert not watched.ask() and watched.silent_seconds() > 0
    gate.set()
    assert watched.answer(5) == 7 and watched.silent_seconds() == 0
