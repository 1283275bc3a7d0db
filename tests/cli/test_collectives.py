"""`rankscope collectives` on a terminal and as JSON, and what it says to bad usage."""

import json
from pathlib import Path

import pytest
from command_line import Command
from run_builder import MS, RunBuilder, healthy_run
from syrupy.assertion import SnapshotAssertion

from rankscope.analyzers import sampled


def test_drawn(rankscope: Command, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    ran = rankscope("collectives", str(healthy_run(tmp_path / "run")), "--operations", "1")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out == snapshot


def test_not_matched_is_said(rankscope: Command, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    build = RunBuilder(tmp_path / "run")
    build.collective(0, 0, 0, (0, 10), 10)
    build.entities()
    build.seal()
    assert rankscope("collectives", str(tmp_path / "run")).out == snapshot


def test_a_sample_and_missing_rows_are_said(
    rankscope: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampled, "MAX_ROWS", 4)
    build = RunBuilder(tmp_path / "run", world_size=3)
    for rank in (0, 1):
        for seq in range(6):
            build.collective(rank, seq, 10 * seq, None, 10 * seq + 2)
    build.entities(ranks=[0, 1])
    build.seal()
    text = rankscope("collectives", str(tmp_path / "run")).out
    assert "only 66.67 % of the rows are there" in text
    assert "a sample was matched: blocks of 64 sequence numbers, one in 3" in text


def test_nothing_recorded(rankscope: Command, tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.step(0, 0, 0, 10)
    build.entities()
    build.seal()
    ran = rankscope("collectives", str(tmp_path / "run"))
    assert ran.status == 0 and "no collective was recorded" in ran.out


def test_json(rankscope: Command, tmp_path: Path) -> None:
    ran = rankscope("collectives", str(healthy_run(tmp_path / "run")), "--json", "--operations", "2")
    found = json.loads(ran.out)
    assert set(found) == {"run", "measurements", "verdicts", "unmatched", "operations"}
    assert [item["wait_ns"] for item in found["operations"]] == [20 * MS] * 2
    by_name = {(item["name"], item["scope"].get("statistic")): item for item in found["measurements"]}
    assert by_name["collective.transfer", "max"]["value"] == 10 * MS
    assert by_name["collective.busbw", "mean"]["value"] == 100_000
    assert by_name["network.amplification", None]["value"] is None and by_name["network.amplification", None]["reason"]
    assert all(item["value"] is not None or item["reason"] for item in found["measurements"])


@pytest.mark.parametrize("number", ["0", "-1", "many", "1.5"])
def test_a_wrong_number_is_one_line(rankscope: Command, tmp_path: Path, number: str) -> None:
    ran = rankscope("collectives", str(tmp_path), f"--operations={number}")
    assert ran.status == 2 and ran.err.count("\n") == 1 and "--operations" in ran.err
