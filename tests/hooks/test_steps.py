"""Step boundaries: who marks them, how they tile the time, and what each row says."""

import pytest
import torch
from torch import nn

from rankscope.hooks import steps
from rankscope.hooks.steps import StepClock, clock_for
from rankscope.schema.enums import BOUNDARIES, LEFT_OUT


def _steps(recorder):
    return [
        (row.values["step"], BOUNDARIES[row.values["boundary"] - 1], row.values["samples"], row.values["global_step"])
        for row in recorder.of("step")
    ]


def _left_out(recorder):
    return [LEFT_OUT[row.values["left_out"] - 1] if row.values["left_out"] else None for row in recorder.of("step")]


@pytest.fixture
def clock(recorder, monkeypatch):
    times = iter(range(100, 100_000, 100))
    monkeypatch.setattr(steps, "now_ns", lambda: next(times))
    return StepClock(recorder)


def test_rows_tile_the_time_from_the_start(recorder, clock):
    for _ in range(3):
        clock.boundary("explicit")
    assert [(row.values["start_ns"], row.values["end_ns"]) for row in recorder.of("step")] == [
        (100, 200), (200, 300), (300, 400),
    ]  # fmt: skip
    assert recorder.step == 3 and recorder.num_boundaries == 3


def test_explicit_values_reach_the_row_and_the_count_of_the_whole_training_goes_on(recorder, clock):
    clock.boundary("explicit", samples=8, global_step=41)
    assert recorder.global_step == 42
    clock.boundary("explicit", samples=9)
    assert _steps(recorder) == [(0, "explicit", 8, 41), (1, "explicit", 9, 42)]
    assert recorder.of("step")[0].values["tokens"] == -1


def test_the_first_explicit_boundary_replaces_the_optimizers_row_of_step_0(recorder, clock):
    for _ in range(3):
        clock.boundary("optimizer")
        clock.boundary("explicit", samples=4)
    assert _steps(recorder) == [(n, "explicit", 4, -1) for n in range(3)]
    assert recorder.of("step")[0].values["start_ns"] == 100
    assert _left_out(recorder) == ["warmup", None, None]


def test_a_later_explicit_boundary_takes_over_without_a_step_of_its_own(recorder, clock):
    for _ in range(2):
        clock.boundary("optimizer")
    clock.boundary("explicit")
    clock.boundary("optimizer")
    clock.boundary("explicit")
    assert _steps(recorder) == [(0, "optimizer", -1, -1), (1, "optimizer", -1, -1), (2, "explicit", -1, -1)]
    assert recorder.lines == [("note", {"text": "step boundaries: explicit from step 2 on"})]


def test_weaker_sources_are_ignored_once_a_stronger_one_spoke(recorder, clock):
    clock.boundary("framework")
    clock.boundary("optimizer")
    clock.boundary("framework")
    assert [source for _, source, _, _ in _steps(recorder)] == ["framework", "framework"]


def test_a_row_held_back_is_written_when_work_begins(recorder, clock):
    clock.boundary("optimizer")
    assert clock.is_holding and not recorder.of("step")
    clock.work_begins()
    assert not clock.is_holding and _steps(recorder) == [(0, "optimizer", -1, -1)]


def test_a_new_incarnation_counts_from_0(recorder, clock):
    clock.boundary("optimizer")
    clock.boundary("optimizer")
    clock.restart()
    clock.boundary("optimizer")
    clock.boundary("optimizer")
    assert [step for step, *_ in _steps(recorder)] == [0, 1, 0, 1]
    assert _left_out(recorder) == ["warmup", None, "warmup", None]


def test_a_count_reset_by_the_recorder_is_followed(recorder, clock):
    clock.boundary("explicit")
    recorder.step = 0
    clock.boundary("explicit")
    assert [step for step, *_ in _steps(recorder)] == [0, 0]


def test_a_validation_is_left_out_and_a_teacher_is_not(recorder, clock):
    for evals in (0, 10, 0, 3, 3, 4):
        clock.num_evals = evals
        clock.boundary("explicit")
    assert _left_out(recorder) == ["warmup", "eval", None, "eval", None, None]


def test_nothing_is_recorded_while_the_recorder_is_off(recorder, clock):
    recorder.is_on = False
    clock.boundary("explicit")
    assert recorder.of("step") == [] and recorder.step == 0


def test_one_clock_per_recorder(recorder):
    assert clock_for(recorder) is clock_for(recorder)


def test_accumulation_is_one_step_per_optimizer_step(watched):
    net = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(3):
        for _ in range(4):
            net(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    net(torch.randn(2, 4))
    assert [step for step, *_ in _steps(watched)] == [0, 1, 2]
    assert watched.kinds() == {"forward": 13, "backward": 12, "optimizer": 3}
