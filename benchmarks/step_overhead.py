"""What rankscope adds to a training step: a small transformer, 2 gloo ranks, DDP and FSDP2, attached by turns.

    OMP_NUM_THREADS=1 python benchmarks/step_overhead.py [--pairs 40] [--steps 10] [--model ddp|fsdp2|both]

One job per model. Every pair is one block of steps with rankscope attached and one without (`detach` takes every hook
out), the order drawn by turns; all ranks switch at the same step. The figure is the median over the pairs of the ratio
of the blocks' median step times, with a 95 % bootstrap interval over the pairs. Beside it, and far sharper: the time
inside hooks by their own clocks (1 entry in 64), per step, from a longer block at the end. The node agent is
off: it runs outside the ranks.
"""

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LIMIT = 1.01
NUM_RANKS = 2
NUM_RESAMPLES = 10_000
LONG_BLOCK_STEPS = 200


def main() -> None:
    """Run the jobs and print the table; in a rank (`--rank-of MODEL`) do the training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--steps", type=int, default=10, help="steps a block")
    parser.add_argument("--model", choices=["ddp", "fsdp2", "both"], default="both")
    parser.add_argument("--rank-of", choices=["ddp", "fsdp2"], help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.rank_of:
        train(options.rank_of, options.pairs, options.steps)
        return
    models = ["ddp", "fsdp2"] if options.model == "both" else [options.model]
    results = [run_job(model, options.pairs, options.steps) for model in models]
    print(json.dumps(results) if options.json else table(results))


def run_job(model: str, num_pairs: int, num_steps: int) -> dict[str, Any]:
    """One job of 2 ranks; the figures of rank 0."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "OMP_NUM_THREADS": "1", "RANKSCOPE_DIR": f"{folder}/run", "RANKSCOPE_LOCAL_DIR": f"{folder}/local",
            "RANKSCOPE_AGENT": "off", "RANKSCOPE": "1",
        }  # fmt: skip
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={NUM_RANKS}",
            __file__, "--rank-of", model, "--pairs", str(num_pairs), "--steps", str(num_steps),
        ]  # fmt: skip
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(done.stderr[-4000:])
        blocks = json.loads(Path(folder, "run.json").read_text())
        os.environ["RANKSCOPE_LOCAL_DIR"] = f"{folder}/local"
        return {"model": model, **figures(blocks), **inside_hooks(f"{folder}/run")}


def figures(blocks: list[dict[str, float]]) -> dict[str, float]:
    """Medians and the ratio with its interval, from the blocks' median step times (seconds)."""
    ratios = [block["on"] / block["off"] for block in blocks]
    draw = random.Random(0)
    resampled = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(NUM_RESAMPLES))
    return {
        "num_pairs": len(ratios),
        "off_ms": 1e3 * statistics.median(block["off"] for block in blocks),
        "on_ms": 1e3 * statistics.median(block["on"] for block in blocks),
        "ratio": statistics.median(ratios),
        "low": resampled[int(0.025 * NUM_RESAMPLES)],
        "high": resampled[int(0.975 * NUM_RESAMPLES)],
    }


def inside_hooks(run_dir: str) -> dict[str, float]:
    """Time inside hooks by their own clocks in the long block, us per step of one rank; entries per step."""
    from rankscope.schema.leftovers import find_leftovers

    sessions = []
    for leftover in find_leftovers(run_dir):
        rows = [row for key, part in leftover.tables().items() if key[0] == "capture" for row in part.to_pylist()]
        timed = [row for row in rows if row["num_timed_calls"]]
        spent_ns = sum(row["num_calls"] * row["timed_ns"] / row["num_timed_calls"] for row in timed)
        sessions.append((sum(row["num_calls"] for row in timed), spent_ns / 1e3))
    longest = sorted(sessions)[-NUM_RANKS:]
    num_steps = NUM_RANKS * LONG_BLOCK_STEPS
    return {"calls": sum(n for n, _ in longest) / num_steps, "inside_us": sum(us for _, us in longest) / num_steps}


def table(results: list[dict[str, Any]]) -> str:
    """The results for people."""
    import torch

    lines = [
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}",
        (
            f"{'model':6} {'pairs':>5} {'off ms':>8} {'on ms':>8} {'on/off':>7} {'95 % interval':>16} "
            f"{'hook entries':>12} {'inside us':>9} {'of a step':>9}"
        ),
    ]
    for found in results:
        share = found["inside_us"] / found["off_ms"] / 10
        lines.append(
            f"{found['model']:6} {found['num_pairs']:5d} {found['off_ms']:8.2f} {found['on_ms']:8.2f} "
            f"{found['ratio']:7.4f} {found['low']:7.4f}..{found['high']:.4f} "
            f"{found['calls']:12.1f} {found['inside_us']:9.1f} {share:8.2f}%"
        )
        verdict = "met" if found["high"] <= LIMIT else "missed" if found["low"] > LIMIT else "not resolved"
        lines.append(f"       ratio <= {LIMIT}: {verdict}")
    return "\n".join(lines)


def train(model_name: str, num_pairs: int, num_steps: int) -> None:
    """One rank: blocks of steps, rankscope attached in one of each pair. Rank 0 writes the blocks' medians."""
    import torch.distributed as dist

    import rankscope

    dist.init_process_group("gloo")
    step = make_step(model_name)
    blocks = []
    for _ in range(3 * num_steps):
        step()
    for pair in range(num_pairs):
        block = {}
        for arm in ("on", "off") if pair % 2 else ("off", "on"):
            if arm == "on":
                rankscope.attach()
            block[arm] = timed_block(step, num_steps)
            if arm == "on":
                rankscope.detach()
        blocks.append(block)
    rankscope.attach()
    timed_block(step, LONG_BLOCK_STEPS)
    rankscope.detach()
    if dist.get_rank() == 0:
        folder = Path(os.environ["RANKSCOPE_DIR"]).parent
        (folder / "run.json").write_text(json.dumps(blocks))
    dist.destroy_process_group()


def timed_block(step: Any, num_steps: int) -> float:
    """Median time of a step, seconds; the two steps after the switch are not counted."""
    import torch.distributed as dist

    dist.barrier()
    times = []
    for _ in range(num_steps + 2):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[2:])


def make_step(model_name: str) -> Any:
    """A function that does one training step of a small transformer."""
    import torch
    from torch import nn
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    width = 128
    layers = [nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True) for _ in range(4)]
    model: nn.Module = nn.Sequential(nn.Embedding(256, width), *layers, nn.Linear(width, 256))
    if model_name == "fsdp2":
        for layer in layers:
            fully_shard(layer)
        fully_shard(model)
    else:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(256, (8, 65))

    def step() -> None:
        logits = model(tokens[:, :-1])
        nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main()
