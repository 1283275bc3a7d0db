"""Trainings that run twice, as a bare job (nothing imported) and with `import rankscope.auto`, and must behave alike.

What they print to standard output, and how they end, is compared.
"""

import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.conftest import JobResult

Torchrun = Callable[..., "JobResult"]

IMPORT = "import rankscope.auto\n"
OFF = {"RANKSCOPE": "0"}
ON = {"RANKSCOPE_AGENT": "off"}

TRAINING = """
import hashlib, os, sys
import torch
import torch.distributed as dist
from torch import nn

def show(*what):
    # One write a line: two ranks share the launcher's output.
    os.write(1, (" ".join(map(str, what)) + "\\n").encode())

def digest(tensors):
    whole = hashlib.sha256()
    for tensor in tensors:
        tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        whole.update(tensor.detach().contiguous().numpy().tobytes())
    return whole.hexdigest()[:16]

def build():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    return nn.Sequential(nn.Linear(4, 16), layer, nn.Linear(16, 1))

def train(model, steps=4, rank=0):
    generator = torch.Generator().manual_seed(rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(steps):
        x = torch.randn(3, 5, 4, generator=generator)
        loss = nn.functional.mse_loss(model(x), x.sum(-1, keepdim=True))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        show(rank, step, loss.item().hex(), norm.item().hex(), digest(p.grad for p in model.parameters()))
        optimizer.step()
        optimizer.zero_grad()
    show(rank, "parameters", digest(model.parameters()), digest([torch.get_rng_state()]))
"""

JOIN = """
dist.init_process_group("gloo")
rank = dist.get_rank()

def meet():
    # Over the store: the launcher ends the other rank as soon as one has failed, so both have to be there.
    store = dist.distributed_c10d._get_default_store()
    store.set(f"met{rank}", "1")
    store.wait(["met0", "met1"])
"""
LEAVE = "dist.destroy_process_group()\n"


def alike(torchrun: Torchrun, source: str, nproc: int = 2) -> tuple["JobResult", "JobResult"]:
    """The job bare and with rankscope on; asserts that they end alike. Both results."""
    source = textwrap.dedent(source)
    bare = torchrun(source, nproc)
    seen = torchrun(IMPORT + source, nproc, env=ON)
    assert bare.returncode == seen.returncode, seen.stderr[-4000:]
    assert sorted(bare.stdout.splitlines()) == sorted(seen.stdout.splitlines())
    assert list(seen.local_dir.rglob("*.journal")), "nothing was recorded with rankscope on"
    return bare, seen


def alike_in_ranks(torchrun: Torchrun, body: str) -> tuple["JobResult", "JobResult"]:
    """See `alike`: `body` in a training of two ranks, which have joined a group and leave it afterwards."""
    return alike(torchrun, TRAINING + JOIN + textwrap.dedent(body) + LEAVE)
