"""What the process group hook sees on one gloo rank: every source, once; waits, completion, groups, numbers."""

import threading
from contextlib import ExitStack

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import init_device_mesh

from rankscope.hooks import native, process_groups
from rankscope.schema.enums import ENUMS

TIERS = ["dispatcher", *(["native"] if native.is_available() else [])]


@pytest.fixture(params=TIERS)
def seen(recorder, request):
    """The recorder with the hook installed in each tier that this torch has, before the default group exists."""
    with ExitStack() as undo:
        process_groups.install(recorder, undo, request.param)
        dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
        yield recorder
        dist.destroy_process_group()


def _world():
    world = dist.group.WORLD
    assert world is not None
    return world


def _word(enum, number):
    return ENUMS[enum][number - 1] if number else None


def _rows(recorder):
    """(op, seq, tier) of each row."""
    return [
        (_word("op", row.values["op"]), row.values["seq"], _word("tier", row.values["tier"]))
        for row in recorder.of("collective")
    ]


def _groups(recorder):
    return [line for kind, line in recorder.lines if kind == "group"]


def test_each_source_counts_once_in_one_sequence(seen):
    live = process_groups._live
    assert live is not None
    tier = "native" if live.guards[0].hook.endswith("native") else "dispatcher"
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    funcol.all_reduce(tensor, "sum", _world()).wait()
    dist.all_gather([torch.zeros(2)], tensor)
    dist.barrier()
    assert _rows(seen) == [
        ("all_reduce", 0, "class"), ("all_reduce", 1, tier), ("all_gather", 2, "class"), ("barrier", 3, "class"),
    ]  # fmt: skip


def test_excluded_key_and_inference_mode_are_seen(seen):
    with torch.inference_mode():
        funcol.all_reduce(torch.ones(2), "max", _world()).wait()
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)):
        funcol.all_reduce(torch.ones(2), "max", _world()).wait()
        dist.all_reduce(torch.ones(2))
    assert [(op, seq) for op, seq, _ in _rows(seen)] == [("all_reduce", 0), ("all_reduce", 1), ("all_reduce", 2)]
    assert {_word("reduce_op", row.values["reduce_op"]) for row in seen.of("collective")} == {"max", "sum"}
    assert all(row.state == 2 and row.values["wait_end_ns"] for row in seen.of("collective"))


def test_numbers_of_a_row(seen):
    dist.all_reduce(torch.ones(3, dtype=torch.float64), op=dist.ReduceOp.MIN)
    dist.reduce_scatter_tensor(torch.zeros(4), torch.ones(4))
    dist.broadcast(torch.ones(1, dtype=torch.bool), 0)
    first, second, third = (row.values for row in seen.of("collective"))
    assert (first["bytes_in"], first["bytes_out"]) == (24, 24)
    assert (_word("dtype", first["dtype"]), _word("reduce_op", first["reduce_op"])) == ("float64", "min")
    assert (second["bytes_in"], second["bytes_out"], second["src"]) == (16, 16, -1)
    assert (third["src"], third["dst"], _word("dtype", third["dtype"])) == (0, -1, "bool")
    assert all(row["issued_ns"] <= row["returned_ns"] <= row["wait_begin_ns"] for row in (first, second, third))


def test_an_asynchronous_operation_is_polled_then_waited_for(seen):
    work = dist.all_reduce(torch.ones(2), async_op=True)
    (row,) = seen.of("collective")
    assert row.state == 1 and row.values["is_async"]
    while not work.is_completed():
        pass
    process_groups.poll()
    assert row.state == 2 and row.values["wait_end_ns"] == 0
    polled = row.values["completed_ns"]
    row.state = 1  # the recorder of the tests lets a row be closed once
    work.wait()
    assert row.state == 2 and row.values["wait_end_ns"] > 0 and row.values["completed_ns"] == polled


def test_an_operation_that_nobody_waits_for_is_never_called_complete(seen):
    dist.all_reduce(torch.ones(2), async_op=True)  # the work is dropped at once
    (row,) = seen.of("collective")
    assert row.state == 1 and row.values["completed_ns"] == 0


def test_a_failed_operation_is_failed_and_the_next_is_counted(seen):
    with pytest.raises(RuntimeError):
        dist.all_gather_into_tensor(torch.zeros(5), torch.ones(2))
    dist.all_reduce(torch.ones(1))
    assert [(row.state, row.values["seq"]) for row in seen.of("collective")] == [(3, 0), (2, 1)]


def test_fake_tensors_are_not_operations(seen):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        funcol.all_reduce(torch.ones(2), "sum", _world())
    assert seen.of("collective") == []


def test_groups_are_told_apart_and_described_once(seen):
    groups = [dist.new_group([0]) for _ in range(2)]
    for group in groups:
        dist.all_reduce(torch.ones(1), group=group)
    lines = _groups(seen)
    assert [line["ordinal"] for line in lines] == [0, 1, 2]
    assert len({line["group_id"] for line in lines}) == 3
    assert [row.values["group_id"] for row in seen.of("collective")] == [lines[1]["id"], lines[2]["id"]]
    assert lines[0]["mesh_dimension"] == "world" and lines[0]["member_counts"] == [1]


def test_a_mesh_names_its_dimensions(seen):
    init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp_shard", "tp"))
    assert {line["mesh_dimension"] for line in _groups(seen)} >= {"tp"}


def test_sequence_numbers_of_threads_have_no_gaps(seen):
    def run():
        for _ in range(50):
            dist.all_reduce(torch.ones(1))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(row.values["seq"] for row in seen.of("collective")) == list(range(150))
    assert all(row.state == 2 for row in seen.of("collective"))


def test_a_second_default_group_begins_anew(seen):
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    dist.all_reduce(torch.ones(1))
    first, second = _groups(seen)
    assert first["group_id"] == second["group_id"] and first["id"] != second["id"]  # told apart by the incarnation
    assert [row.values["seq"] for row in seen.of("collective")] == [0, 0]
    assert [kind for kind, _ in seen.lines if kind in ("join", "left")] == ["join", "left", "join"]


@pytest.mark.parametrize("tier", TIERS)
def test_attached_late_it_goes_on_counting_where_the_backend_stands(recorder, tier):
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    for _ in range(3):
        dist.all_reduce(torch.ones(1))
    with ExitStack() as undo:
        process_groups.install(recorder, undo, tier)
        dist.all_reduce(torch.ones(1))
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()
    assert _rows(recorder) == [("all_reduce", 3, "class")]
    assert [kind for kind, _ in recorder.lines if kind in ("join", "group")] == ["join", "group"]


@pytest.mark.parametrize("tier", TIERS)
def test_all_reduce_leaves_version_counters_as_they_are(recorder, tier):
    """The fast way keeps out of the kernel by excluding its key; other operations must not."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)

    def versions():
        a, b, c, d, e = (torch.ones(2) for _ in range(5))
        dist.all_reduce(a)
        dist.all_reduce(b, async_op=True).wait()
        dist.broadcast(c, 0)
        dist.all_gather([d], a)
        dist.all_gather_into_tensor(e, a)
        return [t._version for t in (a, b, c, d, e)]

    bare = versions()
    with ExitStack() as undo:
        process_groups.install(recorder, undo, tier)
        assert versions() == bare
        assert len(recorder.of("collective")) == 5
    dist.destroy_process_group()
