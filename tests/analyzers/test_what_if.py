"""The replay against a job of two stages and two micro-batches, worked out by hand; times in ms."""

from pathlib import Path

import pytest
from run_builder import MS, RunBuilder, proc_of

from rankscope.analyzers.run import Run
from rankscope.analyzers.what_if import WhatIf, what_if
from rankscope.schema.version import ONTOLOGY_VERSION
from rankscope.tracer.importers.synth import synthesise
from rankscope.tracer.importers.synth_plan import Plan, SlowStage


def job(root: Path, *, second: int = 10, pause: int = 0, breaks: bool = False) -> Path:
    """1F1B without data parallelism: each forward and backward takes 10 on stage 0 and `second` on stage 1; messages
    take no time, the optimizer 5, and nothing happens for `pause` before it. breaks: the second step lacks a message.
    """
    run = RunBuilder(root, world_size=2)
    at = 0
    for step in (1, 2, 3):
        begin = {("f", 0, 0): 0, ("f", 1, 0): 10}
        begin["f", 0, 1] = 10
        begin["b", 0, 1] = 10 + second
        begin["f", 1, 1] = 10 + 2 * second
        begin["b", 1, 1] = 10 + 3 * second
        begin["b", 0, 0] = 10 + 2 * second
        begin["b", 1, 0] = max(20 + 2 * second, 10 + 4 * second)
        lengths = (10, second)
        for (what, number, stage), start in begin.items():
            kind = "microbatch_forward" if what == "f" else "backward"
            run.span(
                stage, step, kind, at + start, at + start + lengths[stage], stage=stage, chunk=0, microbatch=number
            )
        for number in (0, 1):
            for role, sender, what in (("activations", 0, "f"), ("gradients", 1, "b")):
                sent = at + begin[what, number, sender] + lengths[sender]
                for rank, op in ((sender, "send"), (1 - sender, "recv")):
                    if breaks and step == 2 and rank == 0 and op == "recv" and number == 1:
                        continue
                    run.collective(rank, step * 10 + number, sent, None, sent, op=op, role=role, stage=rank, step=step,
                                   src=sender, dst=1 - sender, tag=0, group_id=role)  # fmt: skip
        end = begin["b", 1, 0] + 10 + pause
        for stage in (0, 1):
            run.span(stage, step, "optimizer", at + end, at + end + 5, stage=stage)
            run.step(stage, step, at, at + end + 5)
            run.collective(stage, step, at + end, None, at + end, op="all_reduce", role="other", stage=stage, step=step)
        at += end + 5
    run.entities()
    for row in run.rows["process", None]:
        row["mesh_dp"] = 0
        assert row["proc"] == proc_of(row["rank"]) and ONTOLOGY_VERSION
    return run.seal()


def analysed(run_dir: Path) -> WhatIf:
    with Run.open(str(run_dir)) as run:
        found = what_if(run, 1.0)
    assert found is not None
    return found


def test_an_even_job_has_no_straggler(tmp_path: Path) -> None:
    found = analysed(job(tmp_path / "run"))
    assert found.slowdown.value == pytest.approx(1.0)
    assert found.replay_error.value == pytest.approx(0.0)
    assert found.verdict is not None and (found.verdict.kind, found.verdict.ranks) == ("nothing", ())


def test_a_slow_last_stage(tmp_path: Path) -> None:
    """Stage 1 takes 30: the step is 10 + 4 x 30 + 10 + 5 = 145; ideal, all at 20: 6 x 20 + 5 = 125."""
    found = analysed(job(tmp_path / "run", second=30))
    assert found.slowdown.value == pytest.approx(145 / 125)
    # both stages ideal only on the last: 10 + 4 x 20 + 10 + 5
    assert found.share_last_stage.value == pytest.approx((145 - 105) / (145 - 125))
    assert found.verdict is not None and (found.verdict.kind, found.verdict.ranks) == ("stage", (1,))
    assert found.verdict.cost_ns == pytest.approx(3 * 20 * MS)


def test_no_verdict_where_the_replay_is_off(tmp_path: Path) -> None:
    found = analysed(job(tmp_path / "run", second=30, pause=20))
    assert found.replay_error.value == pytest.approx(20 / 145)
    assert found.verdict is None and "13.8%" in found.reason


def test_a_step_with_other_operations_is_left_out(tmp_path: Path) -> None:
    found = analysed(job(tmp_path / "run", breaks=True))
    assert (found.num_steps, found.num_left_out) == (2, 1)


def test_runs_that_tell_no_stage_are_not_asked(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.collective(0, 0, 1, None, 2, role="gradients")
    run.entities()
    with Run.open(str(run.seal())) as opened:
        assert what_if(opened, 1.0) is None


def test_of_very_many_operations_some_steps_are_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(ranks=16, ranks_per_node=8, steps=121, collectives=40, dp=2, tp=2, pp=4, microbatches=4,
                slow_stages=(SlowStage(3, 1.5),))  # fmt: skip
    synthesise(plan, str(tmp_path / "run"))
    whole = analysed(tmp_path / "run")
    assert whole.num_steps == 120 and whole.slowdown.provenance.window == "counted steps"
    monkeypatch.setattr("rankscope.analyzers.what_if.MAX_ROWS", 1)  # nevertheless MIN_STEPS are
    some = analysed(tmp_path / "run")
    assert some.num_steps == 20 and some.slowdown.provenance.window == "counted steps, one in 6"
    assert some.slowdown.value == pytest.approx(whole.slowdown.value, rel=0.01)
    assert [item.value for item in some.by_stage] == pytest.approx([item.value for item in whole.by_stage], rel=0.01)
    assert float(whole.by_stage[3].value or 0) > 1.1
