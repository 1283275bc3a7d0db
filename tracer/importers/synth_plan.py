"""What a synthetic run is to be: its size and layout, and what is planted in it. Everything follows from the seed."""

import re
from dataclasses import asdict, dataclass
from typing import Any, Final

from rankscope.schema.errors import InputError

STRAGGLER_CAUSES: Final = ("data", "compute", "gc", "checkpoint", "cpu_contention", "throttle", "network")
_UNITS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "": 1}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s|)")
_PER_MICROBATCH: Final = 4
"""Sends and receives of a stage in the middle: activations in and out, gradients in and out."""


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank that loses delay_ns in every step from since_step on; with is_once in that step only."""

    rank: int
    cause: str
    delay_ns: int
    since_step: int = 0
    is_once: bool = False

    def is_on(self, step: int) -> bool:
        """It is late in `step`."""
        return step == self.since_step if self.is_once else step >= self.since_step


@dataclass(frozen=True, slots=True)
class SlowLink:
    """A node whose transfers to other nodes take `factor` times as long."""

    node: int
    factor: float


@dataclass(frozen=True, slots=True)
class SlowStage:
    """A pipeline stage that computes `factor` times as long: bubbles on all others."""

    stage: int
    factor: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A run to be made up. ranks = dp x tp x pp, rank = (stage x dp + data rank) x tp + tensor rank.

    collectives: rows of one rank and step, at most (the outer stages of a pipeline have fewer). jitter: standard
    deviation of every computation, as a share of it. transfer_ns: of every operation; 0: by kind. Clocks: each host is
    off by up to clock_offset_ns, drifts by up to drift_ppm, and changes its drift num_slews times. With
    sees_late, asynchronous operations are seen complete only when somebody waits for them, as on gloo.
    """

    ranks: int = 8
    ranks_per_node: int = 8
    steps: int = 100
    collectives: int = 20
    dp: int = 8
    tp: int = 1
    pp: int = 1
    microbatches: int = 1
    seed: int = 0
    step_ns: int = 50_000_000
    jitter: float = 0.01
    transfer_ns: int = 0
    stragglers: tuple[Straggler, ...] = ()
    slow_links: tuple[SlowLink, ...] = ()
    slow_stages: tuple[SlowStage, ...] = ()
    clock_offset_ns: int = 0
    drift_ppm: float = 0.0
    num_slews: int = 0
    sees_late: bool = False

    @property
    def num_nodes(self) -> int:
        """Hosts, the last one perhaps with fewer ranks."""
        return -(-self.ranks // self.ranks_per_node)

    @property
    def least_collectives(self) -> int:
        """What the pipeline needs by itself, and one operation more."""
        return 1 + (_PER_MICROBATCH * self.microbatches if self.pp > 1 else 0)

    def check(self) -> "Plan":
        """This plan. Raises InputError for what cannot be, with the option that says it."""
        sizes = {
            "--ranks": self.ranks - 1, "--ranks-per-node": self.ranks_per_node, "--steps": self.steps,
            "--step-ms": self.step_ns, "--microbatches": self.microbatches,
            "--layout": min(self.dp, self.tp, self.pp),
        }  # fmt: skip
        for option, size in sizes.items():
            if size < 1:
                raise InputError(f"{option}: too small")
        if self.dp * self.tp * self.pp != self.ranks:
            raise InputError(f"--layout: dp={self.dp} x tp={self.tp} x pp={self.pp} are not {self.ranks} ranks")
        if self.collectives < self.least_collectives:
            raise InputError(f"--collectives: at least {self.least_collectives} with this layout and --microbatches")
        if not 0 <= self.jitter <= 1:
            raise InputError("--jitter: a share between 0 and 1")
        if abs(self.drift_ppm) > 500 or self.num_slews < 0 or self.clock_offset_ns < 0:
            raise InputError("--drift-ppm: at most 500; --slews and --clock-offset-ms: not negative")
        self._check_planted()
        return self

    def _check_planted(self) -> None:
        for item in self.stragglers:
            if not 0 <= item.rank < self.ranks or not 0 <= item.since_step < self.steps:
                raise InputError(f"--straggler: no rank {item.rank}, or no step {item.since_step}")
        for link in self.slow_links:
            if not 0 <= link.node < self.num_nodes or link.factor < 1:
                raise InputError(f"--slow-link: no node {link.node}, or a factor below 1")
        for stage in self.slow_stages:
            if not 0 <= stage.stage < self.pp or stage.factor <= 0:
                raise InputError(f"--bubble: no stage {stage.stage}, or a factor that is not above 0")

    def as_json(self) -> dict[str, Any]:
        """For the truth."""
        return asdict(self)


def straggler_of(text: str, steps: int) -> Straggler:
    """`RANK:CAUSE:DELAY[:STEP|:once]`; once is the step in the middle. Raises InputError."""
    parts = text.split(":")
    if len(parts) not in (3, 4) or not parts[0].isdigit() or parts[1] not in STRAGGLER_CAUSES:
        raise InputError(f"--straggler {text}: RANK:CAUSE:DELAY[:STEP|:once]; causes: {', '.join(STRAGGLER_CAUSES)}")
    since = parts[3] if len(parts) == 4 else "0"
    if since != "once" and not since.isdigit():
        raise InputError(f"--straggler {text}: the last part is a step or the word once")
    is_once = since == "once"
    return Straggler(int(parts[0]), parts[1], duration(parts[2]), steps // 2 if is_once else int(since), is_once)


def numbered(option: str, text: str) -> tuple[int, float]:
    """`NUMBER:FACTOR`. Raises InputError."""
    number, _, factor = text.partition(":")
    try:
        return int(number), float(factor)
    except ValueError:
        raise InputError(f"{option} {text}: NUMBER:FACTOR") from None


def layout_of(text: str, ranks: int) -> tuple[int, int, int]:
    """`dp=..,tp=..,pp=..` in any order; what is not given is 1, but dp takes the rest. Raises InputError."""
    sizes: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, _, size = part.partition("=")
        if name.strip() not in ("dp", "tp", "pp") or not size.strip().isdigit() or int(size) < 1:
            raise InputError(f"--layout {text}: dp=..,tp=..,pp=..")
        sizes[name.strip()] = int(size)
    tp, pp = sizes.get("tp", 1), sizes.get("pp", 1)
    return sizes.get("dp", max(1, ranks // (tp * pp))), tp, pp


def duration(text: str) -> int:
    """Nanoseconds of "40ms", "300us", "1.5s" or a plain number of nanoseconds. Raises InputError."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise InputError(f"{text}: no duration; 40ms, 300us, 1.5s, or nanoseconds")
    return round(float(found[1]) * _UNITS[found[2]])
