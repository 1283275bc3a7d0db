"""Sampled device times on a device made of numbers."""

from contextlib import ExitStack

import pytest

from rankscope.hooks.completion import LAYOUT
from rankscope.hooks.device_times import MAX_OPEN, DeviceTimes, make_device_times


class Device:
    """Events are times in ns; complete once the device's clock has passed them. Its clock began at host time 1,000."""

    def __init__(self):
        self.now, self.num_recorded, self.capturing, self.lag = 0, 0, False, 0
        self.released = []

    def is_capturing(self):
        return self.capturing

    def record(self, on_idle_stream):
        self.num_recorded += 1
        return self.now + (0 if on_idle_stream else self.lag)

    def is_done(self, event):
        return event <= self.now

    def elapsed_ns(self, earlier, later):
        return later - earlier

    def release(self, event):
        self.released.append(event)


@pytest.fixture
def device(monkeypatch):
    made = Device()
    monkeypatch.setattr("rankscope.hooks.device_times.now_ns", lambda: made.now + 1_000)
    return made


def _operation(times, device, record, begin, end, *, is_wait=False):
    device.now = begin
    mark = times.begin()
    device.now = end
    times.end(mark, record, begin + 1_000, is_wait=is_wait)
    return mark


def test_times_are_on_the_host_clock(recorder, device):
    times = DeviceTimes(recorder, device, 1)
    record = recorder.open(LAYOUT, *range(len(LAYOUT.open_columns)))
    device.lag = 50_000  # the stream is behind the host
    _operation(times, device, record, 1_000_000, 1_200_000)
    _operation(times, device, record, 1_300_000, 1_500_000, is_wait=True)
    times.resolve()
    row = recorder.rows[record].values
    assert (row["device_start_ns"], row["device_end_ns"]) == (500, 2_500)  # 50 us and 250 us after issue, in 100 ns
    assert "wait_device_start_ns" not in row
    device.now += 100_000
    times.resolve()
    assert (row["wait_device_start_ns"], row["wait_device_end_ns"]) == (500, 2_500)
    assert len(device.released) == 4


def test_one_step_in_n(recorder, device):
    times = DeviceTimes(recorder, device, 3)
    sampled = []
    for recorder.step in range(7):
        if times.begin() is not None:
            sampled.append(recorder.step)
    assert sampled == [0, 3, 6]
    assert device.num_recorded == 6  # an anchor and an event in each


def test_nothing_while_a_graph_is_captured(recorder, device):
    times = DeviceTimes(recorder, device, 1)
    device.capturing = True
    assert times.begin() is None
    times.resolve()
    assert device.num_recorded == 0


def test_what_is_open_is_bounded(recorder, device):
    times = DeviceTimes(recorder, device, 1)
    device.lag = 10**12
    for record in range(MAX_OPEN + 5):
        times.end(times.begin(), record, 0, is_wait=False)
    assert device.num_recorded == 1 + 2 * MAX_OPEN


def test_without_cuda_it_is_not_there(recorder, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert not make_device_times(recorder, ExitStack()).is_active


@pytest.mark.parametrize(
    ("environment", "is_active"),
    [({}, True), ({"RANKSCOPE_DEVICE_TIMES": "0"}, False), ({"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, False),
     ({"RANKSCOPE_DEVICE_TIMES": "5", "CUDA_DEVICE_MAX_CONNECTIONS": "8"}, True)],
)  # fmt: skip
def test_when_it_is_active(recorder, monkeypatch, environment, is_active):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    for name in ("RANKSCOPE_DEVICE_TIMES", "CUDA_DEVICE_MAX_CONNECTIONS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert make_device_times(recorder, ExitStack()).is_active is is_active
