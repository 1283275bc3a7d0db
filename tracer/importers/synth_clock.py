"""Made-up host clocks: each is ahead of true time by an offset that changes with a drift, which slews change."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rankscope.schema.paths import hash63, node_id

from .synth_plan import Plan

BOOTED_NS: Final = 3_600_000_000_000
"""CLOCK_MONOTONIC of a host without an offset when the run begins."""
EPOCH_NS: Final = 1_700_000_000_000_000_000
"""CLOCK_REALTIME at that moment."""
SLEW_PPM: Final = 200.0
"""Slews differ by up to this from the drift (a kernel slews by at most 500 ppm)."""
_BEFORE_NS: Final = 60_000_000_000

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class HostClock:
    """One node's clock. true_ns: corners, since the begin of the run; ahead_ns: its lead there, linear between."""

    name: str
    boot_id: str
    node: str
    true_ns: Floats
    ahead_ns: Floats

    def stamps(self, true_ns: Floats) -> Ints:
        """CLOCK_MONOTONIC of this host at moments of true time."""
        if np.ptp(self.ahead_ns) == 0:
            return np.rint(true_ns + (BOOTED_NS + float(self.ahead_ns[0]))).astype(np.int64)
        ahead: Floats = np.interp(true_ns, self.true_ns, self.ahead_ns)
        return np.rint(true_ns + ahead + BOOTED_NS).astype(np.int64)

    def as_json(self) -> dict[str, Any]:
        """For the truth."""
        return {"host": self.name, "boot_id": self.boot_id, "node": self.node, "booted_ns": BOOTED_NS,
                "true_ns": self.true_ns.tolist(), "ahead_ns": self.ahead_ns.tolist()}  # fmt: skip


def host_clocks(plan: Plan, length_ns: float) -> tuple[HostClock, ...]:
    """The clocks of all nodes for a run about `length_ns` long."""
    return tuple(_clock(plan, number, length_ns) for number in range(plan.num_nodes))


def _clock(plan: Plan, number: int, length_ns: float) -> HostClock:
    rng = np.random.default_rng([plan.seed, 1, number])
    boot_id = f"{hash63('synthetic boot', plan.seed, number):016x}-synthetic"
    name = f"synth-{number:04d}"
    changes = np.sort(rng.uniform(0.05, 0.95, plan.num_slews)) * length_ns
    corners = np.concatenate([[-_BEFORE_NS], changes, [2 * length_ns + _BEFORE_NS]])
    drifts = rng.uniform(-plan.drift_ppm, plan.drift_ppm, len(corners) - 1)
    if plan.num_slews:
        drifts[1::2] += rng.uniform(-SLEW_PPM, SLEW_PPM, len(drifts[1::2]))
    steps = np.diff(corners) * drifts / 1e6
    offset = rng.uniform(-plan.clock_offset_ns, plan.clock_offset_ns)
    ahead = offset + np.concatenate([[0.0], np.cumsum(steps)])
    return HostClock(name, boot_id, node_id(name, boot_id), corners, ahead)
