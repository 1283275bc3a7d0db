"""`rankscope stragglers` as people see it: one culprit in words, nobody to name, and what has too little to go by."""

import json
from pathlib import Path

import pytest
from command_line import Command
from late_run import late_run
from run_builder import RunBuilder, healthy_run
from syrupy.assertion import SnapshotAssertion


@pytest.fixture
def late(tmp_path: Path) -> str:
    build = RunBuilder(tmp_path / "run", world_size=4)
    return str(late_run(build, lambda rank, step: {"data": 40} if rank == 2 and step >= 20 else {}, num_steps=50))


def test_the_culprit_in_words_with_a_plot(rankscope: Command, late: str, snapshot: SnapshotAssertion) -> None:
    ran = rankscope("stragglers", late)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out == snapshot


def test_nobody_to_name(rankscope: Command, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    build = RunBuilder(tmp_path / "run", world_size=4)
    path = late_run(build, lambda rank, step: {"forward": 30 if rank == step % 4 else 0},
                    tokens=lambda rank, step: 4000 if rank == step % 4 else 1000)  # fmt: skip
    ran = rankscope("stragglers", str(path))
    assert (ran.status, ran.err) == (0, "")
    assert ran.out == snapshot


def test_json_has_the_form_of_every_command(rankscope: Command, late: str) -> None:
    found = json.loads(rankscope("stragglers", late, "--json").out)
    assert set(found) == {"run", "measurements", "verdicts", "reason"} and found["reason"] == ""
    (verdict,) = found["verdicts"]
    assert (verdict["kind"], verdict["ranks"], verdict["cause"], verdict["since_step"]) == (
        "straggler",
        [2],
        "data",
        20,
    )
    assert verdict["cost_ns"] == 30 * 40e6 and verdict["evidence"]
    assert {item["name"] for item in found["measurements"]} == {
        "straggler.lateness_own", "straggler.lateness_inherited", "straggler.wait", "straggler.blame", "straggler.cost",
    }  # fmt: skip
    assert all(item["provenance"]["tables"] and item["provenance"]["clock_error_ns"] == 0
               for item in found["measurements"])  # fmt: skip


def test_too_few_steps_are_said(rankscope: Command, tmp_path: Path) -> None:
    ran = rankscope("stragglers", str(healthy_run(tmp_path / "run")))
    assert ran.status == 0
    assert ran.out.startswith("no verdict: 5 counted steps, of 20 that it takes to call a rank late")


def test_a_run_with_nothing_to_compare_is_one_line_and_status_2(rankscope: Command, tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.step(0, 1, 0, 100)
    build.entities()
    ran = rankscope("stragglers", str(build.seal()))
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "no counted step has an operation" in ran.err


def test_findings_fail_where_asked(rankscope: Command, late: str, tmp_path: Path) -> None:
    assert rankscope("stragglers", late, "--fail-on-findings").status == 1
    even = late_run(RunBuilder(tmp_path / "even", world_size=4), lambda *_: {})
    assert rankscope("stragglers", str(even), "--fail-on-findings").status == 0
