"""Did the faster run learn as much: loss at equal samples, held against what the seed alone makes of it.

A run that is faster because it learns less is not better. The loss of a run is the mean over its ranks, step by step;
runs are compared at the last number of samples that all of them reached, over the last tenth before it. The band is the
range over at least three runs of one size that differ in their seed; with fewer nothing can be said, and that is said.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from .scaling_run import ScalingRun

MIN_SEEDS: Final = 3
WINDOW: Final = 0.1
"""Share of the samples, before the last common one, over which losses are averaged."""


@dataclass(frozen=True, slots=True)
class Quality:
    """holds: None where nothing can be said; text: the finding in words. losses: (size, run, loss) at equal samples."""

    holds: bool | None
    text: str
    samples: float | None = None
    losses: tuple[tuple[int, str, float], ...] = ()


def quality(runs: Sequence[ScalingRun]) -> Quality:
    """Whether the runs of all sizes learnt the same."""
    silent = [run for run in runs if not len(run.loss) or run.steps.samples.values is None]
    if silent:
        return Quality(
            None, f"no statement on quality: {len(silent)} of {len(runs)} runs log no loss with their samples"
        )
    reached = min(float(run.loss_samples[-1]) for run in runs)
    losses = [(run.num_ranks, run.run_id, loss_at(run, reached)) for run in runs]
    by_size: dict[int, list[float]] = defaultdict(list)
    for size, _, loss in losses:
        by_size[size].append(loss)
    seeds = next((found for _, found in sorted(by_size.items()) if len(found) >= MIN_SEEDS), None)
    if seeds is None:
        return Quality(None, f"no statement on quality: no size has {MIN_SEEDS} runs, whose seeds would give a band",
                       reached, tuple(losses))  # fmt: skip
    low, high = min(seeds), max(seeds)
    outside = sorted({size for size, found in by_size.items() if not low <= float(np.median(found)) <= high})
    band = f"the seed band {low:.4g} .. {high:.4g} at {reached:,.0f} samples"
    if outside:
        sizes = ", ".join(map(str, outside))
        return Quality(False, f"the loss at size {sizes} is outside {band}: speed alone does not make it better",
                       reached, tuple(losses))  # fmt: skip
    return Quality(True, f"the losses of all sizes are inside {band}", reached, tuple(losses))


def loss_at(run: ScalingRun, samples: float) -> float:
    """Mean loss over the last WINDOW of `samples`; between its neighbours where none was logged there."""
    chosen = (run.loss_samples <= samples) & (run.loss_samples > (1 - WINDOW) * samples)
    return float(run.loss[chosen].mean() if chosen.any() else np.interp(samples, run.loss_samples, run.loss))
