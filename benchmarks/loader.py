"""What watching a data loader costs: the hook's share of the loader's time, over a data set of 10 million samples.

The same loader with and without the hook, epochs of NUM_BATCHES batches interleaved; the ratio of medians, and the
time inside the hook by its own clocks over the loader's time. The samples are the lightest that make sense (one row of
a tensor, collated), so a real data set's share is smaller.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import torch
from overhead_collectives import MemoryRecorder
from torch.utils.data import DataLoader, Dataset, Sampler

from rankscope.hooks import data_loading
from rankscope.hooks.base import now_ns

SIZE, NUM_BATCHES, ROUNDS = 10_000_000, 40, 10
SAMPLE_SECONDS = (0.0, 100e-6)
"""What one sample costs beyond a row of a tensor: nothing, and a light decoding."""


class Rows(Dataset[torch.Tensor]):
    """SIZE rows of 64 numbers, of which 1,000 are in memory."""

    def __init__(self, seconds: float) -> None:
        self.seconds_ns = seconds * 1e9
        self.rows = torch.randn(1000, 64)

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.seconds_ns:
            until = now_ns() + self.seconds_ns
            while now_ns() < until:
                pass
        return self.rows[index % 1000]


class Part(Sampler[int]):
    """The first `num` of a permutation of the whole data set."""

    def __init__(self, order: list[int], num: int) -> None:
        self.order, self.num = order, num

    def __iter__(self) -> Iterator[int]:
        return iter(self.order[: self.num])

    def __len__(self) -> int:
        return self.num


def spent_ns(loader: DataLoader[torch.Tensor]) -> int:
    """Time inside the loader over one pass."""
    begin = now_ns()
    for _ in loader:
        pass
    return now_ns() - begin


def measure(order: list[int], batch_size: int, seconds: float) -> None:
    """Print one line for a batch size and a cost of a sample, s."""
    num = NUM_BATCHES if not seconds else 10
    loader = DataLoader(Rows(seconds), batch_size, sampler=Part(order, batch_size * num))
    bare, watched, inside = list[int](), list[int](), list[int]()
    for _ in range(ROUNDS if not seconds else 3):
        bare.append(spent_ns(loader))
        with ExitStack() as undo:
            data_loading.install(MemoryRecorder(), undo)
            undo.callback(_clocked(data_loading.LoaderWatch, inside))
            watched.append(spent_ns(loader))
    a_batch, hook = statistics.median(bare) / num / 1e3, statistics.median(inside) / 1e3
    ratio = statistics.median(watched) / statistics.median(bare)
    print(
        f"{batch_size:>8,} {seconds * 1e6:>10.0f} {a_batch:>12,.0f} {hook:>9.1f} {hook / a_batch:>9.2%} {ratio:>8.3f}"
    )


def _clocked(owner: type, spent: list[int]) -> Callable[[], None]:
    """Clocks around the two calls of the hook that come with every batch; their sum for each batch goes to `spent`.

    Medians, since on a busy machine some calls are interrupted. Call the result to take the clocks out.
    """
    originals = {name: getattr(owner, name) for name in ("drew", "handed_over")}
    drew = [0]

    def wrap(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            begin = time.monotonic_ns()
            result = original(*args, **kwargs)
            took = time.monotonic_ns() - begin
            if name == "drew":
                drew[0] = took
            else:
                spent.append(drew[0] + took)
            return result

        return call

    for name, original in originals.items():
        setattr(owner, name, wrap(name, original))

    def restore() -> None:
        for name, original in originals.items():
            setattr(owner, name, original)

    return restore


if __name__ == "__main__":
    torch.set_num_threads(1)
    permutation = torch.randperm(SIZE).tolist()
    print(f"{SIZE:,} samples, medians over batches and interleaved passes; sample: its own cost")
    print(f"{'batch':>8} {'sample us':>10} {'loader us':>12} {'hook us':>9} {'share':>9} {'ratio':>8}")
    for cost in SAMPLE_SECONDS:
        for size in (32, 256, 1024, 4096):
            measure(permutation, size, cost)
