"""torch.compile and torch.export see no hook of ours: same graphs, no warning, no break; compiled calls are told."""

from contextlib import ExitStack

import pytest
import torch
import torch._dynamo
from torch import nn

pytestmark = pytest.mark.slow

WARNS_BY_ITSELF = "ignore::DeprecationWarning"


def _net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def _stats(run):
    """What dynamo did in `run`: graphs, breaks, captured calls."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    result = run()
    counters = torch._dynamo.utils.counters
    return result, dict(counters["graph_break"]), dict(counters["stats"])


def _with_and_without(recorder, install, run):
    bare = _stats(run)
    with ExitStack() as undo:
        install(recorder, undo, "steps", "phases")
        seen = _stats(run)
    return bare, seen


def _train(call, net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        loss = call(torch.ones(2, 4)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def test_a_compiled_module_is_one_forward_without_a_warning(recorder, install):
    def run():
        net = _net()
        return _train(torch.compile(net, backend="aot_eager", fullgraph=True), net)

    bare, seen = _with_and_without(recorder, install, run)
    assert seen == bare
    assert recorder.kinds() == {"forward": 3, "backward": 3, "optimizer": 3}
    assert "forward:OptimizedModule" in recorder.spans()


def test_a_compiled_function_around_a_module_keeps_its_whole_graph(recorder, install):
    def run():
        net = _net()

        def doubled(x):
            return net(x) * 2

        return _train(torch.compile(doubled, backend="aot_eager", fullgraph=True), net)

    bare, seen = _with_and_without(recorder, install, run)
    assert seen == bare
    assert recorder.kinds() == {"backward": 3, "optimizer": 3}


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_a_backward_below_a_graph_break_runs_as_it_is(recorder, install):
    def run():
        net = _net()

        @torch.compile(backend="aot_eager")
        def step(x):
            loss = net(x).sum()
            loss.backward()
            return loss

        return [step(torch.ones(2, 4)).item() for _ in range(3)]

    bare, seen = _with_and_without(recorder, install, run)
    assert seen == bare
    assert recorder.kinds()["backward"] == 3


def test_a_module_compiled_in_place(recorder, install):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = _net()

        def forward(self, x):
            return self.inner(x) + 1

    def run():
        net = Net()
        net.compile(backend="aot_eager", fullgraph=True)
        return _train(net, net)

    bare, seen = _with_and_without(recorder, install, run)
    assert seen == bare
    assert recorder.kinds()["backward"] == 3


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.filterwarnings(WARNS_BY_ITSELF)
def test_export_gives_the_same_graph(recorder, install, strict):
    def run():
        return str(torch.export.export(_net(), (torch.ones(2, 4),), strict=strict).graph)

    bare, seen = _with_and_without(recorder, install, run)
    assert seen[0] == bare[0]


def test_tracing_and_scripting_give_the_same_numbers(recorder, install):
    def run():
        with pytest.warns((DeprecationWarning, FutureWarning)):  # 2.14 has changed the class
            traced, scripted = torch.jit.trace(_net(), torch.ones(2, 4)), torch.jit.script(_net())
        symbolic = torch.fx.symbolic_trace(_net())
        return [call(torch.ones(2, 4)).sum().item() for call in (traced, scripted, symbolic)]

    bare, seen = _with_and_without(recorder, install, run)
    assert seen == bare
