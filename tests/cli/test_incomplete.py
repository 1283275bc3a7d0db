"""What commands say of runs of which files cannot be read: never numbers without a word."""

from pathlib import Path

import pytest
from command_line import Command
from run_builder import MS, RunBuilder


def a_run(root: Path, ranks: int = 2, damaged: str = "") -> str:
    """Steps of two agents' files; one file of table `damaged` is cut off."""
    build = RunBuilder(root, root.name, ranks)
    for rank in range(ranks):
        for step in range(20):
            build.fact("step", rank, step=step, start_ns=step * 100 * MS, end_ns=(step + 1) * 100 * MS,
                       boundary="explicit", samples=4)  # fmt: skip
            build.fact("span", rank, step=step, kind="forward", start_ns=step * 100 * MS, end_ns=step * 100 * MS + MS)
    build.entities()
    build.seal()
    for path in (root / damaged).rglob("*.parquet") if damaged else ():
        path.write_bytes(path.read_bytes()[:50])
    return str(root)


_OF_ONE = ("efficiency", "time", "hang", "clocks", "collectives", "checkpoints")
_UNUSED = "1 of its files cannot be used: rankscope verify names them"


@pytest.mark.parametrize("command", ["compare", "scale", *_OF_ONE])
def test_rows_that_are_missing_are_said(rankscope: Command, tmp_path: Path, command: str) -> None:
    whole, damaged = a_run(tmp_path / "whole", 1), a_run(tmp_path / "hurt", damaged="span")
    ran = rankscope(command, *([damaged] if command in _OF_ONE else [whole, damaged]))
    assert ran.status == 0
    out = " ".join(ran.out.split())
    assert f"there; {_UNUSED}" in out
    fine = rankscope(command, *([whole] if command in _OF_ONE else [whole, a_run(tmp_path / "fine")]))
    assert "cannot be used" not in fine.out and " rows are there" not in fine.out


def test_a_file_that_nobody_asked_for_is_said_all_the_same(rankscope: Command, tmp_path: Path) -> None:
    damaged = a_run(tmp_path / "hurt", damaged="node")  # it holds no rows that are expected
    assert f"\n{_UNUSED}\n" in rankscope("time", damaged).out


@pytest.mark.parametrize("command", ["efficiency", "compare", "scale"])
def test_steps_that_cannot_be_read_are_not_called_too_few(rankscope: Command, tmp_path: Path, command: str) -> None:
    whole, damaged = a_run(tmp_path / "whole", 1), a_run(tmp_path / "hurt", damaged="step")
    ran = rankscope(command, *([damaged] if command == "efficiency" else [whole, damaged]))
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "1 of its files cannot be used: rankscope verify names them" in ran.err
