"""Real pipeline jobs with a known root cause through the command line, against the published replay's answers."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from rankscope.cli import main

pytestmark = pytest.mark.skipif("RANKSCOPE_TEST_DATA" not in os.environ, reason="RANKSCOPE_TEST_DATA is not set")
DATA = Path(os.environ.get("RANKSCOPE_TEST_DATA", "")) / "straggler_whatif"
SLICES = {"dp_rank": "by_dp_rank", "stage": "by_stage", "op": "by_optype"}


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(tmp_path / "local"))


def rankscope(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main.run(list(arguments)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "kind", "ranks", "text"),
    [("AR", "straggler", [0], "one worker: dp 0, stage 0"), ("ST", "stage", [6, 7], "last stage")],
)
def test_slowdown_slices_and_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str, ranks: list[int], text: str
) -> None:
    answers: dict[str, Any] = json.loads((DATA / "expected.json").read_text())[name]
    run = str(tmp_path / "run")
    imported = json.loads(
        rankscope(capsys, "import", "what-if", str(DATA / f"trace-{name}.parquet"), "-o", run, "--json")
    )
    assert imported["files"][0]["num_events"] == answers["rows"]
    assert imported["world_size"] == answers["job_meta"]["world_size"]
    assert imported["world_size"] - len(imported["missing"]) == answers["ranks_traced"]
    found = json.loads(rankscope(capsys, "stragglers", run, "--json"))
    measured = {(item["name"], *item["scope"].items()): item["value"] for item in found["measurements"]}
    whole = {
        "straggler.slowdown": "slowdown_S",
        "straggler.share_worst_workers": "Mw",
        "straggler.share_last_stage": "Ms",
    }
    for measurement, key in whole.items():
        assert measured[(measurement,)] == pytest.approx(answers[key], rel=0.01, abs=1e-4), key
    assert measured[("straggler.replay_error",)] == pytest.approx(answers["launch_slowdown"] - 1, rel=0.01)
    for scope, key in SLICES.items():
        slices = {str(dict(k[1:])[scope]): value for k, value in measured.items()
                  if k[0] == "straggler.slowdown" and [name for name, _ in k[1:]] == [scope]}  # fmt: skip
        assert slices == {item: pytest.approx(value, rel=0.01) for item, value in answers[key].items()}
    (verdict,) = [item for item in found["verdicts"] if "replay_error" in item["evidence"][0]]
    assert (verdict["kind"], verdict["ranks"], verdict["text"]) == (kind, ranks, text)
    assert text in rankscope(capsys, "stragglers", run)


def test_a_worker_costs_one_thing_and_explains_at_most_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "run")
    rankscope(capsys, "import", "what-if", str(DATA / "trace-AR.parquet"), "-o", run)
    told = " ".join(rankscope(capsys, "stragglers", run).split())
    cause = told[told.index("cause compute:") : told.index("how sure")]
    assert max(int(number) for number in re.findall(r"(\d+) %", cause)) <= 100
    assert "costs at least" in told and "in all, what the replay says" in told
    about = [item for item in json.loads(rankscope(capsys, "report", run, "--json"))["headlines"]
             if item["text"].startswith("Straggler")]  # fmt: skip
    assert [("1.97 times as long" in item["text"], "; costs" in item["text"]) for item in about] == [
        (True, False), (False, False),
    ]  # fmt: skip
    assert "cause: compute" in about[1]["text"]
