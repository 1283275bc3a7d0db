"""A real pipeline's log through the command line: each rank's bubble in each step against the answers beside it."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rankscope.cli import main

pytestmark = pytest.mark.skipif("RANKSCOPE_TEST_DATA" not in os.environ, reason="RANKSCOPE_TEST_DATA is not set")
DATA = Path(os.environ.get("RANKSCOPE_TEST_DATA", "")) / "pipeline"


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(tmp_path / "local"))


def rankscope(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main.run(list(arguments)) == 0
    return capsys.readouterr().out


def test_every_bubble_of_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers: dict[str, Any] = json.loads((DATA / "expected.json").read_text())["pp8_1f1b"]
    run = str(tmp_path / "run")
    rankscope(capsys, "import", "pipeline", str(DATA / "pp8_1f1b"), "-o", run)
    rankscope(capsys, "verify", run)
    found = json.loads(rankscope(capsys, "pipeline", run, "--json"))["measurements"]
    by_step = [item for item in found if item["name"] == "pipeline.bubble_fraction" and "step" in item["scope"]]
    assert len(by_step) == 8 * 20
    for item in by_step:
        rank, iteration = item["scope"]["rank"], item["scope"]["global_step"]
        expected = answers["iters"][str(iteration)]["ranks"][rank]["bubble_vs_iter"]
        assert item["value"] == pytest.approx(expected, abs=0.001), (rank, iteration)
        assert item["provenance"]["caveats"] == (["left out: warm-up"] if iteration == 1 else [])
    (ideal,) = [item for item in found if item["name"] == "pipeline.ideal_bubble_fraction"]
    assert ideal["value"] == pytest.approx(answers["ideal_bubble"])
    means = {item["scope"]["rank"]: item for item in found
             if item["name"] == "pipeline.bubble_fraction" and list(item["scope"]) == ["rank", "stage"]}  # fmt: skip
    assert sorted(means) == list(range(8)) and all(item["n"] == 19 for item in means.values())
    assert "warm-up, 2.3 times as long as the others" in rankscope(capsys, "pipeline", run)


def test_a_damaged_log_costs_only_its_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "logs"
    shutil.copytree(DATA / "pp8_1f1b", folder)
    (folder / "pp_rank_3.json").chmod(0o600)
    (folder / "pp_rank_3.json").write_text('{"1": {"total"')
    found = json.loads(rankscope(capsys, "import", "pipeline", str(folder), "-o", str(tmp_path / "run"), "--json"))
    assert found["missing"] == [3]
    assert [item["note"][:8] for item in found["files"] if not item["is_imported"]] == ["not JSON"]
