"""`rankscope report --save`: conclusions become tables, and the evidence stays what it was."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import Command
from run_builder import RunBuilder, healthy_run


def rows(rankscope: Command, run: Path, sql: str) -> list[list[Any]]:
    ran = rankscope("query", str(run), sql, "--json")
    assert (ran.status, ran.err) == (0, "")
    found: list[list[Any]] = json.loads(ran.out)["rows"]
    return found


def broken_run(root: Path) -> Path:
    build = RunBuilder(root)
    for rank in (0, 1):
        build.step(rank, 0, 0, 100)
        build.step(rank, 1, 100, 200)
    build.entities()
    build.rows["process", None][1]["exit_kind"] = "killed"
    return build.seal()


def test_what_was_found_can_be_queried(rankscope: Command, tmp_path: Path) -> None:
    run = broken_run(tmp_path / "run")
    assert rows(rankscope, run, "SELECT * FROM measurement") == rows(rankscope, run, "SELECT * FROM verdict") == []
    document = json.loads(rankscope("report", str(run), "--json").out)
    ran = rankscope("report", str(run), "--save", "--json")
    assert ran.status == 0 and ran.err.endswith("measurement/report.parquet, verdict/report.parquet\n")
    assert json.loads(ran.out) == document
    saved = rows(rankscope, run, "SELECT name, value, unit, scope, n, provenance FROM measurement")
    assert [[name, value, unit, json.loads(scope), n] for name, value, unit, scope, n, _ in saved] == [
        [item["name"], item["value"], item["unit"], item["scope"], item["n"]] for item in document["measurements"]
    ]
    for row, item in zip(saved, document["measurements"], strict=True):
        told = json.loads(row[-1])
        assert told.pop("reason", None) == item.get("reason") and told == item["provenance"]
    ((kind, ranks, text, confidence),) = rows(rankscope, run, "SELECT kind, ranks, text, confidence FROM verdict")
    assert (kind, ranks, confidence) == ("dead_rank", [1], 1.0) and text == document["verdicts"][0]["text"]


def test_the_evidence_and_its_digest_stay(rankscope: Command, tmp_path: Path) -> None:
    run = healthy_run(tmp_path / "run")
    before = {path: path.read_bytes() for path in run.rglob("*.parquet")}
    text = rankscope("report", str(run)).out
    for _ in range(2):
        assert rankscope("report", str(run), "--save").status == 0
        assert rankscope("report", str(run)).out == text
    assert {path: path.read_bytes() for path in before} == before
    added = sorted(str(path.relative_to(run)) for path in run.rglob("*.parquet") if path not in before)
    assert added == ["index/report.parquet", "measurement/report.parquet", "verdict/report.parquet"]
    numbers = len(json.loads(rankscope("report", str(run), "--json").out)["measurements"])
    assert rows(rankscope, run, "SELECT count(*) FROM measurement") == [[numbers]]  # replaced, not added to


def test_saved_files_are_verified_too(rankscope: Command, tmp_path: Path) -> None:
    run = healthy_run(tmp_path / "run")
    assert rankscope("report", str(run), "--save").status == 0
    problems = [item["file"] for item in json.loads(rankscope("verify", str(run), "--json").out)["problems"]]
    assert not [name for name in problems if name.startswith(("measurement", "verdict"))]
    path = run / "measurement" / "report.parquet"
    path.write_bytes(path.read_bytes() + b" ")
    problems = json.loads(rankscope("verify", str(run), "--json").out)["problems"]
    assert ("measurement/report.parquet", "changed") in [(item["file"], item["kind"]) for item in problems]


def test_conclusions_alone_are_no_run(rankscope: Command, tmp_path: Path) -> None:
    run = healthy_run(tmp_path / "run")
    assert rankscope("report", str(run), "--save").status == 0
    for path in run.rglob("*.parquet"):
        if path.parent.name not in ("measurement", "verdict"):
            path.unlink()
    ran = rankscope("report", str(run))
    assert (ran.status, ran.err) == (2, f"rankscope: {run}: the run has no rows\n")


@pytest.mark.parametrize("place", ["measurement", "index"])
def test_a_place_that_cannot_be_written_is_one_line(rankscope: Command, tmp_path: Path, place: str) -> None:
    run = healthy_run(tmp_path / "run")
    (run / place).write_text("in the way")
    ran = rankscope("report", str(run), "--save")
    assert ran.status == 2 and ran.err.count("\n") == 1
    assert ran.err.startswith(f"rankscope: {run}: cannot be written: ")
