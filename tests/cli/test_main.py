"""The command line itself: help, versions, statuses, and what it loads."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from command_line import Command
from run_builder import healthy_run

from rankscope.cli.main import COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(rankscope: Command, name: str) -> None:
    ran = rankscope(name, "--help")
    assert ran.status == 0 and ran.err == ""
    assert f"rankscope {name}" in " ".join(ran.out.split()).split("Example:")[1]
    assert "--json" in ran.out or name == "run"  # what it prints is the job's own


def test_help_lists_every_command(rankscope: Command) -> None:
    ran = rankscope("--help")
    assert ran.status == 0
    for name in COMMANDS:
        assert f"\n  {name} " in ran.out
    nothing = rankscope()
    assert nothing.status == 2 and nothing.out == ran.out


def test_version(rankscope: Command) -> None:
    assert rankscope("--version") == (0, version("rankscope") + "\n", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["report"],
        ["report", "a", "b"],
        ["report", "--nonsense", "x"],
        ["query", "x"],
        ["--nonsense"],
        ["runs", "a", "b"],
        ["query", "x", "SELECT 1", "--json", "--csv"],
        ["schema", "--json", "--markdown"],
        ["schema", "nonsense"],
        ["seal"],
        ["verify"],
    ],
)
def test_wrong_usage_is_one_line_and_status_2(rankscope: Command, arguments: list[str]) -> None:
    ran = rankscope(*arguments)
    assert ran.status == 2 and ran.out == ""
    assert ran.err.startswith("rankscope: ") and ran.err.count("\n") == 1


def test_help_and_usage_errors_load_nothing_heavy() -> None:
    program = (
        "import sys; from rankscope.cli.main import run; run(['--help']); run(['report']);"
        "sys.exit(', '.join({'duckdb', 'pyarrow', 'rich', 'numpy', 'torch'} & set(sys.modules)) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr.splitlines()[1:]) == (0, [])


def test_a_reader_that_leaves_early_is_no_error() -> None:
    program = "from rankscope.cli.main import main; main(['schema', '--markdown'])"
    first = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert first.stdout is not None and first.stderr is not None
    first.stdout.close()
    error = first.stderr.read()
    first.stderr.close()
    assert first.wait(60) == 0 and error == b""


GATE = """
[[rule]]
name = "{name}"
owner = "team"
measure = "step.count"
max = 1
"""


@pytest.mark.parametrize("num_rules", [1, 400])
def test_a_gate_stays_shut_though_nobody_reads_on(tmp_path: Path, num_rules: int) -> None:
    """One rule fits into the buffer and fails when it is flushed; 400 fail inside the command."""
    policy = tmp_path / "policy.toml"
    policy.write_text("".join(GATE.format(name=f"rule {number}") for number in range(num_rules)))
    command = ["check", str(healthy_run(tmp_path / "run")), "--policy", str(policy)]
    program = f"from rankscope.cli.main import main; main({command!r})"
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    gate = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=buffered
    )
    assert gate.stdout is not None and gate.stderr is not None
    gate.stdout.close()
    error = gate.stderr.read()
    gate.stderr.close()
    assert (gate.wait(60), error) == (1 if num_rules == 1 else 141, b"")


def test_a_file_that_goes_away_is_no_failed_output(
    rankscope: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: object) -> None:
        pq.read_table(str(tmp_path / "sealed-away.parquet"))

    monkeypatch.setattr("rankscope.analyzers.report.report", gone)
    ran = rankscope("report", str(healthy_run(tmp_path / "run")))
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert "sealed-away.parquet" in ran.err and "cannot be written" not in ran.err


@pytest.mark.parametrize("command", [["schema", "--markdown"], ["schema", "run"], ["--help"]])
def test_a_full_disk_is_one_line(command: list[str]) -> None:
    program = f"from rankscope.cli.main import main; main({command!r})"
    with open("/dev/full", "w") as full:
        ran = subprocess.run([sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, text=True,
                             timeout=60, check=False)  # fmt: skip
    assert (ran.returncode, ran.stderr) == (2, "rankscope: the output cannot be written: No space left on device\n")
