"""`rankscope synth` on the command line: what it prints, that other commands read what it wrote, bad usage."""

import json
from pathlib import Path

import pytest
from command_line import Command

SMALL = ("--ranks", "4", "--ranks-per-node", "2", "--steps", "30", "--collectives", "10", "--layout", "tp=2")


def test_a_run_that_every_command_reads(rankscope: Command, tmp_path: Path) -> None:
    run_dir = str(tmp_path / "run")
    ran = rankscope("synth", "-o", run_dir, *SMALL, "--straggler", "2:data:3ms:10", "--clock-offset-ms", "50")
    assert (ran.status, ran.err) == (0, "")
    assert "4 ranks on 2 nodes (dp 2, tp 2, pp 1), 30 steps" in ran.out
    assert "planted: rank 2 late by 3.00 ms of data from step 10 on" in ran.out
    assert rankscope("verify", run_dir).status == 0
    report = rankscope("report", run_dir)
    assert (report.status, report.err) == (0, "")
    assert "4 ranks · 2 nodes · 30 steps" in report.out and "100.00 % of the expected rows" in report.out


def test_json(rankscope: Command, tmp_path: Path) -> None:
    ran = rankscope("synth", "-o", str(tmp_path / "run"), *SMALL, "--json")
    found = json.loads(ran.out)
    assert found["num_nodes"] == 2 and found["num_rows"] > 4 * 30 * 10 and found["address"] == str(tmp_path / "run")
    truth = json.loads((tmp_path / "run" / "truth.json").read_text())
    assert truth["run_id"] == found["run_id"] and truth["plan"]["tp"] == 2


@pytest.mark.parametrize(
    "options",
    [
        ("--layout", "dp=3,tp=2"),
        ("--layout", "x=2"),
        ("--straggler", "2:ice:3ms"),
        ("--straggler", "2:data:soon"),
        ("--straggler", "9:data:3ms"),
        ("--slow-link", "5:2"),
        ("--slow-link", "much"),
        ("--bubble", "1:2"),
        ("--drift-ppm", "9999"),
        ("--step-ms", "nan"),
        ("--ranks", "0"),
        ("--layout", "pp=2", "--collectives", "5"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(rankscope: Command, tmp_path: Path, options: tuple[str, ...]) -> None:
    small = [] if options[0] == "--ranks" else ["--ranks", "4"]
    ran = rankscope("synth", "-o", str(tmp_path / "run"), *small, *options)
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith("rankscope: ") and not (tmp_path / "run").exists()


def test_a_folder_that_is_not_empty(rankscope: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    ran = rankscope("synth", "-o", str(tmp_path), *SMALL)
    assert (ran.status, ran.err.count("\n")) == (2, 1) and "not empty" in ran.err
