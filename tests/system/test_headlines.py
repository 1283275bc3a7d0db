"""The report's headlines over real runs: the culprit first, how sure, and a command that has more to say."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from rankscope.cli import main

DATA = Path(os.environ.get("RANKSCOPE_TEST_DATA", ""))
needs_data = pytest.mark.skipif("RANKSCOPE_TEST_DATA" not in os.environ, reason="RANKSCOPE_TEST_DATA is not set")
CRITICAL, WARNING = 2, 1
LATE = """
import time
import torch, torch.distributed as dist
import rankscope, rankscope.auto

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(40):
    with rankscope.span("data"):
        time.sleep(0.03 if rank == 1 else 0.002)
    dist.all_reduce(torch.ones(1000))
    rankscope.step()
dist.destroy_process_group()
"""


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(tmp_path / "local"))


def said(capsys: pytest.CaptureFixture[str], run: str) -> list[dict[str, Any]]:
    """The headlines, worst first."""
    assert main.run(["report", run, "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["headlines"]
    assert [item["level"] for item in found] == sorted((item["level"] for item in found), reverse=True)
    return found


def check_what_they_lead_to(capsys: pytest.CaptureFixture[str], run: str, found: list[dict[str, Any]]) -> None:
    """Each command that they name has an answer; the text has them in the same order."""
    for name in {item["command"] for item in found} - {""}:
        assert main.run([name, run]) == 0, name
        assert capsys.readouterr().out
    assert main.run(["report", run]) == 0
    text = " ".join(capsys.readouterr().out.split())
    places = [text.index(" ".join(item["text"].split())) for item in found]
    assert places == sorted(places)


def imported(capsys: pytest.CaptureFixture[str], folder: Path, form: str, path: str) -> list[dict[str, Any]]:
    run = str(folder / "run")
    assert main.run(["import", form, str(DATA / path), "-o", run]) == 0
    capsys.readouterr()
    return said(capsys, run)


@needs_data
def test_one_slow_worker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = imported(capsys, tmp_path, "what-if", "straggler_whatif/trace-AR.parquet")
    first = next(item for item in found if item["level"] == WARNING)
    assert first["text"].startswith("Straggler: one worker: dp 0, stage 0 (rank 0).")
    assert first["command"] == "stragglers" and first["confidence"] > 0.9
    assert [item for item in found if item["command"] == "pipeline" and "stands still" in item["text"]]


@needs_data
def test_a_hang_comes_first_with_the_operation_that_is_blocked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, *_ = imported(capsys, tmp_path, "flight-recorder", "flight_recorder/gpu_error_1st")
    assert (first["level"], first["command"], first["confidence"]) == (CRITICAL, "hang", 0.9)
    assert re.match(r"Hang: rank 12 missing: .* First blocked: \w+ number \d+ in .*\.$", first["text"])
    assert "cannot be decided" in second["text"] and second["confidence"] == 0.5


@needs_data
def test_a_pipeline_says_what_its_bubbles_are_due_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = imported(capsys, tmp_path, "pipeline", "pipeline/pp8_1f1b")
    check_what_they_lead_to(capsys, str(tmp_path / "run"), found)
    first = found[0]
    assert first["command"] == "pipeline" and "its schedule costs 30.4 %" in first["text"]


@needs_data
def test_devices_that_mostly_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = imported(capsys, tmp_path, "kineto", "kineto/dlrm_v100_8ranks")
    (whole,) = [item for item in found if item["text"].startswith("Devices compute")]
    assert whole["command"] == "time" and "most on rank 1: 59.0 %" in whole["text"]
    assert [item for item in found if item["command"] == "collectives" and "waiting for the last rank" in item["text"]]


@pytest.mark.system
def test_a_live_job_with_one_late_rank(torchrun: Any, capsys: pytest.CaptureFixture[str]) -> None:
    job = torchrun(LATE, 2, env={"RANKSCOPE_AGENT": "now"}).check()
    job.settle()
    found = said(capsys, str(job.run_dir))
    check_what_they_lead_to(capsys, str(job.run_dir), found)
    (named,) = [item for item in found if item["command"] == "stragglers" and item["confidence"] is not None]
    assert re.match(r"Straggler: rank 1 makes .*cause: data", named["text"]), named
    assert found.index(named) == min(at for at, item in enumerate(found) if item["level"] == named["level"])
