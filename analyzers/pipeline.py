"""How much of a pipeline's time is bubble, against what its schedule must cost, and what the rest is due to.

Window of a step: earliest begin to latest end over the ranks of one pipeline (their steps, else their compute spans);
where the clocks of its hosts cannot be compared, the longest rank's own. Idle = 1 - U(compute spans) / window; bubble =
idle without the intervals of data wait, checkpoint and waits in data-parallel groups. Means are taken over time: sum /
sum.

Ideal by formula (GPipe and 1F1B: (p-1)/(m+p-1); interleaved: (p-1)/(vm+p-1)): 8 stages and 16 micro-batches give 7/23.
With uneven stages a step takes the sum of their times for one micro-batch and m - 1 times the longest; what then stands
still beyond `ideal` is the part of the bubble that is due to imbalance. The first step is warm-up and left out, as are
steps that the job left out. Cannot see: pipelines whose spans tell no stage.
"""

from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple

from rankscope.schema.measurement import Measurement, Verdict

from .evidence import Evidence
from .headline import INFO, WARNING, Headline, percent
from .partials import Pair, Partial
from .run import Run
from .statements import statement

STAGES: Final = Pair(
    "pipeline", "stages", (Partial("pipeline", "stages_partial", tables=("span",), relations=("part_stages",)),)
)
RANK_STEPS: Final = Pair.of_parts("pipeline", "rank_steps", ("span", "collective"))
PAIRS: Final = (STAGES,)
"""What this analyzer asks of the large tables; the steps only where there is a pipeline, in a second reading."""
MUCH_BUBBLE: Final = 0.05
"""Share of a pipeline's time in bubbles beyond what its schedule costs that is worth a warning."""


class RankStep(NamedTuple):
    """One rank in one step. excused_ns: U(compute, data wait, checkpoint, waits in data-parallel groups)."""

    incarnation: int
    step: int
    global_step: int | None
    rank: int
    stage: int
    boot_id: str | None
    pipeline: str
    start_ns: int
    end_ns: int
    compute_ns: int
    excused_ns: int
    num_forwards: int
    num_chunks: int
    has_weight_gradients: bool
    left_out: str | None


@dataclass(frozen=True, slots=True)
class RankBubble:
    """One rank over the counted steps. bubbles: its bubble by step, the left out ones included."""

    rank: int
    stage: int
    idle: Measurement
    bubble: Measurement
    bubbles: tuple[Measurement, ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The answer. warmup_ratio: the first step's window / the median of the others; None where there is no other."""

    ranks: tuple[RankBubble, ...]
    mean_bubble: Measurement
    ideal: Measurement
    imbalance: Measurement
    due_to_imbalance: float | None
    excused: float | None
    num_steps: int
    num_left_out: int
    warmup_ratio: float | None

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them: the job's, then each rank's with its steps."""
        told = [item for rank in self.ranks for item in (rank.idle, rank.bubble, *rank.bubbles)]
        return (self.mean_bubble, self.ideal, self.imbalance, *told)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """None: what makes a stage late is the question of `stragglers`."""
        return ()

    @property
    def headlines(self) -> tuple[Headline, ...]:
        """How much is bubble, against what the schedule costs, and on which rank most."""
        if self.mean_bubble.value is None:
            return ()
        bubble, ideal = float(self.mean_bubble.value), self.ideal.value
        worst = max(self.ranks, key=lambda item: float(item.bubble.value or 0))
        against = "" if ideal is None else f", its schedule costs {percent(float(ideal))}"
        uneven = f", uneven stages {percent(self.due_to_imbalance)}" if self.due_to_imbalance else ""
        most = f"most on rank {worst.rank} (stage {worst.stage}): {percent(float(worst.bubble.value or 0))}"
        is_much = ideal is None or bubble - float(ideal) >= MUCH_BUBBLE
        text = f"The pipeline stands still {percent(bubble)} of the time in bubbles{against}{uneven}; {most}."
        return (Headline(WARNING if is_much else INFO, text, "pipeline"),)


def pipeline(run: Run, coverage: float | None = None) -> Pipeline | None:
    """The bubbles; None where no span tells a stage, or only one stage does."""
    return run.anew(lambda: _pipeline(run, coverage))


def _pipeline(run: Run, coverage: float | None) -> Pipeline | None:
    rows, error_ns = _rank_steps(run)
    if len({row.stage for row in rows}) < 2:
        return None
    boots = {row.boot_id for row in rows}
    is_common = len(boots) == 1 or (error_ns is not None and None not in boots)
    windows = _windows(rows, is_common)
    counted = [row for row in rows if _is_counted(row)]
    left_out = f"first step (warm-up) and steps that the job left out: {_num_steps(rows) - _num_steps(counted)}"
    caveats = () if is_common else ("several clocks: the window is the longest rank's own",)
    told = Evidence(run, "pipeline", RANK_STEPS.definition, ("span", "step", "process"), coverage,
                    window="steps of a pipeline", left_out=left_out, caveats=caveats,
                    clock_error_ns=error_ns if is_common else None)  # fmt: skip
    ideal = _ideal(run, told, counted or rows)
    bubble, excused = _fraction(counted, windows, "excused_ns"), _fraction(counted, windows, "compute_ns")
    reason = "" if counted else "no step counts: there is only the first"
    means = _stage_means(counted)
    slowest = max(means) * len(means) / sum(means) if sum(means) else None
    imbalance = told.measurement("pipeline.stage_imbalance", slowest, {}, _num_steps(counted), reason=reason)
    mean = told.measurement("pipeline.bubble_fraction", bubble, {}, len(counted), reason=reason)
    due = _due_to_imbalance(means, counted or rows) if slowest is not None and ideal.value is not None else None
    return Pipeline(
        _ranks(told, rows, windows), mean, ideal, imbalance,
        due,
        None if bubble is None or excused is None else excused - bubble, _num_steps(counted),
        _num_steps(rows) - _num_steps(counted), _warmup(rows, windows),
    )  # fmt: skip


def _rank_steps(run: Run) -> tuple[list[RankStep], int | None]:
    """The steps of the ranks on one clock, and how wrong that is; None: the clocks cannot be compared."""
    if len(STAGES.rows(run)) < 2:
        return [], None
    from .clocks import align  # loads numpy

    error_ns = align(run).worst_error_ns
    return [RankStep(*row) for row in RANK_STEPS.rows(run)], error_ns


def _is_counted(row: RankStep) -> bool:
    return row.step > 0 and row.left_out is None


def _num_steps(rows: list[RankStep]) -> int:
    return len({(row.incarnation, row.step) for row in rows})


_Key = tuple[int, str, int]


def _key(row: RankStep) -> _Key:
    return row.incarnation, row.pipeline, row.step


def _windows(rows: list[RankStep], is_common: bool) -> dict[_Key, int]:
    by_step: dict[_Key, list[RankStep]] = defaultdict(list)
    for row in rows:
        by_step[_key(row)].append(row)
    return {key: _window(ranks, is_common) for key, ranks in by_step.items()}


def _window(ranks: list[RankStep], is_common: bool) -> int:
    if not is_common and len({row.boot_id for row in ranks}) > 1:
        return max(row.end_ns - row.start_ns for row in ranks)
    return max(row.end_ns for row in ranks) - min(row.start_ns for row in ranks)


def _fraction(rows: list[RankStep], windows: dict[_Key, int], part: str) -> float | None:
    """1 - sum of `part` / sum of windows."""
    whole = sum(windows[_key(row)] for row in rows)
    return 1 - sum(getattr(row, part) for row in rows) / whole if whole else None


def _ranks(told: Evidence, rows: list[RankStep], windows: dict[_Key, int]) -> tuple[RankBubble, ...]:
    by_rank: dict[int, list[RankStep]] = defaultdict(list)
    for row in rows:
        by_rank[row.rank].append(row)
    found = []
    for rank, mine in sorted(by_rank.items()):
        used = [row for row in mine if _is_counted(row)]
        scope = {"rank": rank, "stage": mine[0].stage}
        reason = "" if used else "no step counts: there is only the first"
        idle, bubble = (_fraction(used, windows, part) for part in ("compute_ns", "excused_ns"))
        found.append(RankBubble(
            rank, mine[0].stage, told.measurement("pipeline.idle_fraction", idle, scope, len(used), reason=reason),
            told.measurement("pipeline.bubble_fraction", bubble, scope, len(used), reason=reason),
            tuple(_of_step(told, row, windows) for row in mine),
        ))  # fmt: skip
    return tuple(found)


def _of_step(told: Evidence, row: RankStep, windows: dict[_Key, int]) -> Measurement:
    scope = {"rank": row.rank, "stage": row.stage, "step": row.step, "global_step": row.global_step}
    why = "" if _is_counted(row) else "warm-up" if row.step == 0 else str(row.left_out)
    return told.measurement("pipeline.bubble_fraction", _fraction([row], windows, "excused_ns"), scope, 1,
                            reason="" if windows[_key(row)] else "the step took no time",
                            caveats=(f"left out: {why}",) if why else ())  # fmt: skip


def _ideal(run: Run, told: Evidence, rows: list[RankStep]) -> Measurement:
    name = "pipeline.ideal_bubble_fraction"
    ((pp, vpp),) = run.rows(statement("pipeline", "layout"))
    if any(row.has_weight_gradients for row in rows):
        return told.measurement(
            name, None, {}, 0, reason="weight gradients apart: which zero-bubble schedule is not told"
        )
    stages = pp or 1 + max(row.stage for row in rows)
    chunks = vpp or max(1, *(row.num_chunks for row in rows))
    forwards = median(row.num_forwards for row in rows)
    caveats = ("1F1B or GPipe assumed" if chunks == 1 else "interleaved 1F1B assumed",
               f"{stages} stages, {forwards / chunks:g} micro-batches, {chunks} chunks")  # fmt: skip
    if not forwards:
        return told.measurement(name, None, {}, 0, reason="no forward of a micro-batch was recorded")
    return told.measurement(name, (stages - 1) / (forwards + stages - 1), {}, len(rows), caveats=caveats)


def _stage_means(rows: list[RankStep]) -> list[float]:
    """Mean compute time of each stage's ranks in a step, stage by stage."""
    times: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        times[row.stage].append(row.compute_ns)
    return [sum(times[stage]) / len(times[stage]) for stage in sorted(times)]


def _due_to_imbalance(means: list[float], rows: list[RankStep]) -> float:
    """What of the time stands still since stages differ. A step of m forwards takes the sum of the stages' times for
    one, and m - 1 times the longest. Example: stages of 2, 1, 1, 1 and m = 8: 19; busy 10 / 19 on the mean; of even
    stages 8 / 11: 20 %.
    """
    forwards = max(1.0, median(row.num_forwards for row in rows))
    step = sum(means) + (forwards - 1) * max(means)
    even = forwards / (forwards + len(means) - 1)
    return even - forwards * (sum(means) / len(means)) / step


def _warmup(rows: list[RankStep], windows: dict[_Key, int]) -> float | None:
    others = [window for key, window in windows.items() if key[2] > 0]
    first = [window for key, window in windows.items() if key[2] == 0]
    return max(first) / median(others) if first and others and median(others) else None
