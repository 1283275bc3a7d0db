"""Commands run in this process, with their output and status; every test has its own leftovers and current folder."""

from pathlib import Path

import pytest
from command_line import Command, Ran

from rankscope.cli import main


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(tmp_path / "local"))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def rankscope(capsys: pytest.CaptureFixture[str]) -> Command:
    def command(*arguments: str) -> Ran:
        status = main.run(list(arguments))
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return command
