"""How right clocks and the name of a late rank are over 4 hosts, on synthetic runs whose truth is known.

    python benchmarks/clocks.py [--seeds 100] [--layout 'dp 16']

Hosts' clocks are off by up to 50 ms either way and drift by up to 20 ppm, with two slews of up to 200 ppm each; one
rank of one host, another one for every seed, takes longer in every step by three times the transfer. Broadcasts (whose
root is over before others begin) and, with a pipeline, sends are in every step: a bound that took them for synchronous
would exclude the truth. Prints, by layout: hosts whose error contains the truth at all of 300 moments of the run, the
share of moments, errors within max(median transfer, 0.2 ms), hard bounds that hold at all moments, and runs in which
exactly the late rank is named.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "helpers"))
from clock_truth import HostTruth, hosts_against_truth, limit_ns

from rankscope.analyzers.run import Run
from rankscope.analyzers.stragglers import stragglers
from rankscope.tracer.importers.synth import synthesise
from rankscope.tracer.importers.synth_plan import Plan, Straggler

TRANSFER_NS = 400_000
STEP_NS = 20_000_000
LAYOUTS: dict[str, dict[str, Any]] = {
    "dp 16": {"dp": 16},
    "dp 4, tp 4": {"dp": 4, "tp": 4},
    "dp 8, pp 2": {"dp": 8, "pp": 2, "microbatches": 4, "collectives": 24},
}


def main() -> None:
    """Run all seeds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--layout", choices=tuple(LAYOUTS), action="append", help="only this one; may be repeated")
    options = parser.parse_args()
    seeds = options.seeds
    table = Table(
        title=f"{seeds} seeds each, 16 ranks on 4 hosts, 60 steps, one rank late by {3 * TRANSFER_NS / 1e6} ms"
    )
    for header in ("layout", "error contains the truth", "moments", "error small enough", "median error", "bound holds",
                   "bound's width", "late rank named", "somebody else"):  # fmt: skip
        table.add_column(header, justify="left" if header == "layout" else "right")
    for layout in options.layout or LAYOUTS:
        table.add_row(layout, *_row(layout, seeds))
    Console(width=170).print(table)


def _row(layout: str, seeds: int) -> Iterator[str]:
    hosts: list[HostTruth] = []
    num_small, named, wrong = 0, 0, 0
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as base:
            found, limit, ranks, late = _one(layout, seed, Path(base) / "run")
        hosts += found
        num_small += sum(item.error_ns <= limit for item in found)
        named, wrong = named + (ranks == {late}), wrong + bool(ranks - {late})
    yield f"{100 * sum(item.contained == 1 for item in hosts) / len(hosts):.1f} %"
    yield f"{100 * sum(item.contained for item in hosts) / len(hosts):.2f} %"
    yield f"{100 * num_small / len(hosts):.1f} %"
    yield f"{median(item.error_ns for item in hosts) / 1e3:.1f} us"
    yield f"{100 * sum(item.is_bounded for item in hosts) / len(hosts):.1f} %"
    yield f"{median(item.bound_width_ns for item in hosts) / 1e6:.2f} ms"
    yield f"{named} of {seeds}"
    yield str(wrong)


def _one(layout: str, seed: int, run_dir: Path) -> tuple[list[HostTruth], float, set[int], int]:
    """The hosts against the truth, the limit of their errors, the ranks named, and the one that is late."""
    late = int(np.random.default_rng([seed, 9]).integers(16))
    plan = Plan(
        ranks=16, ranks_per_node=4, steps=60, seed=seed, clock_offset_ns=50_000_000, drift_ppm=20.0, num_slews=2,
        step_ns=STEP_NS, transfer_ns=TRANSFER_NS, stragglers=(Straggler(late, "compute", 3 * TRANSFER_NS),),
        **LAYOUTS[layout],
    )  # fmt: skip
    synthesise(plan, str(run_dir))
    with Run.open(str(run_dir), threads=1) as run:
        hosts = hosts_against_truth(run, run_dir)
        named = {rank for verdict in stragglers(run).verdicts if verdict.kind == "straggler" for rank in verdict.ranks}
        return hosts, limit_ns(run_dir), named, late


if __name__ == "__main__":
    main()
