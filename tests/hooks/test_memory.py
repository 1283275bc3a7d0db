"""Memory at step ends: what is read, where peaks moved, and that nothing of the job's is touched."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from rankscope.hooks import memory
from rankscope.hooks.memory import NONE, AllocatorReading, CudaAllocator, MemoryLog, ResidentMemory


class Numbers:
    """An allocator that gives these readings one after the other."""

    def __init__(self, *readings):
        self.readings = list(readings)

    def read(self):
        return self.readings.pop(0)


class Rss:
    def read(self):
        return 4096

    def close(self):
        pass


def _reading(allocated, peak_allocated, peak_reserved, uuid="GPU-1"):
    return AllocatorReading(uuid, allocated, 500, allocated + 1, 50, peak_allocated, peak_reserved, 2, 1)


def _values(recorder):
    return [row.values for row in recorder.of("memory")]


def test_every_column(recorder):
    log = MemoryLog(recorder, Numbers(_reading(100, 200, 500)), Rss())
    recorder.step = 7
    log.boundary()
    (row,) = _values(recorder)
    assert row.pop("time_ns") > 0
    assert row == {
        "allocated_bytes": 100, "reserved_bytes": 500, "active_bytes": 101, "inactive_split_bytes": 50,
        "peak_allocated_bytes": 200, "peak_reserved_bytes": 500, "rss_bytes": 4096, "step": 6,
        "device_uuid": recorder.names["GPU-1"], "num_alloc_retries": 2, "num_ooms": 1,
    }  # fmt: skip


def test_peaks_are_written_where_they_moved(recorder):
    readings = [(200, 500), (200, 600), (250, 600), (90, 600), (120, 600)]  # the job resets its peak after the third
    log = MemoryLog(recorder, Numbers(*(_reading(80, *peaks) for peaks in readings)), Rss())
    for _ in readings:
        log.boundary()
    found = [(row["peak_allocated_bytes"], row["peak_reserved_bytes"]) for row in _values(recorder)]
    assert found == [(200, 500), (NONE, 600), (250, NONE), (NONE, NONE), (120, NONE)]


def test_each_device_has_peaks_of_its_own(recorder):
    log = MemoryLog(recorder, Numbers(_reading(1, 9, 9, "GPU-1"), _reading(1, 5, 5, "GPU-2"), None), Rss())
    for _ in range(3):
        log.boundary()
    assert [row["peak_reserved_bytes"] for row in _values(recorder)] == [9, 5, NONE]
    assert [row["allocated_bytes"] for row in _values(recorder)] == [1, 1, NONE]
    assert [row["rss_bytes"] for row in _values(recorder)] == [4096] * 3


class Cuda:
    """torch.cuda as far as it is read; anything else would be an AttributeError."""

    def __init__(self, is_initialized=True, is_capturing=False):
        self.is_initialized = lambda: is_initialized
        self.is_current_stream_capturing = lambda: is_capturing
        self.current_device = lambda: 1
        self.get_device_properties = lambda index: type("Properties", (), {"uuid": f"0{index}0-abc"})

    @staticmethod
    def memory_stats_as_nested_dict(device):
        assert device == 1
        return {
            "allocated_bytes": {"all": {"current": 10, "peak": 20}},
            "reserved_bytes": {"all": {"current": 30, "peak": 40}},
            "active_bytes": {"all": {"current": 11, "peak": 21}}, "num_alloc_retries": 3, "num_ooms": 0,
            "inactive_split_bytes": {"all": {"current": 5, "peak": 6}},
        }  # fmt: skip


def test_cuda_is_read_only_when_it_can_be():
    assert CudaAllocator(Cuda()).read() == AllocatorReading("GPU-010-abc", 10, 30, 11, 5, 20, 40, 3, 0)
    assert CudaAllocator(Cuda(is_initialized=False)).read() is None
    assert CudaAllocator(Cuda(is_capturing=True)).read() is None


def test_torch_has_what_is_read():
    """Names and nesting of the real torch.cuda; without a device the counters are empty."""
    for name in ("is_initialized", "is_current_stream_capturing", "current_device", "memory_stats_as_nested_dict"):
        assert callable(getattr(torch.cuda, name))
    if not torch.cuda.is_available():
        assert torch.cuda.memory_stats_as_nested_dict() == {} and CudaAllocator(torch.cuda).read() is None


def test_resident_memory_is_the_kernels(tmp_path):
    resident = ResidentMemory()
    told = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert resident.read() == pytest.approx(told, rel=0.05)
    child = os.fork()
    if child == 0:
        own = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        os._exit(0 if abs(resident.read() - own) < 0.05 * own else 1)
    assert os.waitpid(child, 0)[1] == 0
    resident.close()
    assert ResidentMemory(str(tmp_path / "none")).read() == NONE


def test_a_row_a_step_in_a_training(recorder, install):
    with ExitStack() as undo:
        install(recorder, undo, "steps", "memory")
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
        for _ in range(3):
            optimizer.step()
    assert [row["step"] for row in _values(recorder)] == [0, 1, 2]
    assert all(row["rss_bytes"] > 1_000_000 for row in _values(recorder))


def test_without_the_steps_hook_there_is_no_step_number(recorder, install):
    with ExitStack() as undo:
        install(recorder, undo, "memory")
        torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]).step()
    assert [row["step"] for row in _values(recorder)] == [NONE] and recorder.of("step") == []


def test_a_failing_allocator_switches_off_only_this(recorder, swallowed):
    class Broken:
        def read(self):
            raise RuntimeError("no")

    log = MemoryLog(recorder, Broken(), Rss())
    log.boundary()
    log.boundary()
    assert [hook for hook, _ in swallowed] == ["memory"] and log.guard.is_off
    swallowed.clear()
    assert memory._LAYOUT.table.name == "memory" and recorder.rows == []
