"""How right an alignment of a synthetic run is: estimate, error and hard bound of each host against its truth."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.analyzers.clock_fit import correction
from rankscope.analyzers.clock_ties import HostClock
from rankscope.analyzers.clocks import align
from rankscope.analyzers.run import Run

MOMENTS = 300


@dataclass(frozen=True)
class HostTruth:
    """One host but the reference. contained: share of the moments between its first and last operation at which the
    truth lies within the printed error; is_bounded: at all of them it lies within the hard bound."""

    name: str
    error_ns: int
    worst_ns: float
    contained: float
    is_bounded: bool
    bound_width_ns: int


def hosts_against_truth(run: Run, run_dir: Path) -> list[HostTruth]:
    """Every host but that of rank 0, which must all have been tied by their operations."""
    truth = json.loads((run_dir / "truth.json").read_text())
    by_boot = {clock["boot_id"]: clock for clock in truth["clocks"]}
    reference, *others = align(run).hosts
    return [_judged(item, by_boot[item.host.boot_id], by_boot[reference.host.boot_id]) for item in others]


def limit_ns(run_dir: Path) -> float:
    """What the printed error may be: the median transfer, or 0.2 ms if that is more."""
    truth = json.loads((run_dir / "truth.json").read_text())
    return max(float(truth["median_transfer_ns"]), 200_000.0)


def _judged(item: HostClock, clock: dict[str, Any], reference: dict[str, Any]) -> HostTruth:
    assert item.observed is not None and item.error_ns is not None and item.bound is not None, item.reason
    first = item.observed[0] - clock["booted_ns"] - clock["ahead_ns"][0]
    true = first + np.linspace(0, item.observed[1] - item.observed[0], MOMENTS)
    own = np.interp(true, clock["true_ns"], clock["ahead_ns"])
    ahead = own - np.interp(true, reference["true_ns"], reference["ahead_ns"])
    wrong = ahead - correction(np.rint(true + own + clock["booted_ns"]).astype(np.int64), item.windows)
    low, high = item.bound
    return HostTruth(
        item.host.name, item.error_ns, float(np.abs(wrong).max()), float((np.abs(wrong) <= item.error_ns).mean()),
        bool(low <= wrong.min() and wrong.max() <= high), high - low,
    )  # fmt: skip
