"""Train a small transformer with FSDP2 as HSDP: replicated over one mesh dimension, sharded over the other.

The script is an ordinary one; `import rankscope.auto` is all that observes it. Run it with

    OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node=4 examples/train_fsdp2.py
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import rankscope.auto  # noqa: F401  (the only line added to this training)

VOCABULARY = 64
SEQUENCE_LENGTH = 32
BATCH_PER_RANK = 8
SHARDS = 2


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, both with a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, num_heads=4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states (batch, time, width) to the same shape."""
        mask = nn.Transformer.generate_square_subsequent_mask(hidden.shape[1])
        x = self.norm_attention(hidden)
        hidden = hidden + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]
        output: torch.Tensor = hidden + self.mlp(self.norm_mlp(hidden))
        return output


def build_model(width: int = 128, num_layers: int = 3) -> nn.Sequential:
    """A causal language model of some hundred thousand parameters, each block sharded on its own."""
    mesh = init_device_mesh("cpu", (dist.get_world_size() // SHARDS, SHARDS), mesh_dim_names=("replicate", "shard"))
    model = nn.Sequential(
        nn.Embedding(VOCABULARY, width),
        *(Block(width) for _ in range(num_layers)),
        nn.Flatten(0, 1),
        nn.Linear(width, VOCABULARY),
    )
    for layer in model:
        if isinstance(layer, Block):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def counting_batch(generator: torch.Generator) -> torch.Tensor:
    """Sequences that count up by a constant modulo the vocabulary: easy to learn, nothing to download."""
    start = torch.randint(VOCABULARY, (BATCH_PER_RANK, 1), generator=generator)
    stride = torch.randint(1, 5, (BATCH_PER_RANK, 1), generator=generator)
    return (start + stride * torch.arange(SEQUENCE_LENGTH + 1)) % VOCABULARY


def train(num_steps: int) -> float:
    """Train for `num_steps` steps; the loss of the last one, averaged over the ranks."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(1 + rank)
    loss = torch.zeros(())
    for step in range(num_steps):
        tokens = counting_batch(generator)
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 20 == 0:
            print(f"step {step:3d}  loss {loss.item():.4f}", flush=True)
    mean_loss = loss.detach().clone()
    dist.all_reduce(mean_loss, op=dist.ReduceOp.SUM)
    return mean_loss.item() / world_size


def main() -> None:
    """Read the options, join the group, train, leave."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    final_loss = train(options.steps)
    if dist.get_rank() == 0:
        print(f"trained {options.steps} steps on {dist.get_world_size()} ranks, loss {final_loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
