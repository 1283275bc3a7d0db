"""Real torchrun jobs with planted faults through the command line: the right rank and cause, and nobody falsely."""

import json
from pathlib import Path
from typing import Any

import pytest

from rankscope.analyzers.lateness import lateness
from rankscope.analyzers.run import Run
from rankscope.cli import main

pytestmark = [pytest.mark.system, pytest.mark.slow]

JOB = Path(__file__).parent / "jobs" / "faults.py"
FAULTS = (("data", 1), ("compute", 2), ("gc", 3), ("grid", 0), ("buckets", 2), ("even", None), ("lengths", None))
CAUSES = {"data": "data", "compute": "compute", "gc": "gc", "grid": "compute", "buckets": "compute"}


@pytest.mark.timeout(900)
def test_planted_faults_are_named_and_nobody_else(torchrun, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "runs"
    torchrun(JOB, 4, args=[str(folder), *(f"{fault}:{'' if rank is None else rank}" for fault, rank in FAULTS)]).check()
    for number, (fault, rank) in enumerate(FAULTS):
        monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(folder / f"{number}-local"))
        run = str(folder / str(number))
        found = _stragglers(run, capsys)
        named = [(item["ranks"], item["cause"]) for item in found["verdicts"] if item["ranks"]]
        assert found["reason"] == "" and len(found["verdicts"]) >= 1, fault
        assert named == ([] if rank is None else [([rank], CAUSES[fault])]), (fault, found["verdicts"])
        _check_sums(run)
        if fault == "grid" and rank is not None:
            _check_inheritance(found, rank)


def _stragglers(run: str, capsys: Any) -> dict[str, Any]:
    capsys.readouterr()
    assert main.run(["stragglers", run, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def _check_sums(run: str) -> None:
    """All waits fall on somebody, and no rank is charged more waiting than time went by."""
    with Run.open(run) as opened:
        found = lateness(opened)
        ((wall_ns,),) = opened.rows("SELECT max(end_ns) - min(start_ns) FROM step WHERE step > 0")
    assert found.num_matched == found.num_operations > 0
    assert found.wait_ns.sum() == found.blame_ns.sum()
    assert found.wait_ns.sum(axis=0).max() <= wall_ns
    assert (found.own_ns >= 0).all() and (found.inherited_ns >= 0).all()


def _check_inheritance(found: dict[str, Any], rank: int) -> None:
    """The tensor-parallel peer is late to its data group as much as the culprit, but that is inherited."""
    values = {(item["name"], item["scope"].get("rank")): item["value"] for item in found["measurements"]}
    peer = rank ^ 1
    own = values["straggler.lateness_own", rank]
    assert values["straggler.lateness_inherited", peer] > 0.5 * own > values["straggler.lateness_own", peer]
    assert values["straggler.lateness_inherited", rank] < 0.2 * own
    assert values["straggler.blame", rank] > 3 * values["straggler.blame", peer]
