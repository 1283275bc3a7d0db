"""Kernel windows without a job: which steps, whose profiler, what is left behind."""

import tempfile
from contextlib import ExitStack

import pytest
import torch
from torch.autograd.profiler import profile

from rankscope.hooks import kernel_windows
from rankscope.hooks.steps import clock_for
from rankscope.schema.process_state import JournalRow
from rankscope.tracer.importers.kineto_window import window_rows


@pytest.fixture
def windows(recorder, monkeypatch, tmp_path):
    """Two steps in four, told of boundaries by hand."""
    monkeypatch.setenv("RANKSCOPE_KERNELS", "4:2")
    monkeypatch.setattr(tempfile, "mkdtemp", lambda prefix: _folder(tmp_path, prefix))
    with ExitStack() as undo:
        kernel_windows.install(recorder, undo)
        yield clock_for(recorder).listeners[-1]
    assert not torch._C._autograd._profiler_enabled()


def _folder(tmp_path, prefix):
    folder = tmp_path / f"{prefix}{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    return str(folder)


def _told(recorder):
    return [line["row"] for kind, line in recorder.lines if kind == "row"]


def _steps(recorder, boundary, numbers):
    for number in numbers:
        recorder.step = number
        boundary()
        torch.ones(3).add(number)


def test_the_chosen_steps_and_their_rows(recorder, windows, tmp_path):
    _steps(recorder, windows, range(1, 12))
    told = _told(recorder)
    assert [[step for step, _, _ in row["steps"]] for row in told] == [[4, 5], [8, 9]]
    rows = window_rows(JournalRow("kernel_window", 7, told[0]), proc=5, rank=3)
    assert rows is not None
    adds = [row for row in rows.to_pylist() if row["name"] == "aten::add"]
    assert [row["step"] for row in adds] == [4, 5] and {row["rank"] for row in adds} == {3}
    (_, first, middle), (_, _, last) = told[0]["steps"]
    assert first <= adds[0]["start_ns"] <= middle <= adds[1]["start_ns"] <= last
    assert [folder.name for folder in tmp_path.iterdir() if folder.name.startswith("rankscope-kernels-")] == [
        "rankscope-kernels-1"
    ]  # that of the other window, which nobody has read


def test_the_jobs_own_profiler_comes_first(recorder, windows):
    _steps(recorder, windows, range(1, 5))
    assert torch._C._autograd._profiler_enabled()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
        _steps(recorder, windows, range(5, 10))
    assert "aten::add" in [event.key for event in own.key_averages()] and _told(recorder) == []
    _steps(recorder, windows, range(10, 15))
    assert [row["steps"][0][0] for row in _told(recorder)] == [12]


def test_undone_it_leaves_the_identical_objects(recorder, monkeypatch):
    monkeypatch.setenv("RANKSCOPE_KERNELS", "4:2")
    before = dict(vars(profile))
    with ExitStack() as undo:
        kernel_windows.install(recorder, undo)
        assert vars(profile)["_prepare_trace"] is not before["_prepare_trace"]
        _steps(recorder, clock_for(recorder).listeners[-1], range(1, 5))
    assert dict(vars(profile)) == before and not torch._C._autograd._profiler_enabled()


@pytest.mark.parametrize("text", ["", "4", "0:0", "2:3", "x:1"])
def test_without_a_setting_nothing_happens(recorder, monkeypatch, text):
    monkeypatch.setenv("RANKSCOPE_KERNELS", text)
    before = dict(vars(profile))
    with ExitStack() as undo:
        kernel_windows.install(recorder, undo)
        assert dict(vars(profile)) == before
