"""A hook over its budget writes rows in fewer steps, says so, and never stops altogether."""

import pytest

from rankscope.hooks import budget
from rankscope.hooks.base import Guard


@pytest.fixture
def clock(monkeypatch):
    now = [0]
    monkeypatch.setattr(budget, "now_ns", lambda: now[0])
    return now


def _steps(watched, guard, recorder, clock, first, num, cost_ns):
    """`num` steps of 1 ms with one entry each that costs `cost_ns`; returns in how many rows were allowed."""
    num_allowed = 0
    for recorder.step in range(first, first + num):
        clock[0] += 1_000_000
        guard.calls += 1
        guard._counters[1] += 1
        guard._counters[2] += cost_ns
        num_allowed += watched.allows()
    return num_allowed


def test_within_the_budget_every_row_is_written(recorder, clock):
    guard = Guard(recorder, "x")
    watched = budget.Budget(recorder, guard)
    assert _steps(watched, guard, recorder, clock, 0, 500, 9_000) == 500
    assert recorder.lines == []


def test_over_the_budget_one_step_in_two_then_fewer(recorder, clock):
    guard = Guard(recorder, "x")
    watched = budget.Budget(recorder, guard)
    assert _steps(watched, guard, recorder, clock, 0, 100, 11_000) == 100
    assert _steps(watched, guard, recorder, clock, 100, 100, 11_000) == 50
    assert _steps(watched, guard, recorder, clock, 200, 100, 11_000) == 25
    assert [kind for kind, _ in recorder.lines] == ["hook", "hook"]
    _steps(watched, guard, recorder, clock, 300, 2_000, 11_000)
    assert watched.one_in == budget.MAX_ONE_IN
