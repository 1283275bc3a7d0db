"""Optimizer calls: each counted once, whatever the nesting; the leader marks the steps."""

import gc

import pytest
import torch
from torch import nn

from rankscope.hooks.optimizers import PATIENCE
from rankscope.schema.ring import COMPLETED, FAILED


def _params():
    return [nn.Parameter(torch.ones(3))]


def _step(optimizer, params):
    for parameter in params:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def _num_steps(recorder):
    return recorder.step


class Doubled(torch.optim.SGD):
    """Overrides step and calls super: torch's hooks fire twice, nested."""

    def step(self, closure=None):
        super().step()
        return super().step()


def test_a_nested_step_is_one_call(watched):
    params = _params()
    optimizer = Doubled(params, lr=0.1)
    for _ in range(3):
        _step(optimizer, params)
    assert watched.spans() == ["optimizer:Doubled"] * 3
    assert _num_steps(watched) == 3


def test_an_optimizer_inside_another_is_not_a_call_of_its_own(watched):
    params = _params()
    inner = torch.optim.SGD(params, lr=0.1)

    class Outer(torch.optim.Optimizer):
        def step(self, closure=None):
            inner.step()

    outer = Outer(params, {})
    _step(outer, params)
    assert watched.spans() == ["optimizer:Outer"] and _num_steps(watched) == 1


def test_a_step_that_raises_ends_as_failed_and_the_next_one_counts(watched):
    class Broken(torch.optim.SGD):
        fails = True

        def step(self, closure=None):
            super().step()
            if self.fails:
                raise ValueError("mine")

    params = _params()
    optimizer = Broken(params, lr=0.1)
    with pytest.raises(ValueError, match="mine"):
        _step(optimizer, params)
    optimizer.fails = False
    _step(optimizer, params)
    _step(optimizer, params)
    assert [row.state for row in watched.of("span")] == [FAILED, COMPLETED, COMPLETED]
    assert _num_steps(watched) == 2 and watched.phase == 0


def test_a_closure_runs_inside_the_call(watched):
    net = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def closure():
        loss = net(torch.ones(2, 3)).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert watched.spans() == ["optimizer:SGD", "forward:Linear", "backward"]
    assert _num_steps(watched) == 1


def test_the_first_optimizer_leads_and_every_call_is_told(watched):
    first, second = _params(), _params()
    leader, other = torch.optim.Adam(first), torch.optim.Adam(second)
    for _ in range(3):
        _step(leader, first)
        for _ in range(5):
            _step(other, second)
    assert _num_steps(watched) == 3
    assert watched.spans() == (["optimizer:Adam"] + ["optimizer:Adam#1"] * 5) * 3


def test_a_leader_that_is_gone_is_replaced_at_once(watched):
    params = _params()
    first = torch.optim.SGD(params, lr=0.1)
    _step(first, params)
    del first
    gc.collect()
    second = torch.optim.SGD(params, lr=0.1)
    _step(second, params)
    _step(second, params)
    assert _num_steps(watched) == 3


def test_a_leader_that_no_longer_steps_is_replaced_in_the_end(watched):
    params = _params()
    first, second = torch.optim.SGD(params, lr=0.1), torch.optim.SGD(params, lr=0.1)
    _step(first, params)
    for _ in range(PATIENCE + 2):
        _step(second, params)
    assert _num_steps(watched) == 1 + 3


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_the_scaler_skips_is_a_skipped_step(watched, fused):
    params = _params()
    optimizer = torch.optim.AdamW(params, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for overflow in (True, False, True, False):
        optimizer.zero_grad()
        loss = (params[0] * (float("inf") if overflow else 1.0)).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    torch.optim.SGD(params, lr=0.1).step()  # ends the holding back of step 0
    assert [row.values["is_skipped"] for row in watched.of("step")] == [1, 0, 1, 0]
    assert watched.kinds()["optimizer"] == 5


def test_a_disabled_scaler_changes_nothing(watched):
    params = _params()
    optimizer = torch.optim.SGD(params, lr=0.1)
    params[0].grad = torch.ones(3)
    torch.amp.GradScaler("cpu", enabled=False).step(optimizer)
    assert _num_steps(watched) == 1 and watched.kinds() == {"optimizer": 1}
