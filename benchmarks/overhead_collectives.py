"""Added host time per collective: issued by Python, by the reducer of DDP, functional, and by FSDP2; in every tier."""

import mmap
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch._C._distributed_c10d import HashStore

from rankscope.hooks import native, process_groups
from rankscope.schema import ring
from rankscope.tracer.ring_writer import make_writer

BLOCK = 200
"""Operations in a block."""
WARM_UP = 20
LIMITS = {"python": (1.35, 1.35), "cpp": (1.5, 3.0)}
"""Most times a bare operation may take, by who issues it: (tier 1, tier 2). 5-acceptance."""
CALLS_A_STEP, STEP_NS = 500, 1_000_000_000


class Case(NamedTuple):
    """One way to issue: `run` issues `num_operations`, by "python" or "cpp"; its ratio is taken to `base`."""

    name: str
    run: Callable[[], Any]
    num_operations: int
    issuer: str
    base: str


class Figures(NamedTuple):
    """Medians in microseconds per operation."""

    bare_us: float
    added_us: float


class MemoryRecorder:
    """A recorder over a ring in anonymous memory: what it costs is what the real one costs."""

    is_on, is_shadow, step, global_step, phase = True, False, 0, -1, 0

    def __init__(self) -> None:
        writer = make_writer(lambda: None, lambda: 0)
        writer.point(mmap.mmap(-1, ring.ring_bytes(ring.DEFAULT_CAPACITY)), ring.DEFAULT_CAPACITY)
        self.open, self.write, self.close, self.poke = writer.open, writer.write, writer.close, writer.poke
        self._counters: dict[str, list[int]] = {}

    def joined(self, rank: int, world_size: int, store: Any) -> None:
        """Nothing to bind."""

    def left(self) -> None:
        """Nothing to leave."""

    def boundary(self) -> None:
        """No steps here."""

    def intern(self, text: str) -> int:
        """Nobody reads names here."""
        return len(text)

    def journal(self, kind: str, **body: object) -> None:
        """Nobody reads this journal."""

    def counters(self, hook: str) -> list[int]:
        """In memory."""
        return self._counters.setdefault(hook, [0] * len(ring.COUNTERS))


def run(rounds: int) -> None:
    """Measure and print, for every tier that this torch has."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    tiers = ("native", "dispatcher") if native.is_available() else ("dispatcher",)
    for tier in tiers:
        measured = {case.name: measure(case, tier, rounds) for case in cases()}
        show(tier, measured)
    dist.destroy_process_group()


def cases() -> list[Case]:
    """The ways to issue. The base of a DDP bucket and of FSDP2's collectives is the bare all_reduce."""
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    tensor, world, x = torch.ones(1), dist.group.WORLD, torch.ones(1, 4)
    assert world is not None
    bucketed, sharded = DistributedDataParallel(nn.Linear(4, 1)), nn.Linear(4, 1)
    fully_shard(sharded)
    return [
        Case("all_reduce", lambda: dist.all_reduce(tensor), 1, "python", "all_reduce"),
        Case("all_reduce, async", lambda: dist.all_reduce(tensor, async_op=True).wait(), 1, "python", "all_reduce"),
        Case("functional", lambda: funcol.all_reduce(tensor, "sum", world).wait(), 1, "cpp", "functional"),
        Case("DDP bucket", lambda: bucketed(x).sum().backward(), 1, "cpp", "all_reduce"),
        Case("FSDP2, 3 ops", lambda: sharded(x).sum().backward(), 3, "python", "all_reduce"),
    ]


def measure(case: Case, tier: Any, rounds: int) -> Figures:
    """Alternate bare and observed blocks."""
    bare, observed = [], []
    for _ in range(rounds):
        bare.append(block(case))
        with ExitStack() as undo:
            process_groups.install(MemoryRecorder(), undo, tier)
            observed.append(block(case))
    return Figures(median(bare), median(b - a for a, b in zip(bare, observed, strict=True)))


def block(case: Case) -> float:
    """Microseconds per operation."""
    for _ in range(WARM_UP):
        case.run()
    begin = time.perf_counter_ns()
    for _ in range(BLOCK):
        case.run()
    return (time.perf_counter_ns() - begin) / 1000 / BLOCK / case.num_operations


def show(tier: str, measured: dict[str, Figures]) -> None:
    """The table of one tier."""
    print(
        f"\ntier {tier}\n{'issued as':20} {'bare us':>9} {'added us':>9} {'ratio':>7} {'limit':>7}  500 in a 1 s step"
    )
    for case in cases():
        figures, base = measured[case.name], measured[case.base].bare_us
        limit = LIMITS[case.issuer][0 if tier == "native" else 1]
        share = figures.added_us * 1000 * CALLS_A_STEP / STEP_NS
        print(
            f"{case.name:20} {figures.bare_us:9.1f} {figures.added_us:9.1f} {1 + figures.added_us / base:7.2f} "
            f"{limit:7.2f}  {share:.1%}"
        )
