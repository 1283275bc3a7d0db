"""Bubbles against two stages with two micro-batches, worked out by hand; times in ms."""

from pathlib import Path
from typing import Any

import pytest
from run_builder import RunBuilder

from rankscope.analyzers.pipeline import Pipeline, pipeline
from rankscope.analyzers.run import Run
from rankscope.analyzers.what_if import what_if
from rankscope.tracer.importers.synth import synthesise
from rankscope.tracer.importers.synth_plan import Plan, SlowStage


def two_stages(root: Path, **more: Any) -> RunBuilder:
    """Steps of 60 ms. Stage 0 computes 40 ms of it, stage 1 20 ms; the first step is three times as long."""
    run = RunBuilder(root)
    run.world_size = 2
    at = 0
    for step in range(3):
        scale = 3 if step == 0 else 1
        for rank, work in ((0, (0, 10, 40)), (1, (10, 15, 25))):
            for number, begin in enumerate(work[:2]):
                length = (10 if rank == 0 else 5) * scale
                start = at + begin * scale
                run.span(
                    rank, step, "microbatch_forward", start, start + length, stage=rank, chunk=0, microbatch=number
                )
                back = at + work[2] * scale + number * length
                run.span(rank, step, "backward", back, back + length, stage=rank, chunk=0, microbatch=number)
            run.step(rank, step, at, at + 60 * scale)
        at += 60 * scale
    return run


def analysed(run: RunBuilder) -> Pipeline | None:
    run.entities()
    with Run.open(str(run.seal())) as opened:
        return pipeline(opened, 1.0)


def test_bubble_ideal_and_imbalance(tmp_path: Path) -> None:
    found = analysed(two_stages(tmp_path / "run"))
    assert found is not None
    assert [item.bubble.value for item in found.ranks] == [pytest.approx(1 / 3), pytest.approx(2 / 3)]
    assert found.mean_bubble.value == pytest.approx(0.5)
    assert found.ideal.value == pytest.approx(1 / 3)
    assert found.imbalance.value == pytest.approx(40 / 30)
    # 20 and 10 ms a micro-batch: 30 for one and 20 for the other are 50 ms, of which 30 busy; this schedule takes 60
    assert found.due_to_imbalance == pytest.approx(0.4 - 1 / 3)
    assert (found.num_steps, found.num_left_out, found.warmup_ratio, found.excused) == (2, 1, 3.0, 0.0)


def test_idle_that_is_no_bubble(tmp_path: Path) -> None:
    """Rank 1 waits 5 ms for data in each step, 2 ms of it while it computes."""
    run = two_stages(tmp_path / "run")
    for at in (180, 240):
        run.span(1, (at - 120) // 60, "data", at + 7, at + 12)
    found = analysed(run)
    assert found is not None
    assert found.ranks[1].idle.value == pytest.approx(40 / 60)
    assert found.ranks[1].bubble.value == pytest.approx(37 / 60)


def test_zero_bubble_schedules_have_no_formula_unless_told(tmp_path: Path) -> None:
    run = two_stages(tmp_path / "run")
    run.span(0, 1, "microbatch_weight_gradient", 230, 235, stage=0, chunk=0, microbatch=0)
    found = analysed(run)
    assert found is not None and found.ideal.value is None and "which" in found.ideal.reason
    assert found.due_to_imbalance is None


def test_one_step_counts_for_nothing_and_one_stage_is_no_pipeline(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    for rank in range(2):
        run.span(rank, 0, "microbatch_forward", 0, 5, stage=rank, chunk=0, microbatch=0)
    found = analysed(run)
    assert found is not None and found.mean_bubble.value is None and found.ranks[0].bubble.reason
    other = RunBuilder(tmp_path / "other")
    other.span(0, 1, "forward", 0, 5, stage=0)
    assert analysed(other) is None


@pytest.mark.parametrize(("stage", "factor", "due"), [(0, 2.0, 0.20), (1, 1.5, 0.13)])
def test_the_parts_of_a_planted_bubble_are_not_more_than_the_whole(
    stage: int, factor: float, due: float, tmp_path: Path
) -> None:
    plan = Plan(ranks=8, ranks_per_node=8, steps=20, collectives=40, dp=2, tp=1, pp=4, microbatches=8,
                slow_stages=(SlowStage(stage, factor),))  # fmt: skip
    synthesise(plan, str(tmp_path / "run"))
    with Run.open(str(tmp_path / "run")) as run:
        found, replayed = pipeline(run, 1.0), what_if(run, 1.0)
    assert found is not None and replayed is not None
    assert found.due_to_imbalance is not None and found.due_to_imbalance == pytest.approx(due, abs=0.02)
    idle = float(found.mean_bubble.value or 0) + float(found.excused or 0)
    assert float(found.ideal.value or 0) + found.due_to_imbalance < idle + 0.02
    [verdict] = replayed.verdicts
    assert (verdict.kind, verdict.ranks) == ("stage", (2 * stage, 2 * stage + 1))
    assert verdict.text.startswith(f"stage {stage}, which explains ")
