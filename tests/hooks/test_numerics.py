"""Norms and scales that the job computes: what is told, once each, and from which step."""

from contextlib import ExitStack

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import clip_grad_norm_ as imported_early

from rankscope.hooks import numerics
from rankscope.hooks.numerics import NumericsWatch
from rankscope.hooks.steps import clock_for


@pytest.fixture
def watching(recorder):
    with ExitStack() as undo:
        numerics.install(recorder, undo)
        yield recorder


def _metrics(recorder):
    texts = {number: text for text, number in recorder.names.items()}
    return [(texts[row.values["name"]], row.values["value"], row.values["step"]) for row in recorder.of("metric")]


def _weight(*gradient):
    weight = nn.Parameter(torch.zeros(len(gradient)))
    weight.grad = torch.tensor(gradient)
    return weight


def test_the_norm_before_clipping_is_told_however_it_is_called(watching):
    watching.step = 3
    assert float(imported_early([_weight(3.0, 4.0)], 1.0)) == 5.0
    torch.nn.utils.clip_grad_norm_([_weight(6.0, 8.0)], 1.0)
    total = torch.nn.utils.get_total_norm([torch.tensor([0.0, 2.0])])
    torch.nn.utils.clip_grads_with_norm_([_weight(0.0, 2.0)], 1.0, total)
    assert _metrics(watching) == [("grad_norm", 5.0, 3), ("grad_norm", 10.0, 3), ("grad_norm", 2.0, 3)]


def test_clipping_gives_the_same_gradients(recorder):
    bare, seen = _weight(3.0, 4.0), _weight(3.0, 4.0)
    imported_early([bare], 1.0)
    with ExitStack() as undo:
        numerics.install(recorder, undo)
        imported_early([seen], 1.0)
    assert torch.equal(bare.grad, seen.grad)


def test_a_norm_that_is_not_finite_is_told_and_the_users_error_passes(watching):
    imported_early([_weight(float("inf"))], 1.0)
    with pytest.raises(RuntimeError, match="non-finite"):
        imported_early([_weight(float("nan"))], 1.0, error_if_nonfinite=True)
    assert _metrics(watching) == [("grad_norm", float("inf"), 0)]


def test_the_scale_after_each_update(watching):
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1)
    for gradient in (1.0, float("inf")):
        weight = _weight(gradient)
        scaler.scale(torch.ones(1))
        scaler.step(torch.optim.SGD([weight], lr=0.1))
        scaler.update()
    assert _metrics(watching) == [("loss_scale", 16.0, 0), ("loss_scale", 8.0, 0)]
    disabled = torch.amp.GradScaler("cpu", enabled=False)
    disabled.step(torch.optim.SGD([_weight(1.0)], lr=0.1))
    disabled.update()
    assert len(watching.of("metric")) == 2


def test_a_sharded_scaler_is_seen_too(watching, tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

        scaler = ShardedGradScaler("cpu", init_scale=4.0, growth_interval=9)
        weight = _weight(1.0)
        scaler.scale(torch.ones(1))
        scaler.step(torch.optim.SGD([weight], lr=0.1))
        scaler.update()
    finally:
        dist.destroy_process_group()
    assert [name for name, _, _ in _metrics(watching)] == ["loss_scale"]


class Later:
    """A device value that has arrived at the second look."""

    def __init__(self, value):
        self._value, self._num_looks = value, 0

    def value(self):
        self._num_looks += 1
        return self._value if self._num_looks > 1 else None


class Reader:
    def read(self, tensor):
        return Later(1.0)


def test_a_skip_inside_a_fused_optimizer_belongs_to_the_step_that_it_skipped(recorder):
    watch = NumericsWatch(recorder)
    watch.log._reader = Reader()
    optimizer = torch.optim.SGD([_weight(1.0)], lr=0.1)
    optimizer._step_supports_amp_scaling = True
    scaler = type("Scaler", (), {})()
    scaler._per_optimizer_states = {
        id(optimizer): {"found_inf_per_device": {"meta": torch.ones((), device="meta"), "cpu": torch.ones(())}}
    }
    recorder.step = 8
    watch.stepped(scaler, optimizer, 7)
    watch.boundary()
    assert _metrics(recorder) == []
    watch.boundary()
    assert _metrics(recorder) == [("found_inf", 1.0, 7)]


def test_a_partial_norm_is_told_as_the_ranks_own_part(recorder):
    class Partial:
        def is_replicate(self):
            return False

    class Distributed:
        placements = (Partial(),)
        _local_tensor = torch.tensor(2.5)

        def detach(self):
            return self

    NumericsWatch(recorder).norm(Distributed())
    assert _metrics(recorder) == [("grad_norm_local", 2.5, 0)]


def test_a_failing_recorder_harms_nothing(watching, swallowed):
    def fail(*_):
        raise OSError("full")

    watching.write = fail
    for _ in range(2):
        assert float(imported_early([_weight(3.0, 4.0)], 1.0)) == 5.0
    assert len(swallowed) == 1
    swallowed.clear()


def test_nothing_stays_behind(recorder):
    before = (torch.nn.utils.clip_grad._clip_grads_with_norm_, torch.amp.GradScaler.update, torch.amp.GradScaler.step)
    with ExitStack() as undo:
        numerics.install(recorder, undo)
        assert torch.amp.GradScaler.update is not before[1]
    after = (torch.nn.utils.clip_grad._clip_grads_with_norm_, torch.amp.GradScaler.update, torch.amp.GradScaler.step)
    assert all(a is b for a, b in zip(before, after, strict=True)) and clock_for(recorder).listeners == []
