"""A hook over its budget writes rows in fewer steps, says so, never stops altogether, and comes back."""

import pytest

from rankscope.hooks import budget
from rankscope.hooks.base import Guard

STEP_NS = 1_000_000


class Hook:
    """A budget, its clock, and steps of 1 ms in each of which the hook is entered twice."""

    def __init__(self, monkeypatch, recorder):
        self.now, self.recorder, self.guard = 0, recorder, Guard(recorder, "x")
        monkeypatch.setattr(budget, "now_ns", lambda: self.now)
        self.budget = budget.Budget(recorder, self.guard)

    def steps(self, num, cost_ns, bare_ns=0, step_ns=lambda step: STEP_NS):
        """In how many of `num` steps rows were allowed; cost_ns: of an entry with a row, a number or by step."""
        first, num_allowed = self.recorder.step + bool(self.now), 0
        for self.recorder.step in range(first, first + num):
            self.now += step_ns(self.recorder.step)
            for _ in range(2):
                self.guard.calls += 1
                is_allowed = self.budget.allows()
                cost = cost_ns(self.recorder.step) if callable(cost_ns) else cost_ns
                self.budget.spent(cost if is_allowed else bare_ns, is_allowed)
            num_allowed += is_allowed
        return num_allowed

    def told(self):
        return [line["why"].partition(": ")[2] for _, line in self.recorder.lines]


@pytest.fixture
def hook(monkeypatch, recorder):
    monkeypatch.delenv(budget.VARIABLE, raising=False)
    return Hook(monkeypatch, recorder)


def test_within_the_budget_every_row_is_written(hook):
    assert hook.steps(500, 4_900) == 500
    assert hook.recorder.lines == []


def test_over_the_budget_what_is_needed_and_no_less(hook):
    """2 entries of 19 us in 1 ms are 3.8 %: 1 step in 4 costs 0.95 %, and there it stays."""
    assert hook.steps(100, 19_000) == 100
    assert hook.steps(100, 19_000) == 50
    assert hook.steps(1_000, 19_000) == 250
    assert hook.told() == ["rows in 1 step of 2 from step 100", "rows in 1 step of 4 from step 200"]
    assert "would cost 3.8% of step time, the budget is 0.01" in hook.recorder.lines[0][1]["why"]


def test_noise_of_a_loaded_machine_does_not_thin(hook):
    """One entry in five loses the processor for 3 ms; steps are slow now and then. The mean would be far over 1 %."""
    noisy = hook.steps(
        1_000,
        lambda step: 3_000_000 if step % 5 == 0 else 4_000,
        step_ns=lambda step: STEP_NS * (50 if step % 9 == 0 else 1),
    )
    assert noisy == 1_000


def test_rows_come_back_when_the_cost_has_fallen(hook):
    hook.steps(301, 19_000)
    assert hook.budget.one_in == 4
    hook.steps(2_000, 1_000)
    assert hook.budget.one_in == 1
    assert [text.rpartition(" from")[0] for text in hook.told()] == [
        "rows in 1 step of 2", "rows in 1 step of 4", "rows in 1 step of 2", "rows in every step again",
    ]  # fmt: skip


def test_a_hook_that_is_dear_to_enter_still_writes(hook):
    """Entries without a row take 1.2 % alone: a quarter of the budget is for rows, 2 x 19 us / 2.5 us: 1 in 16."""
    hook.steps(1_000, 25_000, bare_ns=6_000)
    assert hook.budget.one_in == 16


def test_never_fewer_than_one_in_64(hook):
    hook.steps(1_000, 900_000)
    assert hook.budget.one_in == budget.MAX_ONE_IN


@pytest.mark.parametrize(("ratio", "one_in"), [("0", 1), ("0.05", 1), ("0.02", 2), ("wrong", 4), ("7", 4)])
def test_the_setting(monkeypatch, recorder, ratio, one_in):
    monkeypatch.setenv(budget.VARIABLE, ratio)
    hook = Hook(monkeypatch, recorder)
    hook.steps(500, 19_000)
    assert hook.budget.one_in == one_in
