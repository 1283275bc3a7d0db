"""`rankscope explain`: the whole text of one number, its JSON, what does not come out again, and bad names."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Command
from run_builder import RunBuilder, healthy_run
from syrupy.assertion import SnapshotAssertion

from rankscope.analyzers import explain
from rankscope.analyzers.brief import Brief, brief
from rankscope.analyzers.explain import Explainer
from rankscope.analyzers.questions import Question
from rankscope.analyzers.run import Run


def explained(rankscope: Command, run: Path, *arguments: str) -> list[dict[str, Any]]:
    ran = rankscope("explain", arguments[0], str(run), *arguments[1:], "--json")
    assert (ran.status, ran.err) == (0, "")
    found: list[dict[str, Any]] = json.loads(ran.out)["measurements"]
    return found


def test_the_whole_text_of_one_number(rankscope: Command, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    ran = rankscope("explain", "step.duration", str(healthy_run(tmp_path / "run")), "--scope", "statistic=p95")
    text = re.sub(r"[0-9a-f]{32}", "DIGEST", ran.out)
    text = re.sub(r"rankscope \d\S*, ontology \S+, duckdb \S+", "VERSIONS", text)
    assert (ran.status, ran.err) == (0, "")
    assert text == snapshot


def test_several_numbers_are_listed_with_their_scopes(rankscope: Command, tmp_path: Path) -> None:
    ran = rankscope("explain", "step.duration", str(healthy_run(tmp_path / "run")))
    lines = ran.out.splitlines()
    assert [line.split()[0] for line in lines[3:7]] == [f"statistic={name}" for name in ("p50", "p95", "p99", "max")]
    assert all("equal" in line and "NOT" not in line for line in lines[3:7])
    assert "--scope KEY=VALUE" in lines[7]


@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_json_has_the_provenance_and_the_second_derivation(rankscope: Command, tmp_path: Path, threads: str) -> None:
    (item,) = explained(
        rankscope, healthy_run(tmp_path / "run"), "collective.count", "--by", "communication", "--threads", threads
    )
    assert (item["value"], item["n"], item["unit"]) == (12, 12, "")
    assert item["question"] == "communication" and item["formula"].startswith("Communication by group and operation")
    assert item["inputs"] == ["collective.op", "collective.group_id"]
    told = item["rederived"]
    assert (told["value"], told["is_equal"], told["is_same_dataset"]) == (12, True, True)
    assert told["threads"] == int(threads)
    # one row, of which one column is the value itself
    assert told["statement"] == {
        "num_rows": 1, "num_fitting": 1, "column": "num_operations", "module": None, "problem": None
    }  # fmt: skip


def test_a_value_that_the_analyzer_makes_is_not_claimed_to_be_in_the_rows(rankscope: Command, tmp_path: Path) -> None:
    (item,) = explained(rankscope, healthy_run(tmp_path / "run"), "step.duration", "--scope", "statistic=p95")
    assert item["rederived"]["statement"]["column"] is None
    assert item["rederived"]["statement"]["num_rows"] > 1


def test_files_are_those_of_the_tables_with_the_digests_of_their_bytes(rankscope: Command, tmp_path: Path) -> None:
    run = healthy_run(tmp_path / "run")
    document = json.loads(rankscope("explain", "step.count", str(run), "--files", "--json").out)
    assert [item["table"] for item in document["files"]] == ["step"]
    for item in document["files"]:
        data = (run / item["file"]).read_bytes()
        assert item["digest"] == "blake2b:" + hashlib.blake2b(data, digest_size=16).hexdigest()
        assert (item["num_bytes"], item["num_rows"]) == (len(data), 12)
    text = rankscope("explain", "step.count", str(run), "--files").out
    assert document["files"][0]["digest"] in text and "12 rows in 1 file" in text


def test_a_value_that_does_not_come_out_again_is_said(
    rankscope: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bit of a float is enough."""

    def odd(run: Run, share: float | None) -> Brief:
        found = brief(run, share)
        value = float(found.num_steps.value or 0) + (1e-15 if run.threads else 0.0)
        return replace(found, num_steps=replace(found.num_steps, value=value))

    monkeypatch.setattr(explain, "QUESTIONS", (Question("odd", odd, ("step.count",)),))
    run = str(healthy_run(tmp_path / "run"))
    ran = rankscope("explain", "step.count", run, "--fail-on-findings")
    assert ran.status == 1 and "NOT EQUAL" in ran.out
    assert rankscope("explain", "step.count", run).status == 0


def test_a_run_that_still_goes_on_is_said_to(tmp_path: Path) -> None:
    healthy_run(tmp_path / "run")
    with Run.open(str(tmp_path / "run")) as opened:
        assert opened.digest
        more = RunBuilder(tmp_path / "run", node="host-b-22222222")
        more.step(0, 7, 1100, 1200)
        more.seal()
        with Explainer(opened) as explainer:
            (item,) = explainer.explain("step.count", {})
    assert not item.is_same_dataset and not item.is_equal and item.again is not None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["step.durations"], "no measurement is called step.durations; nearest: step.duration"),
        (["bubble"], "no measurement is called bubble; nearest: pipeline.bubble_fraction"),
        (["pipeline.bubble_fraction"], "nothing in it gives pipeline.bubble_fraction"),
        (["scaling.forecast"], "scaling.forecast is not computed from one run"),
        (["step.duration", "--scope", "statistic=p42"], "there is statistic: p50, p95, p99, max"),
        (["step.duration", "--scope", "statistic"], "--scope is KEY=VALUE"),
        (["step.duration", "--by", "time"], "step.duration is not computed by time from one run"),
        (["step.duration", "--threads", "0"], "--threads"),
    ],
)
def test_what_cannot_be_explained_is_one_line(
    rankscope: Command, tmp_path: Path, arguments: list[str], said: str
) -> None:
    ran = rankscope("explain", arguments[0], str(healthy_run(tmp_path / "run")), *arguments[1:])
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err and ran.err.startswith("rankscope: ") and ran.err.count("\n") == 1
