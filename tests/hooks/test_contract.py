"""The contract that every hook of the registry keeps: it comes and goes without a trace, and never harms the job."""

import gc
import sys
import tempfile
import warnings
from collections import Counter
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

import pytest
import safetensors.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch._dynamo.callback import CallbackTrigger, callback_handler
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from rankscope.hooks import gc_pauses
from rankscope.hooks.registry import HOOKS
from rankscope.schema import ring
from rankscope.schema.enums import ENUMS

checkpoint: Any = torch.distributed.checkpoint  # torch re-exports its functions here without saying so
NAMES = [spec.name for spec in HOOKS]
CALLS = ("open", "write", "close", "poke", "intern", "journal", "boundary", "joined", "left")


@pytest.fixture(autouse=True)
def group():
    """A default group of one rank."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(autouse=True)
def long_pauses(monkeypatch):
    """Every collection counts as a long one."""
    monkeypatch.setattr(gc_pauses, "THRESHOLD_NS", 0)


def _checkpoint(model):
    """Save and load the model in each of the ways that are observed. Returns what was read."""
    state, other = model.state_dict(), {name: torch.empty_like(value) for name, value in model.state_dict().items()}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch says of its own checkpoints
        torch.save(state, f"{folder}/plain.pt")
        safetensors.torch.save_file(state, f"{folder}/file.safetensors")
        checkpoint.async_save(state, checkpoint_id=f"{folder}/beside").result()
        checkpoint.load(other, checkpoint_id=f"{folder}/beside")
        read = (torch.load(f"{folder}/plain.pt"), safetensors.torch.load_file(f"{folder}/file.safetensors"), other)
        return [value for found in read for value in found.values()]


def _train():
    """A small training that touches everything the hooks observe. Returns all of its numbers, and its gradients."""
    torch.manual_seed(3)
    inner = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, 1))
    model, loss_of, numbers = DistributedDataParallel(inner), nn.MSELoss(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    data = TensorDataset(torch.randn(6, 4), torch.randn(6, 1))
    for x, y in DataLoader(data, batch_size=2, shuffle=True):
        loss = loss_of(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        numbers.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        scaler.step(optimizer)
        scaler.update()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        dist.all_reduce(mean, async_op=True).wait()
        gathered = [torch.zeros(2)]
        dist.all_gather(gathered, torch.ones(2))
        dist.all_gather_object([None], {"a": 1})
        dist.barrier()
        numbers += [loss.detach(), mean, *gathered]
        for parameter in model.parameters():
            assert parameter.grad is not None
            numbers.append(parameter.grad.clone())
        optimizer.zero_grad()
    with torch.no_grad():
        numbers.append(model(torch.ones(1, 4)))
    dist.new_group([0])
    numbers += _checkpoint(inner)
    gc.collect()
    with callback_handler.install_callbacks(CallbackTrigger.DYNAMO, "0/0"):  # what torch does around a compilation
        pass
    return [*numbers, *(p.detach() for p in model.parameters()), torch.get_rng_state()]


def _assert_same(left, right):
    assert len(left) == len(right)
    assert all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def _attributes():
    """Every attribute of torch's modules and classes, and the entries of their hook tables, by name; no counters."""
    found: dict[tuple[object, ...], object] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("torch", "safetensors") and isinstance(module, ModuleType):
            for attribute, value in list(vars(module).items()):
                found[name, attribute] = value
                if isinstance(value, type) and value.__module__ == name:
                    found |= {(name, attribute, inner): held for inner, held in list(vars(value).items())}
                elif isinstance(value, dict) and "hook" in attribute:
                    found |= {(name, attribute, key): held for key, held in value.items()}
    found |= {("gc", "callbacks", index): callback for index, callback in enumerate(gc.callbacks)}
    return {key: value for key, value in found.items() if not isinstance(value, int)}


def _told(recorder):
    """What was recorded, by table: in the ring, or as rows of the journal."""
    journalled = [body["table"] for kind, body in recorder.lines if kind == "row"]
    return Counter([*(row.table for row in recorder.rows), *journalled])


@pytest.mark.parametrize("names", [*([name] for name in NAMES), NAMES], ids=[*NAMES, "all"])
def test_uninstalled_it_leaves_the_identical_objects(recorder, install, names):
    _train()  # what torch makes at first use is there before
    with ExitStack() as undo:
        install(recorder, undo, *names)
        _train()
    before = _attributes()
    with ExitStack() as undo:
        install(recorder, undo, *names)
        installed = _attributes()
        _train()
    after = _attributes()
    missing = object()
    assert before.keys() == after.keys()
    assert [key for key in before if after.get(key, missing) is not before[key]] == []
    assert any(installed.get(key, missing) is not before.get(key, missing) for key in before.keys() | installed.keys())


@contextmanager
def no_collections_but_ours():
    """The collector runs when it is called, so that counts can be compared."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("name", NAMES)
def test_two_installs_are_one(recorder, install, name):
    def count(times):
        recorder.rows.clear()
        recorder.lines.clear()
        with ExitStack() as undo:
            for _ in range(times):
                install(recorder, undo, name)
            with no_collections_but_ours():
                _train()
        return _told(recorder)

    assert count(1) == count(2)
    assert sum(count(1).values()) > 0


@pytest.mark.parametrize("name", NAMES)
def test_all_numbers_are_bit_identical_with_and_without(recorder, install, name):
    without = _train()
    with ExitStack() as undo:
        install(recorder, undo, name)
        _assert_same(_train(), without)
    assert _told(recorder)


class Mine(Exception):
    pass


def _raise(*_):
    raise Mine("mine")


def _in_forward():
    net = nn.Linear(2, 2)
    net.register_forward_hook(_raise)
    net(torch.ones(2))


def _in_backward():
    x = torch.ones(2, requires_grad=True)
    x.register_hook(_raise)
    x.sum().backward()


def _in_step():
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    optimizer.step(_raise)


def _in_loader():
    class Broken(torch.utils.data.Dataset):
        __getitem__ = _raise

        def __len__(self):
            return 2

    next(iter(DataLoader(Broken())))


def _in_collective():
    dist.all_reduce("not a tensor")


def _in_backend():
    dist.all_gather_into_tensor(torch.zeros(5), torch.zeros(2))


@pytest.mark.parametrize("act", [_in_forward, _in_backward, _in_step, _in_loader, _in_collective, _in_backend])
def test_the_users_exception_is_unchanged(recorder, install, act):
    with pytest.raises(Exception) as bare:
        act()
    with ExitStack() as undo:
        install(recorder, undo, *NAMES)
        with pytest.raises(Exception) as seen:
            act()
        _train()
    assert type(seen.value) is type(bare.value) and str(seen.value) == str(bare.value)
    assert seen.value.__cause__ is None and seen.value.__context__ is bare.value.__context__
    assert recorder.phase == 0


class Failing:
    """Makes one call of a recorder fail, from its nth use on."""

    def __init__(self, recorder, call, allowed):
        original = getattr(recorder, call)
        self.left = allowed
        self.was_reached = False

        def fail(*args, **kwargs):
            self.left -= 1
            if self.left < 0:
                self.was_reached = True
                raise Mine(call)
            return original(*args, **kwargs)

        setattr(recorder, call, fail)


@pytest.mark.parametrize("allowed", [0, 1, 7])
@pytest.mark.parametrize("call", CALLS)
def test_a_failing_recorder_harms_nothing(recorder, install, swallowed, call, allowed):
    without = _train()
    failing = Failing(recorder, call, allowed)
    with ExitStack() as undo:
        for name in NAMES:
            try:
                install(recorder, undo, name)
            except Mine:  # the installer takes care of it
                failing.was_reached = False
        _assert_same(_train(), without)
        _assert_same(_train(), without)
    assert all(isinstance(error, Mine) for _, error in swallowed)
    assert bool(swallowed) == failing.was_reached
    swallowed.clear()
    _assert_same(_train(), without)


def test_every_row_fits_its_table(recorder, install):
    with ExitStack() as undo:
        install(recorder, undo, *NAMES)
        _train()
    assert {row.table for row in recorder.rows} >= {"collective", "span", "step"}
    for row in recorder.rows:
        for name, place in ring.layout_of(row.table).fields.items():
            if place.enum and name in row.values:
                assert 0 <= row.values[name] <= len(ENUMS[place.enum]), (row.table, name)
            if place.encoding == "intern":
                assert row.values[name] in {0, *recorder.names.values()}, (row.table, name)


def test_nothing_is_written_while_the_recorder_is_off(recorder, install):
    with ExitStack() as undo:
        install(recorder, undo, *NAMES)
        recorder.is_on = False
        without = _train()
        assert recorder.rows == []
        recorder.is_on = True
    _assert_same(_train(), without)
