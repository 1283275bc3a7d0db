"""One run as a point of a scaling series: its size, its throughput, and where the time of its steps went."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rankscope.schema.errors import NoEvidence

from .bootstrap import Floats, Resampled
from .brief import brief
from .communication import waited
from .coverage import coverage
from .differences import job_of
from .listing import unusable
from .manifest import Manifest, manifest
from .phases import phases
from .pipeline import pipeline
from .run import Run
from .statements import statement
from .step_parts import group_waits, step_parts
from .throughput import Amount, Steps, read_steps

COMPLETE: Final = 0.999
"""Share of the expected rows below which a run is called incomplete."""
PARTS: Final = ("data", "communication", "bubble", "tail", "rest")
"""Of the mean step: waiting for data, for collectives, idle in the pipeline, what slow steps add to the median, the
rest (compute, and what nobody saw)."""


@dataclass(frozen=True)
class ScalingRun:
    """node_size: most ranks of a host; parts_ns: of the mean step, by PARTS, None where nothing was seen.

    loss: of the steps that log one, loss_samples: samples seen until their ends. num_faults: files that cannot be used.
    part_series: of the parts that each step has by itself, how they vary over the steps (`step_parts`).
    """

    address: str
    run_id: str
    digest: str
    num_ranks: int
    node_size: int
    num_nodes: int
    made_from: Manifest
    steps: Steps
    parts_ns: dict[str, float | None]
    loss: Floats
    loss_samples: Floats
    memory_bytes: int | None
    coverage: float | None
    num_faults: int = 0
    part_series: dict[str, Floats] = field(default_factory=dict)

    @property
    def batch(self) -> float | None:
        """Samples of a step, mean over the counted ones."""
        values = self.steps.samples.values
        return float(values.mean()) if values is not None and len(values) else None

    def rate(self, metric: str) -> Resampled | None:
        """Throughput in samples, tokens or steps per second; None where that is not known."""
        amounts: dict[str, Amount] = {"samples": self.steps.samples, "tokens": self.steps.tokens}
        return self.steps.steps_per_second if metric == "steps" else self.steps.rate(amounts[metric])


def check_comparable(runs: Sequence[ScalingRun]) -> None:
    """Raises NoEvidence: a run without counted steps, a run given twice, runs of different jobs."""
    known: set[tuple[str, str]] = set()
    for run in runs:
        if not len(run.steps.duration_ns):
            lost = unusable(run.num_faults)
            raise NoEvidence(f"{run.address}: no counted step: nothing can be compared with it{lost}")
        if (run.run_id, run.digest) in known:
            raise NoEvidence(f"{run.address}: the same run twice: it is no repeat of itself")
        known.add((run.run_id, run.digest))
    jobs = sorted({name for run in runs if (name := job_of(run.made_from))})
    if len(jobs) > 1:
        raise NoEvidence(f"runs of different jobs: {' and '.join(jobs)}")


def incomplete(runs: Sequence[ScalingRun]) -> tuple[str, ...]:
    """A few words on each run of which rows are missing."""
    return tuple(
        f"{100 * run.coverage:.1f} % of the expected rows of {run.run_id} are there{unusable(run.num_faults)}"
        for run in runs if run.coverage is not None and run.coverage < COMPLETE
    )  # fmt: skip


def mean_step_ns(runs: Sequence[ScalingRun]) -> float:
    """Mean step of several runs, each counted the same."""
    return sum(float(run.steps.duration_ns.mean()) for run in runs) / len(runs)


def mean_parts_ns(runs: Sequence[ScalingRun]) -> dict[str, float]:
    """The parts of that step, by name, each over the runs in which it was seen; without those seen in none."""
    found = {}
    for name in PARTS:
        known = [value for run in runs if (value := run.parts_ns.get(name)) is not None]
        if known:
            found[name] = sum(known) / len(known)
    return found


def scaling_run(run: Run, *, has_series: bool = False) -> ScalingRun:
    """What a scaling series needs of `run`; with `has_series` also how its parts vary, which reads rows once more."""
    return run.anew(lambda: _scaling_run(run, has_series))


def _scaling_run(run: Run, has_series: bool) -> ScalingRun:
    share = coverage(run).coverage.value
    about = brief(run).about
    hosts: dict[str, set[int]] = {}
    for _, rank, _, node, *_ in run.rows(statement("brief", "processes")):
        hosts.setdefault(node or "", set()).add(rank)
    ranks = set().union(*hosts.values()) if hosts else set()
    steps = read_steps(run)
    parts = _parts(run, steps)
    return ScalingRun(
        run.place.address, run.run_id, run.digest, about.world_size or len(ranks),
        max((len(found) for found in hosts.values()), default=0), len(hosts), manifest(run), steps,
        parts, *_losses(run, steps), run.rows(statement("throughput", "memory"))[0][0],
        None if share is None else float(share), len(run.faults),
        step_parts(run, steps, with_neighbours=parts.get("bubble") is None) if has_series else {},
    )  # fmt: skip


def _parts(run: Run, steps: Steps) -> dict[str, float | None]:
    """Nanoseconds of the mean step. Waits for data lie before forward, waits for collectives after it: disjoint.

    Waits for the neighbour of a stage are the bubble, where there is one, and no communication.
    """
    if not len(steps.duration_ns):
        return dict.fromkeys(PARTS)
    seen = phases(run)
    waits = [item for item in waited(run) if item.num_operations]
    num_rank_steps = sum(item.num_steps for item in waits)
    mean = float(steps.duration_ns.mean())
    data = next((phase.share * mean for phase in seen.phases if phase.name == "data"), None)
    wait_ns, num_waits = sum(item.wait_ns for item in waits), sum(item.num_waits for item in waits)
    bubble = _bubble(run, mean)
    if bubble is not None:
        wait_ns, num_waits = group_waits(run)
    talk = wait_ns / num_rank_steps if num_waits else None
    tail = mean - float(sorted(steps.duration_ns)[len(steps.duration_ns) // 2])
    known = {"data": data, "communication": talk, "bubble": bubble, "tail": max(0.0, tail)}
    rest = mean - sum(value for value in known.values() if value is not None)
    return {**known, "rest": max(0.0, rest)}


def _bubble(run: Run, step_ns: float) -> float | None:
    """Of the mean step, where spans tell their stage."""
    found = pipeline(run)
    share = None if found is None else found.mean_bubble.value
    return None if share is None else float(share) * step_ns


def _losses(run: Run, steps: Steps) -> tuple[Floats, Floats]:
    places = {key: place for place, key in enumerate(steps.keys)}
    rows = [(places[row[:2]], row[2]) for row in run.rows(statement("throughput", "losses")) if row[:2] in places]
    seen = np.cumsum(steps.samples.values if steps.samples.values is not None else np.zeros(len(places)))
    return np.array([loss for _, loss in rows], np.float64), seen[[place for place, _ in rows]].astype(np.float64)
