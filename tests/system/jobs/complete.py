"""A job that runs the workloads named on its command line, and leaves the flight recorder's list beside them.

Writes $COMPLETE_OUT/<rank>.json: the flight recorder's entries, where each workload began in them, the schedule of
every P2P operation, and the members of the groups by the names that the flight recorder uses.
"""

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives
from torch import nn
from torch.distributed import all_reduce as early_all_reduce  # before the attach, on purpose
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import rankscope.auto  # noqa: F401 - the line that is under test

funcol: Any = torch.distributed._functional_collectives  # annotated as if results were plain tensors, without wait
WORKLOADS: dict[str, Callable[[int, int], None]] = {}
SCHEDULE: list[tuple[Any, ...]] = []  # (op, src, dst, tag, bytes, dtype): what this rank sends and receives


def workload(function):
    WORKLOADS[function.__name__] = function
    return function


def model(width=8):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))


def train(net, width=8, steps=2):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.ones(2, width)).sum().backward()
        optimizer.step()


@workload
def direct(rank, size):
    t = torch.ones(4)
    parts = [torch.zeros(4) for _ in range(size)]
    whole = torch.zeros(4 * size)
    early_all_reduce(t)
    dist.all_reduce(t.double())
    dist.all_reduce(torch.ones(3, dtype=torch.bfloat16), op=dist.ReduceOp.MAX)
    dist.broadcast(t, 1)
    dist.reduce(t, 0)
    dist.barrier()
    dist.all_gather(parts, t)
    dist.all_gather_into_tensor(whole, t)
    dist.reduce_scatter_tensor(t, whole)
    dist.reduce_scatter(t, parts)
    dist.gather(t, parts if rank == 0 else None, 0)
    dist.scatter(t, parts if rank == 0 else None, 0)
    dist.all_reduce_coalesced([t, t.clone()])
    with dist._coalescing_manager(dist.group.WORLD):  # type: ignore[attr-defined]  # re-exported without saying so
        dist.all_reduce(t)
        dist.all_reduce(torch.ones(2))
    dist.monitored_barrier()
    works = [dist.all_reduce(torch.ones(i + 1), async_op=True) for i in range(5)]
    for work in reversed(works):
        work.wait()
    dist.all_reduce(torch.sparse_coo_tensor(torch.tensor([[0, 2]]), [1.0, 2.0], (4,), check_invariants=True))


@workload
def all_to_all(rank, size):
    dist.all_to_all_single(torch.zeros(2 * size), torch.ones(2 * size))
    dist.all_to_all([torch.zeros(3) for _ in range(size)], [torch.ones(3) for _ in range(size)])
    splits = [i + 1 for i in range(size)]
    dist.all_to_all_single(torch.zeros((rank + 1) * size), torch.ones(sum(splits)), [rank + 1] * size, splits)


@workload
def objects(rank, size):
    dist.all_gather_object([None] * size, {"rank": rank, "text": "x" * (10 * rank)})
    dist.broadcast_object_list([rank, "text"], src=0)
    dist.gather_object(rank, [None] * size if rank == 0 else None)
    dist.scatter_object_list([None], list(range(size)) if rank == 0 else None)


@workload
def ddp(rank, size):
    from torch.nn.parallel import DistributedDataParallel

    train(DistributedDataParallel(model(), bucket_cap_mb=0.0001), steps=3)


@workload
def ddp_accumulation(rank, size):
    from torch.nn.parallel import DistributedDataParallel

    net = DistributedDataParallel(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        with net.no_sync():
            net(torch.ones(2, 8)).sum().backward()
        net(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@workload
def zero(rank, size):
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    net = DistributedDataParallel(model())
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.1)
    for _ in range(2):
        net(torch.ones(2, 8)).sum().backward()
        optimizer.step()


@workload
def fsdp1(rank, size):
    from torch.distributed.fsdp import FullyShardedDataParallel

    train(FullyShardedDataParallel(model(), device_id=torch.device("cpu")))


@workload
def fsdp2(rank, size):
    from torch.distributed.fsdp import fully_shard

    net = model()
    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("dp",))
    fully_shard(net[0], mesh=mesh)
    fully_shard(net, mesh=mesh)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        net(torch.ones(2, 8)).sum().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()


@workload
def hsdp(rank, size):
    from torch.distributed.fsdp import fully_shard

    net = model()
    fully_shard(net, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_replicate", "dp_shard")))
    train(net)


@workload
def tensor_parallel(rank, size):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("tp",))
    net = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        net(torch.ones(2, 8)).sum().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    sharded = distribute_tensor(torch.ones(4 * size, 2), mesh, [Shard(0)])
    assert isinstance(sharded, DTensor)
    sharded.redistribute(mesh, [Replicate()]).to_local().sum()
    sharded.redistribute(mesh, [Shard(1)]).to_local().sum()
    sharded.full_tensor()


@workload
def functional(rank, size):
    world, t, whole = dist.group.WORLD, torch.ones(4), torch.ones(4 * size)
    funcol.all_reduce(t, "sum", world).wait()
    (funcol.all_reduce(t, "max", world) + 1).sum()  # waited for implicitly
    funcol.all_gather_tensor(t, 0, world).wait()
    funcol.reduce_scatter_tensor(whole, "sum", 0, world).wait()
    funcol.all_to_all_single(whole, None, None, world).wait()
    funcol.broadcast(t, 0, world).wait()
    for result in (
        *funcol.all_gather_into_tensor_coalesced([t, t.clone()], world),
        *funcol.reduce_scatter_tensor_coalesced([whole, whole.clone()], "sum", [0, 0], world),
        *funcol.all_reduce_coalesced([t, torch.ones(2)], "sum", world),
    ):
        result.wait()
    leaf = torch.ones(4, requires_grad=True)
    funcol.all_gather_tensor_autograd(leaf, 0, world).sum().backward()
    funcol.reduce_scatter_tensor_autograd(torch.ones(4 * size, requires_grad=True), "sum", 0, world).sum().backward()
    with torch.no_grad():
        funcol.all_reduce(leaf, "sum", world).wait()


@workload
def inference(rank, size):
    world = dist.group.WORLD
    outside = torch.ones(4)
    with torch.inference_mode():
        inside = torch.ones(4)
        for t in (inside, outside):
            dist.all_reduce(t)
            dist.all_gather_into_tensor(torch.zeros(4 * size), t)
            funcol.all_reduce(t, "sum", world).wait()
            funcol.all_gather_tensor(t, 0, world).wait()


@workload
def autograd_nn(rank, size):
    import torch.distributed.nn.functional as dist_nn

    t = torch.ones(4, requires_grad=True)
    dist_nn.all_reduce(t).sum().backward()
    torch.cat(list(dist_nn.all_gather(t))).sum().backward()


@workload
def threads(rank, size):
    groups = [dist.new_group(list(range(size))) for _ in range(3)]

    def run(index):
        for i in range(10):
            dist.all_reduce(torch.ones(index + i + 1), group=groups[index])
            funcol.all_reduce(torch.ones(index + 2), "sum", groups[index]).wait()

    running = [threading.Thread(target=run, args=(index,)) for index in range(3)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


@workload
def sub_groups(rank, size):
    pairs = [dist.new_group([first, first + 1]) for first in range(0, size, 2)]
    dist.all_reduce(torch.ones(5), group=pairs[rank // 2])
    dist.broadcast(torch.ones(2), rank // 2 * 2 + 1, group=pairs[rank // 2])
    alone = dist.new_group([0])
    if rank == 0:
        dist.all_reduce(torch.ones(1), group=alone)
    mine, _ = dist.new_subgroups(2)
    dist.all_gather_object([None, None], rank, group=mine)
    mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("dp", "tp"))
    dist.all_reduce(torch.ones(3), group=mesh.get_group("dp"))
    dist.all_reduce(torch.ones(4), group=mesh.get_group("tp"))
    transfer = dist.isend if rank % 2 == 0 else dist.irecv
    work = transfer(torch.ones(6), rank ^ 1, group=mesh.get_group("tp"), tag=7)
    assert work is not None
    work.wait()
    op, src, dst = ("send", rank, rank ^ 1) if rank % 2 == 0 else ("recv", rank ^ 1, rank)
    SCHEDULE.append((op, src, dst, 7, 24, "float32"))


@workload
def checkpoint(rank, size):
    import torch.distributed.checkpoint

    dcp: Any = torch.distributed.checkpoint  # torch re-exports its functions here without saying so
    folder = os.environ["COMPLETE_OUT"] + "/checkpoint"
    mesh = init_device_mesh("cpu", (size,))
    state = {"w": distribute_tensor(torch.ones(8, 2), mesh, [Shard(0)]), "b": torch.ones(3)}
    dcp.save(state, checkpoint_id=folder)
    dcp.load(state, checkpoint_id=folder)


@workload
def transfers(rank, size):
    peer = 1 - rank

    def note(op, tag, num_bytes, dtype="float32"):
        src, dst = (rank, peer) if op == "send" else (peer, rank)
        SCHEDULE.append((op, src, dst, tag, num_bytes, dtype))

    for i in range(3):
        if rank == 0:
            dist.send(torch.ones(i + 1), 1)
            note("send", 0, 4 * (i + 1))
        else:
            dist.recv(torch.ones(i + 1), 0)
            note("recv", 0, 4 * (i + 1))
    ops = [dist.P2POp(dist.isend, torch.ones(5), peer), dist.P2POp(dist.irecv, torch.zeros(5), peer)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    note("send", 0, 20)
    note("recv", 0, 20)
    if rank == 0:
        dist.send(torch.ones(2, dtype=torch.int64), 1, tag=3)
        note("send", 3, 16, "int64")
    else:
        dist.recv(torch.ones(2, dtype=torch.int64), None, tag=3)  # from anybody
        SCHEDULE.append(("recv", None, 1, 3, 16, "int64"))


@workload
def pipeline(rank, size):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    torch.manual_seed(0)
    num, shape = 4, torch.ones(2, 8, requires_grad=True)
    inputs = shape.detach() if rank == 0 else shape
    stage = PipelineStage(nn.Linear(8, 8), rank, 2, torch.device("cpu"), input_args=inputs, output_args=shape)
    schedule = Schedule1F1B(stage, n_microbatches=num, loss_fn=lambda out, target: ((out - target) ** 2).mean())
    # before the first step the stages vote on how shapes are found: one int32 there and back
    down, up = ("send", "recv") if rank == 0 else ("recv", "send")
    SCHEDULE.extend([(down, 0, 1, 0, 4, "int32"), (up, 1, 0, 0, 4, "int32")])
    if rank == 0:
        schedule.step(torch.ones(2 * num, 8))
        SCHEDULE.extend([("send", 0, 1, 0, 64, "float32")] * num + [("recv", 1, 0, 0, 64, "float32")] * num)
    else:
        schedule.step(target=torch.ones(2 * num, 8))
        SCHEDULE.extend([("recv", 0, 1, 0, 64, "float32")] * num + [("send", 1, 0, 0, 64, "float32")] * num)


@workload
def compiled(rank, size):
    world = dist.group.WORLD

    def step(x):
        y = funcol.all_reduce(x * 2, "sum", world)
        return funcol.all_gather_tensor(y + 1, 0, world).sum()

    def in_place(x):
        y = x * 2
        dist.all_reduce(y)
        return y + 1

    for backend in ("aot_eager", "inductor"):
        torch._dynamo.reset()
        run = torch.compile(step, backend=backend, fullgraph=True)
        for _ in range(3):
            run(torch.ones(4))
        with torch.inference_mode():
            run(torch.ones(4))
        torch._dynamo.reset()
        run = torch.compile(in_place, backend=backend)
        for _ in range(2):
            run(torch.ones(4))


@workload
def compiled_ddp(rank, size):
    from torch.nn.parallel import DistributedDataParallel

    train(torch.compile(DistributedDataParallel(model()), backend="aot_eager"))


def main():
    out = Path(os.environ["COMPLETE_OUT"])
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    began = []
    for name in sys.argv[1:]:
        began.append((name, len(entries())))
        WORKLOADS[name](rank, size)
        dist.barrier()
    known: Any = dist.distributed_c10d._world.pg_group_ranks.items()  # a key may be torch's mark of a non-member
    groups = {pg.group_name: sorted(ranks) for pg, ranks in known if isinstance(pg, dist.ProcessGroup)}
    (out / f"{rank}.json").write_text(
        json.dumps({"entries": entries(), "began": began, "schedule": SCHEDULE, "groups": groups})
    )
    dist.destroy_process_group()


def entries():
    bindings: Any = torch._C._distributed_c10d  # this function is missing in torch's stub
    return json.loads(bindings._dump_fr_trace_json(True, False)).get("entries", [])


if __name__ == "__main__":
    main()
