"""What watching a data loader costs: the hook's share of the loader's time, over a data set of 10 million samples.

Inside the same pass the loader's calls are timed from outside the hook and from inside it (the loader's own code); the
difference is the hook's, the batch's row and digest and all. Printed is the mean over the batches but the dearest
hundredth (on a busy machine these were interrupted), from the moment on in which the hook has judged its own cost:
where it is over its budget it observes one batch in n. What the clocks cost without the hook is taken off.
The last column is the share without a budget. The data sets: a
TensorDataset of 10 million samples of 1 KiB, collated by default, without workers and with two; and, for the limits,
samples that cost nothing (one row of 64 numbers out of a list of tensors) and samples that take 100 us to make (a light
decoding). With workers the loader's time is what the training waits for.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import torch
from overhead_collectives import MemoryRecorder
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from rankscope.hooks import data_loading
from rankscope.hooks.base import now_ns
from rankscope.hooks.loader_budget import STRIKES, WINDOW

SIZE, ROUNDS = 10_000_000, 3
NUM_SAMPLES: int = 100_000
"""Read in one pass, in at least 20 batches; more where the hook would not settle else."""
SLOW_SAMPLE_NS = 100_000
SETTLED = STRIKES * WINDOW + 16
"""Batches after which the hook knows what it costs."""


class Rows(Dataset[torch.Tensor]):
    """SIZE rows of 64 numbers, of which 1,000 are in memory; each takes `sample_ns` to make."""

    def __init__(self, sample_ns: int) -> None:
        self.sample_ns = sample_ns
        self.rows: list[torch.Tensor] = list(torch.randn(1000, 64))

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> torch.Tensor:
        until = now_ns() + self.sample_ns
        while self.sample_ns and now_ns() < until:
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


class Clock:
    """Time spent in the calls of one attribute of the loaders' iterators, ns; one sum for each batch."""

    def __init__(self, name: str) -> None:
        self.name, self.spent = name, 0

    def put(self, undo: ExitStack) -> None:
        """Around whatever the attribute is now."""
        original: Callable[..., Any] = getattr(_BaseDataLoaderIter, self.name)

        def call(iterator: Any) -> Any:
            begin = now_ns()
            try:
                return original(iterator)
            finally:
                self.spent += now_ns() - begin

        setattr(_BaseDataLoaderIter, self.name, call)
        undo.callback(setattr, _BaseDataLoaderIter, self.name, original)

    def take(self) -> int:
        """What was spent since the last call."""
        spent, self.spent = self.spent, 0
        return spent


def measure(name: str, loader: DataLoader[Any]) -> None:
    """Print one line."""
    found = {}
    for budget in ("0.01", "0", ""):
        os.environ["RANKSCOPE_COST_BUDGET"] = budget or "0"
        loads, hooks = list[int](), list[int]()
        for _ in range(ROUNDS):
            inner, outer = ([Clock(name) for name in ("__next__", "_next_index")] for _ in range(2))
            with ExitStack() as undo:
                for clock in inner:
                    clock.put(undo)
                if budget:
                    data_loading.install(MemoryRecorder(), undo)
                for clock in outer:
                    clock.put(undo)
                _pass(loader, inner, outer, loads, hooks)
        found[budget] = _mean(loads) / 1e3, _mean(hooks) / 1e3
    (load, hook), (all_load, all_hook), (_, clocks) = (found[budget] for budget in ("0.01", "0", ""))
    hook, all_hook = hook - clocks, all_hook - clocks
    print(f"{name:<34} {loader.num_workers:>7} {loader.batch_size or 1:>6,} {load:>10,.0f} {hook:>8.1f} "
          f"{hook / load:>8.2%} {all_hook / all_load:>10.2%}", flush=True)  # fmt: skip


def _mean(values: list[int]) -> float:
    """Without the largest hundredth."""
    kept = sorted(values)[: len(values) - len(values) // 100]
    return sum(kept) / len(kept)


def _pass(
    loader: DataLoader[Any], inner: list[Clock], outer: list[Clock], loads: list[int], hooks: list[int]
) -> None:  # fmt: skip
    """One pass: the loader's own time for each batch, and the hook's, from the moment on in which it is settled."""
    batches = iter(loader)
    next(batches)
    for clock in (*inner, *outer):
        clock.take()
    for number, _ in enumerate(batches):
        (own, own_index), (whole, whole_index) = ([clock.take() for clock in clocks] for clocks in (inner, outer))
        hook = whole - own + (whole_index - own_index)  # the index is drawn inside the loader's own code
        if number >= SETTLED or len(loader) < SETTLED:
            hooks.append(hook)
            loads.append(whole - hook)


def _enough(num: int, size: int) -> int:
    """Samples of one pass: of batches that cost little twice as many as it takes to settle."""
    return max(num, 20 * size, 3 * SETTLED * size if size <= 256 and num == NUM_SAMPLES else 0)


def main() -> None:
    """All cases."""
    torch.set_num_threads(1)
    order = torch.randperm(SIZE).tolist()
    tensors = TensorDataset(torch.randn(1, 256).expand(SIZE, 256))
    cases: tuple[tuple[str, Dataset[Any], int, int], ...] = (
        ("TensorDataset, 1 KiB a sample", tensors, 0, NUM_SAMPLES),
        ("TensorDataset, 1 KiB a sample", tensors, 2, NUM_SAMPLES),
        ("100 us a sample", Rows(SLOW_SAMPLE_NS), 0, NUM_SAMPLES // 20),
        ("a sample that costs nothing", Rows(0), 0, NUM_SAMPLES),
    )
    print(f"{SIZE:,} samples; mean over batches")
    print(
        f"{'data set':<34} {'workers':>7} {'batch':>6} {'loader us':>10} {'hook us':>8} {'share':>8} {'no budget':>10}"
    )
    for name, data, workers, num in cases:
        for size in map(int, sys.argv[1:] or ("32", "256", "1024", "4096")):
            measure(name, DataLoader(data, size, sampler=Part(order, _enough(num, size)), num_workers=workers))


if __name__ == "__main__":
    main()
