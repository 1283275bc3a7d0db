"""A small job of 4 ranks that trains once for each fault named on its command line, each time as a run of its own.

    torchrun --nproc-per-node=4 faults.py FOLDER FAULT[:RANK] ...

Run i lies in FOLDER/<i>, what is left of it on this machine in FOLDER/<i>-local; RANK is late. FAULT: even (nobody is
late), data (its data set takes DELAY longer), compute (its forward pass does), gc (it collects garbage), lengths and
untold (sequences of different lengths, told or not), grid (2 x 2 ranks, tensor x data parallel; its forward pass takes
longer), buckets (its forward pass takes 5 x DELAY longer and 20 buckets are in flight behind it).
"""

import gc
import os
import random
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import rankscope

STEPS = 36
DELAY = 0.06  # seconds
WORK = 0.01
WIDTH = 64
GARBAGE = 300_000  # objects that a collection has to look at
SHORTEST, LONGEST = 200, 2000  # tokens


class Samples(Dataset):
    """Samples that take `delay` seconds each."""

    def __init__(self, delay):
        self.delay = delay

    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        time.sleep(self.delay)
        return torch.full((WIDTH,), float(index % 7))


class Layers(nn.Module):
    """Linear layers; with `team`, their outputs are summed over it, as tensor parallelism does."""

    def __init__(self, num_layers, team=None):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(num_layers))
        self.team = team

    def forward(self, x, seconds):
        for layer in self.layers:
            time.sleep(seconds / len(self.layers))
            x = torch.tanh(layer(x))
            if self.team is not None:
                dist.all_reduce(x.data, group=self.team)
        return x


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1).step()  # what the first step imports is not to be seen
    for number, text in enumerate(sys.argv[2:]):
        fault, _, late = text.partition(":")
        os.environ["RANKSCOPE_LOCAL_DIR"] = str(Path(sys.argv[1]) / f"{number}-local")  # an agent for each, as of jobs
        dist.barrier()
        rankscope.attach(run_dir=str(Path(sys.argv[1]) / str(number)), run_id=f"run-{number}-{fault}")
        train(fault, rank, bool(late) and rank == int(late), random.Random(f"{rank} {number}"))
        rankscope.detach()
    dist.barrier()
    dist.destroy_process_group()


def train(fault, rank, is_late, lengths):
    torch.manual_seed(0)
    net, average = made(fault, rank)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    gc.freeze()  # libraries have objects enough for a pause of their own
    ballast = [[number] for number in range(GARBAGE)] if fault == "gc" and is_late else []
    delays = {"compute": DELAY, "grid": DELAY, "buckets": 5 * DELAY}
    for batch in DataLoader(Samples(DELAY if fault == "data" and is_late else 0), batch_size=1):
        seconds, tokens = WORK + (delays.get(fault, 0) if is_late else 0), None
        if fault in ("lengths", "untold"):
            length = lengths.randint(SHORTEST, LONGEST)
            seconds, tokens = length / LONGEST * 4 * WORK, length if fault == "lengths" else None
        if ballast:
            gc.collect()
            gc.collect()
        optimizer.zero_grad()
        net(batch, seconds).sum().backward()
        average()
        optimizer.step()
        rankscope.step(samples=1, tokens=tokens)


def made(fault, rank):
    """The model, and what averages its gradients after the backward pass."""
    if fault != "grid":
        num_layers, megabytes = (10, 0.001) if fault == "buckets" else (4, 0.03)
        return DistributedDataParallel(Layers(num_layers), bucket_cap_mb=megabytes), lambda: None
    tensor = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
    data = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
    net = Layers(4, tensor)

    def average():
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad, group=data)

    return net, average


main()
