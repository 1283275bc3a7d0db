"""Steps of real jobs: exact counts and order, as they lie in the rings when the job has ended."""

import itertools
import math
import textwrap
from typing import Any

import pytest

from rankscope.schema.leftovers import find_leftovers

pytestmark = [pytest.mark.system, pytest.mark.slow]

PREAMBLE = """
import os
import rankscope.auto
import rankscope
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
data = TensorDataset(torch.randn(24, 4), torch.randn(24, 1))
loader = DataLoader(data, batch_size=4)  # 6 batches
model = DDP(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""


@pytest.fixture
def rows(torchrun, monkeypatch):
    """`rows(body, nproc=2) -> {rank: {table: [row, ...]}}`: what a job with this body left behind."""

    def run(body, nproc=2, env=None):
        source = PREAMBLE + textwrap.dedent(body) + "\ndist.destroy_process_group()\n"
        job = torchrun(source, nproc, env={"RANKSCOPE_AGENT": "off", **(env or {})}).check()
        monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(job.local_dir))
        found: dict[int, dict[str, list[dict[str, Any]]]] = {}
        for leftover in find_leftovers(str(job.run_dir)):
            for (table, _, _), part in leftover.tables().items():
                if table in ("step", "span", "metric", "collective"):
                    for row in part.sort_by("record").to_pylist():
                        if row.get("kind") == "gc" or str(row.get("name")).startswith("gc."):
                            continue  # pauses of the collector come when they come
                        found.setdefault(row["rank"], {}).setdefault(table, []).append(row)
            assert leftover.problems == []
        assert sorted(found) == list(range(nproc))
        return found

    return run


def _spans(tables, *, only=None):
    spans = sorted(tables["span"], key=lambda row: row["start_ns"])
    return [(row["step"], row["kind"]) for row in spans if only is None or row["kind"] in only]


def _steps(tables):
    return [(row["step"], row["boundary"], row["left_out"]) for row in tables["step"]]


def _assert_tiled(steps):
    assert all(a["end_ns"] == b["start_ns"] for a, b in itertools.pairwise(steps))


def test_plain(rows):
    found = rows("""
        for x, y in loader:
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    """)
    for tables in found.values():
        phases = ["data", "forward", "backward", "optimizer"]
        assert _spans(tables) == [(step, kind) for step in range(6) for kind in phases] + [(6, "data")]
        assert _steps(tables) == [(0, "optimizer", "warmup"), *((step, "optimizer", None) for step in range(1, 6))]
        assert all(row["end_ns"] > row["start_ns"] for row in tables["span"] + tables["step"])
        _assert_tiled(tables["step"])


def test_collectives_know_their_step_and_phase(rows):
    found = rows("""
        for x, y in loader:
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            dist.all_reduce(model(x).sum())
    """)
    for tables in found.values():
        reduced = [(row["step"], row["phase"]) for row in tables["collective"] if row["op"] == "all_reduce"]
        assert reduced == [(step, "backward") for step in range(6)] + [(6, None)]


def test_accumulation_of_four_with_no_sync(rows):
    found = rows("""
        from contextlib import nullcontext
        eight = DataLoader(data, batch_size=3)  # 8 batches
        for _ in range(2):
            for n, (x, y) in enumerate(eight):
                with nullcontext() if n % 4 == 3 else model.no_sync():
                    nn.functional.mse_loss(model(x), y).backward()
                if n % 4 == 3:
                    optimizer.step()
                    optimizer.zero_grad()
    """)
    for tables in found.values():
        one = ["data", "forward", "backward"] * 4 + ["optimizer"]
        epochs = [[(first, k) for k in one] + [(first + 1, k) for k in one] + [(first + 2, "data")] for first in (0, 2)]
        assert _spans(tables) == epochs[0] + epochs[1]
        assert _steps(tables) == [(0, "optimizer", "warmup"), *((step, "optimizer", None) for step in range(1, 4))]
        assert [row["is_skipped"] for row in tables["step"]] == [False] * 4
        reduced = [(row["step"], row["phase"]) for row in tables["collective"] if row["op"] == "all_reduce"]
        assert reduced == [(step, "backward") for step in range(4)]
        _assert_tiled(tables["step"])


def test_scaler_skips(rows):
    found = rows("""
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
        for n, (x, y) in enumerate(loader):
            loss = nn.functional.mse_loss(model(x), y) * (float("inf") if n in (0, 3) else 1.0)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            assert bool(norm.isfinite()) == (n not in (0, 3))
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    """)
    for tables in found.values():
        assert [row["is_skipped"] for row in tables["step"]] == [True, False, False, True, False, False]
        phases = ["data", "forward", "backward", "optimizer"]
        assert _spans(tables) == [(step, kind) for step in range(6) for kind in phases] + [(6, "data")]
        assert _steps(tables) == [(0, "optimizer", "warmup"), *((step, "optimizer", None) for step in range(1, 6))]
        _assert_tiled(tables["step"])
        norms = [(row["step"], math.isfinite(row["value"])) for row in tables["metric"] if row["name"] == "grad_norm"]
        assert norms == [(0, False), (1, True), (2, True), (3, False), (4, True), (5, True)]
        # The scale is that after the update, with which the next step is scaled.
        scales = [(row["step"], row["value"]) for row in tables["metric"] if row["name"] == "loss_scale"]
        assert scales == [(1, 8.0), (2, 8.0), (3, 8.0), (4, 4.0), (5, 4.0), (6, 4.0)]
    values = [[row["value"] for row in tables["metric"] if row["name"] == "grad_norm"] for tables in found.values()]
    assert values[0][1] == values[1][1]  # of the averaged gradients: equal on both ranks


def test_two_optimizers(rows):
    found = rows("""
        critic = DDP(nn.Linear(4, 1))
        other = torch.optim.SGD(critic.parameters(), lr=0.01)
        for x, y in loader:
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            for _ in range(2):
                critic(x).sum().backward()
                other.step()
    """)
    for tables in found.values():
        assert _steps(tables) == [(0, "optimizer", "warmup"), *((step, "optimizer", None) for step in range(1, 6))]
        _assert_tiled(tables["step"])
        # A step ends with the leader's: the other one's work of a round falls into the next step.
        work, others = ["data", "forward", "backward", "optimizer"], ["forward", "backward", "optimizer"] * 2
        wanted = [(0, kind) for kind in work]
        for step in range(1, 6):
            wanted += [(step, kind) for kind in others + work]
        assert _spans(tables) == wanted + [(6, kind) for kind in [*others, "data"]]
        spans = sorted(tables["span"], key=lambda row: row["start_ns"])
        names = [row["name"] for row in spans if row["kind"] == "optimizer"]
        assert names == ["SGD", "SGD#1", "SGD#1"] * 6


def test_evaluation_between_epochs(rows):
    found = rows("""
        for _ in range(2):
            model.train()
            for x, y in loader:
                nn.functional.mse_loss(model(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()
            model.eval()
            with torch.no_grad():
                for x, y in loader:
                    model(x)
    """)
    for tables in found.values():
        left_out = {row["step"]: row["left_out"] for row in tables["step"] if row["left_out"]}
        assert left_out == {0: "warmup", 6: "eval"} and [step for step, _, _ in _steps(tables)] == list(range(12))
        train, evaluation = ["data", "forward", "backward", "optimizer"], ["data", "eval"] * 6
        wanted = []
        for first in (0, 6):
            wanted += [(step, kind) for step in range(first, first + 6) for kind in train]
            wanted += [(first + 6, kind) for kind in ["data", *evaluation, "data"]]
        assert _spans(tables) == wanted
        _assert_tiled(tables["step"])


def test_explicit_steps_are_the_only_ones(rows):
    found = rows("""
        for n, (x, y) in enumerate(loader):
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            rankscope.log(loss=0.5 * n, norm=torch.tensor(2.0), replicated=("norm",))
            rankscope.step(samples=len(x), tokens=10 * n, global_step=100 + n)
        with rankscope.span("eval"), rankscope.span("my own"):
            pass
    """)
    for tables in found.values():
        assert _steps(tables) == [(0, "explicit", "warmup"), *((step, "explicit", None) for step in range(1, 6))]
        told = [(row["samples"], row["tokens"], row["global_step"]) for row in tables["step"]]
        assert told == [(4, 10 * n, 100 + n) for n in range(6)]
        _assert_tiled(tables["step"])
        metrics = [(row["name"], row["value"], row["is_replicated"]) for row in tables["metric"]]
        assert metrics == [m for n in range(6) for m in (("loss", 0.5 * n, False), ("norm", 2.0, True))]
        assert [(row["kind"], row["name"]) for row in tables["span"][-2:]] == [("eval", None), ("user", "my own")]


def test_a_second_incarnation_counts_from_0(rows):
    found = rows("""
        def train():
            for x, y in loader:
                nn.functional.mse_loss(model(x), y).backward()
                optimizer.step()
        train()
        rank = dist.get_rank()
        dist.barrier()
        dist.destroy_process_group()
        # A store of its own: over torchrun's store a second joining may hang, with and without rankscope.
        dist.init_process_group("gloo", init_method="file://" + os.path.abspath("second"), rank=rank, world_size=2)
        model = DDP(nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        train()
    """)
    for tables in found.values():
        assert [row["step"] for row in tables["step"]] == [0, 1, 2, 3, 4, 5] * 2


def test_phases_can_be_left_out(rows):
    found = rows(
        """
        for x, y in loader:
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    """,
        env={"RANKSCOPE_HOOKS": "-phases"},
    )
    for tables in found.values():
        assert {kind for _, kind in _spans(tables)} == {"optimizer"} and len(tables["step"]) == 6
