"""Synthetic runs: causality holds, what is planted is there, the seed decides, clocks are moved as the truth says."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.analyzers.pipeline import pipeline
from rankscope.analyzers.run import Run
from rankscope.schema.errors import InputError, MixedRuns
from rankscope.tracer.importers.synth import synthesise
from rankscope.tracer.importers.synth_plan import (
    Plan,
    SlowLink,
    SlowStage,
    Straggler,
    duration,
    layout_of,
    straggler_of,
)
from rankscope.tracer.importers.synth_program import one_forward_one_backward, program
from rankscope.tracer.verify import verify

SMALL = Plan(ranks=4, ranks_per_node=2, steps=12, collectives=10, dp=2, tp=2, step_ns=10_000_000)
PIPELINE = Plan(ranks=8, ranks_per_node=2, steps=6, collectives=40, dp=2, tp=1, pp=4, microbatches=8)


def rows(run_dir: Path, sql: str) -> list[tuple[Any, ...]]:
    with Run.open(str(run_dir)) as run:
        assert run.faults == ()
        return run.rows(sql)


def made(plan: Plan, run_dir: Path) -> Path:
    synthesise(plan, str(run_dir))
    return run_dir


def truth(run_dir: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run_dir / "truth.json").read_text())
    return found


LATE = Plan(**{**PIPELINE.as_json(), "stragglers": (straggler_of("3:gc:2ms:once", 6),)})


@pytest.mark.parametrize("plan", [SMALL, PIPELINE, LATE, Plan(ranks=2, dp=2, steps=3, collectives=1)], ids="abcd")
def test_files_are_whole_and_the_counts_right(tmp_path: Path, plan: Plan) -> None:
    run_dir = made(plan, tmp_path / "run")
    assert verify(str(run_dir)).problems == ()
    assert rows(run_dir, "SELECT count(*) FROM collective") == [(truth(run_dir)["num_collectives"],)]
    assert rows(run_dir, "SELECT max(num) FROM (SELECT count(*) AS num FROM collective GROUP BY rank, step)") == [
        (plan.collectives,)
    ]
    assert rows(run_dir, "SELECT count(*), count(DISTINCT rank) FROM step") == [(plan.ranks * plan.steps, plan.ranks)]
    every = " UNION ALL ".join(f"SELECT proc, record FROM {table}" for table in ("collective", "span", "step"))
    assert (
        rows(
            run_dir,
            f"""SELECT proc FROM ({every}) JOIN process USING (proc) GROUP BY proc, num_records
        HAVING count(DISTINCT record) < count(*) OR count(*) <> num_records OR max(record) <> num_records - 1""",
        )
        == []
    )
    assert len(list(run_dir.glob("collective/*/*/*.parquet"))) == plan.num_nodes


def test_an_operation_ends_for_all_after_the_last_has_come(tmp_path: Path) -> None:
    run_dir = made(SMALL, tmp_path / "run")
    found = rows(run_dir, """
        SELECT min(c.completed_ns) - max(c.issued_ns), count(*), any_value(g.size),
            max(c.completed_ns) - min(c.completed_ns)
        FROM collective c JOIN process_group g USING (group_id) WHERE c.op NOT IN ('broadcast', 'send', 'recv')
        GROUP BY c.group_id, c.op, c.seq""")  # fmt: skip
    assert found and all(num == size and transfer > 50_000 for transfer, num, size, _ in found)
    assert np.median([skew for *_, skew in found]) < 20_000


def test_queued_operations_end_in_order_one_transfer_apart(tmp_path: Path) -> None:
    plan = Plan(ranks=2, dp=2, steps=4, collectives=20, step_ns=200_000)  # far less computation than communication
    gaps = rows(made(plan, tmp_path / "run"), """
        SELECT completed_ns - lag(completed_ns) OVER (PARTITION BY proc, step ORDER BY seq) FROM collective
        WHERE op = 'reduce_scatter_tensor'
        QUALIFY lag(seq) OVER (PARTITION BY proc, step ORDER BY seq) IS NOT NULL""")  # fmt: skip
    assert len(gaps) > 40 and all(gap > 200_000 for (gap,) in gaps) and np.median(gaps) < 300_000


def test_roots_and_senders_go_on_before_the_others_have_come(tmp_path: Path) -> None:
    run_dir = made(Plan(ranks=4, dp=4, steps=20, collectives=10, jitter=0.2), tmp_path / "run")
    early, never = rows(run_dir, """
        WITH ends AS (SELECT seq, max(issued_ns) AS last_ns, min(completed_ns) FILTER (rank = root) AS root_ns,
            min(completed_ns) AS first_ns, min(issued_ns) FILTER (rank = root) AS begin_ns
            FROM collective WHERE op = 'broadcast' GROUP BY seq)
        SELECT count(*) FILTER (root_ns < last_ns), count(*) FILTER (first_ns < begin_ns) FROM ends""")[0]  # fmt: skip
    assert early >= 5 and never == 0
    late, impossible = rows(made(PIPELINE, tmp_path / "pipeline"), """
        SELECT count(*) FILTER (s.completed_ns < r.issued_ns), count(*) FILTER (r.completed_ns < s.issued_ns)
        FROM collective s JOIN collective r USING (group_id, src, dst, tag, seq) WHERE s.op = 'send' AND r.op = 'recv'
        """)[0]  # fmt: skip
    assert late > 20 and impossible == 0


def test_the_same_seed_gives_the_same_rows_another_one_does_not(tmp_path: Path) -> None:
    first, second = (made(SMALL, tmp_path / name) for name in "ab")
    other = made(Plan(**{**SMALL.as_json(), "seed": 1}), tmp_path / "c")
    sql = "SELECT * EXCLUDE (proc, node, group_id) FROM collective ORDER BY rank, record"
    assert rows(first, sql) == rows(second, sql) != rows(other, sql)


def test_clocks_are_off_by_what_the_truth_says_and_nothing_else_changes(tmp_path: Path) -> None:
    plain = made(SMALL, tmp_path / "plain")
    moved = made(Plan(**{**SMALL.as_json(), "clock_offset_ns": 50_000_000, "drift_ppm": 20.0, "num_slews": 2}),
                 tmp_path / "moved")  # fmt: skip
    clocks = truth(moved)["clocks"]
    assert any(abs(clock["ahead_ns"][0]) > 1_000_000 for clock in clocks)
    sql = "SELECT rank, completed_ns FROM collective ORDER BY rank, record"
    for (rank, true), (_, seen) in zip(rows(plain, sql), rows(moved, sql), strict=True):
        clock = clocks[rank // SMALL.ranks_per_node]
        ahead = np.interp(true - clock["booted_ns"], clock["true_ns"], clock["ahead_ns"])
        assert abs(seen - true - ahead) <= 2


@pytest.mark.parametrize("cause", ["data", "compute", "gc", "checkpoint", "cpu_contention", "throttle"])
def test_a_straggler_comes_last_and_its_own_rows_say_why(tmp_path: Path, cause: str) -> None:
    late = Straggler(3, cause, 3_000_000, since_step=6)
    run_dir = made(Plan(**{**SMALL.as_json(), "stragglers": (late,)}), tmp_path / "run")
    # who is late at the first operation of a step at which anybody is: later ones pass the lateness on
    last = rows(run_dir, """
        SELECT step, arg_max(rank, issued_ns) FROM collective GROUP BY group_id, step, op, seq
        HAVING max(issued_ns) - min(issued_ns) > 2e6
        QUALIFY row_number() OVER (PARTITION BY step ORDER BY min(issued_ns)) = 1 ORDER BY step""")  # fmt: skip
    assert last == [(step, 3) for step in range(6, 12)]
    spans = "SELECT count(*) FROM span WHERE rank = 3 AND step > 0 AND kind ="
    told = {
        "data": f"{spans} 'data' AND end_ns - start_ns > 3e6",
        "compute": f"{spans} 'forward' AND end_ns - start_ns > 5e6",
        "gc": f"{spans} 'gc'",
        "checkpoint": "SELECT count(*) FROM checkpoint WHERE rank = 3 AND abs(end_ns - start_ns - 3e6) <= 1",
        "cpu_contention": "SELECT 2 * arg_max(rank, run_queue_wait_ns) FROM process_sample",
        "throttle": "SELECT 6 * count(DISTINCT p.rank) FROM device_sample d JOIN process p USING (device_uuid) "
        "WHERE d.throttle_reasons <> '' AND p.rank = 3",
    }
    assert rows(run_dir, told[cause]) == [(6,)]


def test_a_straggler_once(tmp_path: Path) -> None:
    run_dir = made(Plan(**{**SMALL.as_json(), "stragglers": (straggler_of("1:data:4ms:once", 12),)}), tmp_path / "run")
    found = rows(run_dir, "SELECT step FROM span WHERE kind = 'data' AND end_ns - start_ns > 3e6 AND rank = 1")
    assert found == [(6,)]


def test_a_slow_link_slows_the_groups_that_leave_the_node(tmp_path: Path) -> None:
    run_dir = made(Plan(**{**SMALL.as_json(), "slow_links": (SlowLink(1, 4.0),)}), tmp_path / "run")
    within, across = (
        rows(run_dir, f"""SELECT median(t) FROM (
            SELECT min(completed_ns) - max(issued_ns) AS t FROM collective JOIN process_group USING (group_id)
            WHERE mesh_dimension = '{name}' AND op <> 'broadcast' GROUP BY group_id, seq)""")[0][0]
        for name in ("tp", "dp")
    )  # fmt: skip
    assert within < 100_000 and across > 900_000


def test_bubbles_are_those_that_the_pipeline_analyzer_finds(tmp_path: Path) -> None:
    for name, plan in {
        "even": PIPELINE,
        "slow": Plan(**{**PIPELINE.as_json(), "slow_stages": (SlowStage(3, 1.5),)}),
    }.items():
        run_dir = made(plan, tmp_path / name)
        with Run.open(str(run_dir)) as run:
            found = pipeline(run)
        assert found is not None
        for item in found.ranks:
            assert item.idle.value == pytest.approx(1 - truth(run_dir)["compute_share"][item.stage], abs=0.01)
        assert found.ideal.value == truth(run_dir)["ideal_bubble"] == pytest.approx(3 / 11)
        assert (float(found.mean_bubble.value or 0) > 0.4) == (name == "slow")


def test_the_order_of_one_forward_one_backward() -> None:
    order = [f"{phase[0]}{number}" for phase, number in one_forward_one_backward(0, 2, 3)]
    assert order == ["f0", "f1", "b0", "f2", "b1", "b2"]
    assert [phase[0] for phase, _ in one_forward_one_backward(3, 4, 2)] == ["f", "b", "f", "b"]


def test_programs_have_as_many_operations_as_asked_for() -> None:
    for num in range(1, 60):
        for layout in ("dp=8", "tp=8", "dp=2,tp=4"):
            dp, tp, pp = layout_of(layout, 8)
            found = program(Plan(ranks=8, dp=dp, tp=tp, pp=pp, collectives=num))
            assert len(found.before) + len(found.after) + sum(len(task.inner) for task in found.tasks[0]) == num


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    for plan in (
        Plan(ranks=6, dp=4), Plan(collectives=0), Plan(steps=0), Plan(stragglers=(Straggler(8, "data", 1),)),
        Plan(slow_links=(SlowLink(1, 2.0),)), Plan(slow_stages=(SlowStage(1, 2.0),)), Plan(drift_ppm=600.0),
    ):  # fmt: skip
        with pytest.raises(InputError, match="--"):
            synthesise(plan, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    with pytest.raises(MixedRuns, match="not empty"):
        synthesise(SMALL, str(tmp_path / "full"))


def test_durations() -> None:
    assert [duration(text) for text in ("40ms", "1.5s", "300us", "7", "8ns")] == [
        40_000_000, 1_500_000_000, 300_000, 7, 8,
    ]  # fmt: skip
    with pytest.raises(InputError):
        duration("soon")
