"""Small print of the report: whole operation names, and on how many operations a wait stands."""

from pathlib import Path

import pytest
from command_line import Command
from run_builder import RunBuilder


def test_names_are_whole_and_few_waits_are_said(
    rankscope: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    build = RunBuilder(tmp_path / "run")
    for rank in (0, 1):
        for seq in range(6):
            waited = (10 * seq, 10 * seq + 2) if seq == 0 else None
            build.collective(rank, seq, 10 * seq, waited, 10 * seq + 2, op="all_gather_into_tensor")
        build.step(rank, 1, 0, 60)
    build.entities()
    build.seal()
    text = rankscope("report", str(tmp_path / "run")).out
    assert "all_gather_into_tensor " in text
    assert "world all_gather_into_tensor: host wait of n = 2 only." in text
    assert "left out: step 0 as warm-up" in text
