"""Phases: exact counts, order and nesting of the spans, and the phase in progress."""

import copy
import itertools
import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from rankscope.schema.enums import code
from rankscope.schema.ring import COMPLETED, FAILED

GLOBALS = torch.nn.modules.module


def _net():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def _phases_seen(watched, net):
    seen = []
    net[1].register_forward_hook(lambda *_: seen.append(watched.phase))
    return seen


def test_a_step_has_its_phases_in_order_and_all_of_them_end(watched):
    net, loss_of = _net(), nn.MSELoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(6, 4), torch.randn(6, 1))
    for x, y in DataLoader(data, batch_size=2):
        loss_of(net(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    step = ["data", "forward:Sequential", "forward:MSELoss", "backward", "optimizer:SGD"]
    assert watched.spans() == step * 3 + ["data:end"]
    rows = watched.of("span")
    assert [row.state for row in rows] == [COMPLETED] * 15 + [FAILED]
    assert [row.values["step"] for row in rows] == [0] * 5 + [1] * 5 + [2] * 5 + [3]
    assert all(a.values["end_ns"] <= b.values["start_ns"] for a, b in itertools.pairwise(rows))


def test_the_phase_is_set_inside_and_restored(watched):
    net = _net()
    seen = _phases_seen(watched, net)
    out = net(torch.randn(2, 4))
    out.register_hook(lambda gradient: seen.append(watched.phase))
    out.sum().backward()
    with torch.no_grad():
        net(torch.randn(2, 4))
    assert seen == [code("phase", "forward"), code("phase", "backward"), code("phase", "eval")]
    assert watched.phase == 0


@pytest.mark.parametrize("quiet", ["no_grad", "inference_mode", "eval"])
def test_a_forward_without_gradients_is_evaluation(watched, quiet):
    net = _net()
    if quiet == "eval":
        net.eval()(torch.randn(2, 4))
    else:
        with getattr(torch, quiet)():
            net(torch.randn(2, 4))
    assert watched.spans() == ["eval:Sequential"]


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_forwards_and_reentrant_backwards_belong_to_the_backward(watched, reentrant):
    net = _net()
    out = checkpoint(net, torch.randn(2, 4, requires_grad=True), use_reentrant=reentrant)
    out.sum().backward()
    first = "eval" if reentrant else "forward"  # reentrant checkpointing runs the forward without gradients
    assert watched.spans() == [f"{first}:Sequential", "backward"]
    net(torch.randn(2, 4))
    assert watched.spans()[2:] == ["forward:Sequential"]


def test_every_way_into_the_engine_is_one_backward(watched):
    x = torch.randn(3, requires_grad=True)
    (x * x).sum().backward()
    torch.autograd.backward([(x * x).sum()])
    torch.autograd.grad((x * x).sum(), x)
    assert watched.kinds() == {"backward": 3}


def test_an_exception_ends_the_span_and_passes_unchanged(watched):
    class Broken(nn.Module):
        def forward(self, x):
            raise error

    error, broken, net = KeyError("mine"), Broken(), _net()
    outer = nn.Sequential(broken)
    with pytest.raises(KeyError) as seen:
        outer(torch.randn(2, 4))
    assert seen.value is error
    out = net(torch.randn(2, 4)).sum()
    out.register_hook(lambda gradient: (_ for _ in ()).throw(error))
    with pytest.raises(KeyError):
        out.backward()
    net(torch.randn(2, 4))
    assert watched.spans() == ["forward:Sequential", "forward:Sequential", "backward", "forward:Sequential"]
    assert [row.state for row in watched.of("span")] == [FAILED, COMPLETED, FAILED, COMPLETED]
    assert watched.phase == 0


def test_inner_modules_see_no_hook_and_nothing_stays_on_the_outer_one(watched):
    seen = []

    class Inner(nn.Module):
        def forward(self, x):
            seen.append((dict(GLOBALS._global_forward_pre_hooks), dict(self._forward_hooks)))
            return x

    outer = nn.Sequential(Inner(), Inner())
    outer(torch.randn(1))
    assert seen == [({}, {})] * 2
    assert not outer._forward_hooks and not outer._forward_hooks_always_called
    copy.deepcopy(outer)
    outer(torch.randn(1))
    assert watched.kinds() == {"forward": 2}


def test_a_module_that_calls_itself_is_one_forward(watched):
    class Tree(nn.Module):
        def forward(self, x, depth=3):
            return x if depth == 0 else self(x, depth - 1) + 1

    Tree()(torch.zeros(1))
    assert watched.spans() == ["forward:Tree"]
    assert watched.of("span")[0].state == COMPLETED


def test_an_interrupted_forward_does_not_silence_the_later_ones(watched):
    class Interrupted(nn.Module):
        def forward(self, x):
            raise KeyboardInterrupt

    net = _net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(KeyboardInterrupt):
        Interrupted()(torch.randn(1))
    for _ in range(2):
        net(torch.randn(2, 4)).sum().backward()
        optimizer.step()
    net(torch.randn(2, 4))
    assert watched.spans()[-1] == "forward:Sequential"


def test_a_second_thread_is_left_alone(watched):
    inner = _net()

    class Threaded(nn.Module):
        def forward(self, x):
            thread = threading.Thread(target=inner, args=(x,))
            thread.start()
            thread.join()
            return x

    Threaded()(torch.randn(2, 4))
    assert watched.spans() == ["forward:Threaded"]


def test_loader_workers_and_iterable_datasets_are_counted_the_same(watched):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(6))

    assert len(list(DataLoader(Stream(), batch_size=2))) == 3
    assert watched.spans() == ["data"] * 3 + ["data:end"]


def test_user_hooks_stay_in_their_order(watched):
    net, seen = _net(), []
    net.register_forward_pre_hook(lambda *_: seen.append("pre"))
    net.register_forward_hook(lambda *_: seen.append("post"))
    net.register_full_backward_hook(lambda *_: seen.append("backward"))
    net(torch.randn(2, 4, requires_grad=True)).sum().backward()
    assert seen == ["pre", "post", "backward"]
    assert watched.kinds() == {"forward": 1, "backward": 1}
