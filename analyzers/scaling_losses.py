"""Where the efficiency of a larger size goes: what each part of the step takes beyond its ideal.

Ideal is what the smallest size took: per step the same in weak scaling, n0 / n of it in strong scaling. What a step
takes beyond that is shared out over waiting for data, waiting for collectives, the pipeline's bubble, what slow steps
add to the median, and the rest: compute that got slower, and waits that nobody saw (those inside DDP's backward). Ranks
that share CPUs are named, since then the rest must grow.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .scaling_run import PARTS, ScalingRun, mean_parts_ns, mean_step_ns

WORTH_NAMING: Final = 0.1
"""Share of what is lost from which a part is named."""
_WORDS: Final = {
    "data": "waiting for data", "communication": "waiting for collectives", "bubble": "the pipeline's bubble",
    "tail": "slow steps", "rest": "compute and waits that nobody saw",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Loss:
    """One size. extra_ns: of the mean step beyond the ideal, negative where it gained; parts_ns: of it, by name."""

    num_ranks: int
    extra_ns: float
    step_ns: float
    parts_ns: tuple[tuple[str, float], ...]
    ranks_per_cpu: float | None

    @property
    def text(self) -> str:
        """In a few words."""
        if self.extra_ns <= 0:
            return f"{self.num_ranks} ranks: nothing lost"
        named = [f"{_WORDS[name]} {value / self.extra_ns:.0%}" for name, value in self.parts_ns
                 if value >= WORTH_NAMING * self.extra_ns]  # fmt: skip
        shared = ""
        if self.ranks_per_cpu is not None and self.ranks_per_cpu > 1:
            shared = f"; {self.ranks_per_cpu:.2g} ranks share each CPU, so they compute in turns"
        return (f"{self.num_ranks} ranks: {self.extra_ns / self.step_ns:.0%} of a step is beyond the ideal: "
                f"{', '.join(named) or 'no part by itself'}{shared}")  # fmt: skip


def losses(runs: Sequence[ScalingRun], mode: str) -> tuple[Loss, ...]:
    """What each size but the smallest loses; nothing where strong and weak scaling cannot be told apart."""
    if mode not in ("strong", "weak"):
        return ()
    by_size: dict[int, list[ScalingRun]] = defaultdict(list)
    for run in runs:
        by_size[run.num_ranks].append(run)
    first = min(by_size)
    base, base_parts = mean_step_ns(by_size[first]), mean_parts_ns(by_size[first])
    found = []
    for size, members in sorted(by_size.items())[1:]:
        factor = first / size if mode == "strong" else 1.0
        step, parts = mean_step_ns(members), mean_parts_ns(members)
        beyond = {
            name: parts[name] - factor * base_parts[name] for name in PARTS if name in parts and name in base_parts
        }
        if "communication" in parts and "communication" not in base_parts:  # a single rank waits for nobody
            beyond["communication"] = parts["communication"]
        ordered = tuple(sorted(beyond.items(), key=lambda item: -item[1]))
        found.append(Loss(size, step - factor * base, step, ordered, _ranks_per_cpu(members[0])))
    return tuple(found)


def _ranks_per_cpu(run: ScalingRun) -> float | None:
    cpus = [node["num_cpus"] for node in run.made_from.nodes if node["num_cpus"]]
    return run.node_size / min(cpus) if cpus and run.node_size else None
