"""Train a small transformer with DistributedDataParallel on made-up data.

The script is an ordinary one; `import rankscope.auto` is all that observes it. Run it with

    OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node=4 examples/train_ddp.py
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import rankscope.auto  # noqa: F401  (the only line added to this training)

VOCABULARY = 64
SEQUENCE_LENGTH = 32


class TinyTransformer(nn.Module):
    """A causal language model of some hundred thousand parameters."""

    def __init__(self, width: int = 128, num_layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.position = nn.Parameter(torch.zeros(SEQUENCE_LENGTH, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=2 * width, dropout=0.0, batch_first=True)
            for _ in range(num_layers)
        )
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens (batch, time) to logits (batch, time, vocabulary)."""
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        hidden = self.embed(tokens) + self.position[:length]
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask, is_causal=True)
        logits: torch.Tensor = self.head(hidden)
        return logits


def counting_sequences(num_sequences: int) -> TensorDataset:
    """Sequences that count up by a constant modulo the vocabulary: easy to learn, nothing to download."""
    generator = torch.Generator().manual_seed(1)
    start = torch.randint(VOCABULARY, (num_sequences, 1), generator=generator)
    stride = torch.randint(1, 5, (num_sequences, 1), generator=generator)
    return TensorDataset((start + stride * torch.arange(SEQUENCE_LENGTH + 1)) % VOCABULARY)


def train(num_steps: int, batch_per_rank: int) -> float:
    """Train for `num_steps` steps; the loss of the last one, averaged over the ranks."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = counting_sequences(num_steps * batch_per_rank * world_size)
    loader = DataLoader(data, batch_size=batch_per_rank, sampler=DistributedSampler(data, shuffle=True, seed=0))
    model = DistributedDataParallel(TinyTransformer())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss = torch.zeros(())
    for step, (tokens,) in enumerate(loader):
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
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
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-per-rank", type=int, default=8, help="sequences of a step on each rank")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    final_loss = train(options.steps, options.batch_per_rank)
    if dist.get_rank() == 0:
        print(f"trained {options.steps} steps on {dist.get_world_size()} ranks, loss {final_loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
