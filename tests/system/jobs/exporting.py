"""A job of some data-parallel steps with forked loader workers: what its agent exports is compared with its rows."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

import rankscope
import rankscope.auto  # the line that is under test

STEPS = int(os.environ.get("EXPORTING_STEPS", "42"))
PAUSE = float(os.environ.get("EXPORTING_PAUSE", "0.01"))


def main() -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    halves = [dist.new_group(list(range(size // 2))), dist.new_group(list(range(size // 2, size)))]
    data = TensorDataset(torch.randn(STEPS * 4, 16), torch.randn(STEPS * 4, 1))
    loader = DataLoader(data, batch_size=4, num_workers=1, multiprocessing_context="fork")
    model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        time.sleep(PAUSE * (4 if rank == 1 else 1))
        dist.all_reduce(torch.ones(100))
        dist.all_reduce(torch.ones(50), group=halves[rank * 2 // size])
        dist.all_reduce(torch.ones(10), async_op=True).wait()
        optimizer.step()
        rankscope.log(loss=loss)
        rankscope.step(samples=4, tokens=64)
    loaded = sorted(name for name in sys.modules if name.partition(".")[0] in ("opentelemetry", "google", "grpc"))
    print(f"loaded: {loaded}", flush=True)
    dist.destroy_process_group()


main()
