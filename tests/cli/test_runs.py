"""`rankscope runs`: what is there, newest first."""

import json
from pathlib import Path

import pytest
from command_line import Command
from run_builder import RunBuilder, healthy_run


def test_newest_first_with_state(rankscope: Command, tmp_path: Path) -> None:
    for number, run_id in enumerate(("old", "new", "middle")):
        build = RunBuilder(tmp_path / "runs" / run_id, run_id=run_id)
        build.step(0, 0, 0, 1)
        build.entities()
        build.rows["run", None][0]["created_ns"] = (1 + (number * 2) % 3) * 10**18
        build.stream() if run_id == "middle" else build.seal()
    (tmp_path / "runs" / "unrelated").mkdir()
    found = json.loads(rankscope("runs", str(tmp_path / "runs"), "--json").out)["runs"]
    assert [(run["run_id"], run["state"], run["world_size"], run["job_id"]) for run in found] == [
        ("new", "sealed", 2, "job-1"), ("middle", "not sealed", 2, "job-1"), ("old", "sealed", 2, "job-1"),
    ]  # fmt: skip
    lines = rankscope("runs", str(tmp_path / "runs")).out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["new", "middle", "old"]


def test_the_default_is_the_folder_of_runs_here(rankscope: Command) -> None:
    assert rankscope("runs").status == 2
    healthy_run(Path("rankscope-runs/one"))
    assert rankscope("runs").out.splitlines()[-1].startswith("run-1 ")
    assert rankscope("report", "one").status == 0


def test_a_run_that_cannot_be_read_does_not_hide_the_others(rankscope: Command, tmp_path: Path) -> None:
    healthy_run(tmp_path / "runs" / "good")
    bad = healthy_run(tmp_path / "runs" / "bad")
    (bad / "run.json").write_text('{"run_id": "bad", "ontology_version": "9.0.0"}')
    found = {run["run_id"]: run for run in json.loads(rankscope("runs", str(tmp_path / "runs"), "--json").out)["runs"]}
    assert found["run-1"]["state"] == "sealed"
    assert found["bad"]["state"] == "unreadable" and "ontology 9.0.0" in found["bad"]["problem"]


@pytest.mark.parametrize("kind", ["missing", "file", "empty", "foreign"])
def test_no_run_is_one_line(rankscope: Command, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / kind
    if kind == "file":
        folder.write_text("x")
    elif kind != "missing":
        folder.mkdir()
    if kind == "foreign":
        (folder / "a").mkdir()
    ran = rankscope("runs", str(folder))
    assert ran.status == 2 and ran.out == "" and ran.err.count("\n") == 1


def test_another_programs_run_json_is_no_run(rankscope: Command, tmp_path: Path) -> None:
    healthy_run(tmp_path / "ours")
    (tmp_path / "theirs" / "run").mkdir(parents=True)
    (tmp_path / "theirs" / "run.json").write_text('{"name": "experiment", "run_id": 7}')
    ran = rankscope("runs", str(tmp_path), "--json")
    assert [run["path"] for run in json.loads(ran.out)["runs"]] == [str(tmp_path / "ours")]
