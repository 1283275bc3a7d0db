"""`rankscope report`: the whole text, and the form of its JSON."""

import json
import re
from pathlib import Path

import pytest
from command_line import Command
from run_builder import RunBuilder, healthy_run
from syrupy.assertion import SnapshotAssertion

from rankscope.schema.catalogue import CATALOGUE


def test_the_whole_report(rankscope: Command, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    ran = rankscope("report", str(healthy_run(tmp_path / "run")))
    text = ran.out.replace(str(tmp_path), "/runs")
    text = re.sub(r"rankscope \d\S*", "rankscope VERSION", text)
    assert (ran.status, ran.err) == (0, "")
    assert re.sub(r"[0-9a-f]{32}", "DIGEST", text) == snapshot


def test_a_report_with_everything_wrong(rankscope: Command, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    build = RunBuilder(tmp_path / "run", world_size=24)
    for rank in range(20):
        build.step(rank, 0, 0, 100)
        for step in range(1, 4):
            build.step(rank, step, 100 * step, 100 * step + 100)
        build.collective(rank, 0, 110, None, 150, phase="backward")
        if rank != 3:
            build.collective(rank, 1, 210, None, None, step=2)
    build.collective(0, 0, 120, (120, 130), 130, op="send", src=0, dst=1, tag=7)
    build.collective(1, 0, 120, (121, 131), 131, op="recv", src=0, dst=1, tag=7, state="failed")
    build.entities(ranks=list(range(20)), exit_kind="clean", dropped=5)
    build.rows["process", None][3]["exit_kind"] = "killed"
    build.seal()
    (tmp_path / "run" / "[bold]notes.txt").write_text("")
    ran = rankscope("report", str(tmp_path / "run"))
    text = re.sub(r"rankscope \d\S*", "rankscope VERSION", ran.out.replace(str(tmp_path), "/runs"))
    assert re.sub(r"[0-9a-f]{32}", "DIGEST", text) == snapshot
    assert ran.status == 0 and rankscope("report", str(tmp_path / "run"), "--fail-on-findings").status == 1


def test_json_has_the_form_of_the_definitions(rankscope: Command, tmp_path: Path) -> None:
    ran = rankscope("report", str(healthy_run(tmp_path / "run")), "--json")
    document = json.loads(ran.out)
    assert list(document) == ["run", "measurements", "verdicts", "headlines"] and document["run"]["run_id"] == "run-1"
    for item in document["measurements"]:
        assert {"name", "value", "unit", "scope", "n", "interval", "provenance"} <= set(item)
        assert item["unit"] == CATALOGUE[item["name"]].unit
        assert (item["value"] is None) == ("reason" in item)
        assert item["provenance"]["dataset_digest"] == document["run"]["dataset_digest"]
        assert set(item["scope"]) - {"group_id", "rank", "table", "incarnation"} <= set(CATALOGUE[item["name"]].scopes)
    names = {item["name"] for item in document["measurements"]}
    assert {
        "step.duration",
        "collective.wait",
        "collective.transfer",
        "capture.coverage",
        "capture.overhead",
        "capture.dropped",
    } <= names


def test_statements_rederive_their_values(rankscope: Command, tmp_path: Path) -> None:
    run_dir = str(healthy_run(tmp_path / "run"))
    document = json.loads(rankscope("report", run_dir, "--json").out)
    item = next(item for item in document["measurements"] if item["name"] == "collective.count")
    answer = json.loads(rankscope("query", run_dir, item["provenance"]["statement"], "--json").out)
    assert answer["rows"][0][answer["columns"].index("num_operations")] == item["value"] == 12


@pytest.mark.parametrize("columns", [50, 80, 120])
def test_no_number_is_cut_off_beside_a_long_name(
    rankscope: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    build = RunBuilder(tmp_path / "run", world_size=1)
    for step in range(3):
        for number in range(20):
            build.span(0, step, f"user.{'Long' * 25}{number}", 100 * step + number, 100 * step + number + 1)
        build.step(0, step, 100 * step, 100 * (step + 1))
    build.entities()
    monkeypatch.setenv("COLUMNS", str(columns))
    text = rankscope("report", str(build.seal())).out
    section = text[text.index("Phases of a step") :].split("\n\n")[0].splitlines()
    assert section[-1] == " and 4 more phases"
    rows = [line for line in section if "1.0 %" in line]
    assert len(rows) == 16 and all(line.endswith("1.00 ms        0") for line in rows)


def test_narrow_and_wide_terminals(rankscope: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = str(healthy_run(tmp_path / "run"))
    for columns in ("60", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        ran = rankscope("report", run_dir)
        assert ran.status == 0 and max(map(len, ran.out.splitlines())) <= int(columns) + len(run_dir)
