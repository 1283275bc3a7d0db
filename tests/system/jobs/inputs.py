"""A job that loads data and saves checkpoints; writes down what it drew, and what lies on the disk, for the test.

INPUTS_OUT: folder for both. The delay of a batch is slept where the batch is made: in this process without workers,
in the workers with some.
"""

import json
import os
import time
import warnings
from typing import Any

import rankscope.auto  # noqa: F401  isort: skip
import safetensors.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

dcp: Any = torch.distributed.checkpoint  # torch re-exports its functions here without saying so
DELAY_SECONDS = 0.05
SIZE = 50


class Slow(Dataset):
    """SIZE numbers; a batch takes DELAY_SECONDS."""

    def __len__(self):
        return SIZE

    def __getitems__(self, indices):
        time.sleep(DELAY_SECONDS)
        return [torch.tensor([float(index)]) for index in indices]


def load_data(rank, size, **settings):
    data = Slow()
    sampler: DistributedSampler[int] = DistributedSampler(data, size, rank, shuffle=True)
    loader = DataLoader(data, batch_size=2, sampler=sampler, **settings)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    waited, drawn = 0, []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        batches = iter(loader)
        while True:
            asked = time.monotonic_ns()
            try:
                batch = next(batches)
            except StopIteration:
                break
            waited += time.monotonic_ns() - asked
            drawn.append(batch.flatten().int().tolist())
            model(batch).sum().backward()
            optimizer.step()
    return {"waited_ns": waited, "drawn": drawn}


def save(size, folder):
    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("dp",))
    state = {"w": distribute_tensor(torch.randn(64, 512), mesh, [Shard(0)]), "b": torch.randn(100), "n": 3}
    dcp.save(state, checkpoint_id=f"{folder}/sync")
    dcp.async_save(state, checkpoint_id=f"{folder}/async").result()
    dcp.load(state, checkpoint_id=f"{folder}/sync")
    dcp.load({"w": state["w"]}, checkpoint_id=f"{folder}/async")
    torch.save({"rank": dist.get_rank()}, f"{folder}/rank{dist.get_rank()}.pt")
    dist.barrier()
    torch.load(f"{folder}/rank0.pt")
    safetensors.torch.load_file(_by_rank_0(state, folder))
    if dist.get_rank() == 0:
        torch.save({"b": state["b"]}, f"{folder}/plain.pt")
        torch.load(f"{folder}/plain.pt")
    time.sleep(0.1)  # the future is done a moment before its callbacks are


def _by_rank_0(state, folder):
    path = f"{folder}/model.safetensors"
    if dist.get_rank() == 0:
        safetensors.torch.save_file({"b": state["b"]}, path)
    dist.barrier()
    return path


def main():
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    rank, size, folder = dist.get_rank(), dist.get_world_size(), os.environ["INPUTS_OUT"]
    told = {}
    if "data" in os.environ["INPUTS_PARTS"]:
        told = {
            name: load_data(rank, size, **settings)
            for name, settings in (
                ("0", {}), ("2", {"num_workers": 2}), ("persistent", {"num_workers": 2, "persistent_workers": True}),
            )
        }  # fmt: skip
    if "checkpoints" in os.environ["INPUTS_PARTS"]:
        save(size, folder)
    with open(f"{folder}/{rank}.json", "w") as file:
        json.dump(told, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
