"""Scalars: what is written, what is refused, and device values that are read when they are there."""

import pytest
import torch
from torch.distributed.tensor import DTensor

from rankscope.hooks import metrics
from rankscope.hooks.metrics import MAX_PENDING, MetricLog


class Later:
    """A device value that is there after `polls` looks."""

    def __init__(self, value, polls):
        self._value, self._polls = value, polls

    def value(self):
        self._polls -= 1
        return self._value if self._polls < 0 else None


class Reader:
    """A device reader whose values come when told; None: it cannot read now."""

    def __init__(self, *values):
        self.values = list(values)

    def read(self, tensor):
        return self.values.pop(0)


def _rows(recorder):
    texts = {number: text for text, number in recorder.names.items()}
    return [(texts[row.values["name"]], row.values["value"]) for row in recorder.of("metric")]


def _notes(recorder):
    return [body["text"] for kind, body in recorder.lines if kind == "note"]


def test_numbers_and_tensors_of_one_element_are_written(recorder):
    recorder.step, recorder.global_step = 3, 41
    log = MetricLog(recorder)
    weight = torch.nn.Parameter(torch.tensor([2.5]))
    log.log(
        {"loss": 1, "flag": True, "lr": 0.5, "norm": torch.tensor(3, dtype=torch.int32), "w": weight},
        replicated=("lr",),
    )
    assert _rows(recorder) == [("loss", 1.0), ("flag", 1.0), ("lr", 0.5), ("norm", 3.0), ("w", 2.5)]
    first, _, third = recorder.of("metric")[:3]
    assert (first.values["step"], first.values["global_step"], first.values["is_replicated"]) == (3, 41, False)
    assert third.values["is_replicated"] is True
    log.log({"loss": 2.0}, step=7)
    assert recorder.of("metric")[-1].values["global_step"] == 7


def test_what_is_no_scalar_is_refused_with_one_note_each_reason(recorder):
    log = MetricLog(recorder)

    class Strange:
        def __float__(self):
            raise ValueError("never")

    for _ in range(2):
        log.log({"a": "text", "b": None, "c": torch.ones(2), "d": Strange(), "e": torch.tensor(1j), "ok": 1.0})
    assert _rows(recorder) == [("ok", 1.0)] * 2
    assert len(_notes(recorder)) == 4 and not log.guard.is_off
    assert recorder.hooks["metrics"][5] == 10


def test_tensors_that_would_communicate_or_wait_are_refused(recorder):
    class Odd(torch.Tensor):
        pass

    class Sharded:
        placements = (torch.distributed.tensor.Shard(0),)

    log = MetricLog(recorder)
    waits, communicates = log._read(torch.tensor(1.0).as_subclass(Odd)), log._read_tensor(torch, Sharded())
    assert isinstance(waits, str) and "wait" in waits
    assert isinstance(communicates, str) and "communicate" in communicates
    assert issubclass(DTensor, torch.Tensor)


def test_a_device_value_is_written_when_it_is_there_with_the_time_of_its_log(recorder, monkeypatch):
    monkeypatch.setattr(metrics, "now_ns", iter(range(1000, 9000, 1000)).__next__)
    log = MetricLog(recorder, Reader(Later(4.5, polls=1), Later(5.5, polls=0)))
    on_device = torch.ones((), device="meta")
    recorder.step = 1
    log.log({"slow": on_device})
    recorder.step = 2
    log.log({"quick": on_device})
    assert _rows(recorder) == []
    log.poll()
    assert _rows(recorder) == [("slow", 4.5), ("quick", 5.5)]
    assert [(row.values["step"], row.values["time_ns"]) for row in recorder.of("metric")] == [(1, 1000), (2, 2000)]


def test_values_that_never_come_are_counted_at_the_end(recorder):
    log = MetricLog(recorder, Reader(Later(1.0, polls=99), Later(2.0, polls=0), None))
    for name in ("never", "there", "unreadable"):
        log._take(name, torch.ones((), device="meta"), -1, False)
    log.finish()
    assert _rows(recorder) == [("there", 2.0)] and recorder.hooks["metrics"][5] == 2
    assert "could not be read without waiting" in _notes(recorder)[0]


def test_values_on_their_way_are_bounded(recorder):
    log = MetricLog(recorder, Reader(*(Later(0.0, polls=9) for _ in range(MAX_PENDING + 3))))
    for _ in range(MAX_PENDING + 3):
        log._take("x", torch.ones((), device="meta"), -1, False)
    log.finish()
    assert recorder.hooks["metrics"][5] == MAX_PENDING + 3


def test_names_are_bounded(recorder, monkeypatch):
    monkeypatch.setattr(metrics, "MAX_NAMES", 2)
    log = MetricLog(recorder)
    for n in range(4):
        log.log({f"n{n}": n})
    assert [name for name, _ in _rows(recorder)] == ["n0", "n1", "(other)", "(other)"]


def test_a_failing_recorder_switches_it_off_and_harms_nothing(recorder, swallowed):
    def fail(*_):
        raise OSError("full")

    recorder.write = fail
    log = MetricLog(recorder)
    log.log({"loss": 1.0})
    log.log({"loss": 1.0})
    assert log.guard.is_off and len(swallowed) == 1
    swallowed.clear()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_value_is_read_without_waiting(recorder):
    log = MetricLog(recorder)
    log.log({"loss": torch.full((1,), 2.25, device="cuda")})
    torch.cuda.synchronize()
    log.poll()
    assert _rows(recorder) == [("loss", 2.25)]
