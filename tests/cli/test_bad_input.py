"""Bad input to each command that reads a run: one line on standard error, status 2, no traceback, nothing written."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from command_line import Command, Ran
from run_builder import healthy_run

COMMANDS = {
    "report": ["report", "{run}"],
    "report --json": ["report", "{run}", "--json"],
    "report --save": ["report", "{run}", "--save"],
    "explain": ["explain", "step.count", "{run}"],
    "query": ["query", "{run}", "SELECT 1"],
    "seal": ["seal", "{run}"],
    "verify": ["verify", "{run}"],
    "stragglers": ["stragglers", "{run}"],
    "export": ["export", "otlp", "{run}"],
    "clocks": ["clocks", "{run}"],
    "collectives": ["collectives", "{run}"],
    "efficiency": ["efficiency", "{run}"],
    "scale": ["scale", "{run}", "{run}"],
    "compare": ["compare", "{run}", "{run}"],
    "diff": ["diff", "{run}", "{run}"],
    "check": ["check", "{run}", "--policy", str(Path(__file__).parents[2] / "examples/policies/release.toml")],
}
AS_NOBODY = """
import contextlib, io, json, os, sys
from rankscope.cli.main import run

def capture(arguments):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        status = run(arguments)
    return status, out.getvalue(), err.getvalue()

good, lines = sys.argv[1], json.loads(sys.argv[2])
for command in ("report", "verify", "seal", "runs"):  # loads everything while the libraries can be read
    capture([command, good])
capture(["query", good, "SELECT 1"])
capture(["explain", "step.count", good])
capture(["clocks", good])
capture(["report", "missing"])
capture(["export", "otlp", "missing"])
for line in lines:
    if line[0] in ("check", "efficiency"):
        capture([line[0], good, *line[2:]])
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
print(json.dumps([capture(line) for line in lines]))
"""


def run_as_nobody(folder: Path, lines: list[list[str]]) -> list[Ran]:
    """Command lines of a user who is not root, whatever this one is."""
    environment = {**os.environ, "RANKSCOPE_LOCAL_DIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", AS_NOBODY, str(healthy_run(folder / "good")), json.dumps(lines)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return [Ran(*answer) for answer in json.loads(done.stdout)]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter: pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for path in folder.rglob("*"):
        path.chmod(0o700)
    shutil.rmtree(folder)


def spoil(run_dir: Path, kind: str) -> None:
    if kind == "missing":
        shutil.rmtree(run_dir)
    elif kind in ("empty", "foreign", "no rows"):
        shutil.rmtree(run_dir)
        run_dir.mkdir()
    if kind == "foreign":
        (run_dir / "data.csv").write_text("1,2")
    if kind == "no rows":
        (run_dir / "run.json").write_text(json.dumps({"run_id": "r", "ontology_version": "1.0.0"}))
    if kind == "file":
        shutil.rmtree(run_dir)
        run_dir.write_text("x")
    if kind == "truncated":
        for path in run_dir.rglob("*.parquet"):
            path.write_bytes(path.read_bytes()[:40])
    if kind == "newer ontology":
        path = next((run_dir / "step").rglob("*.parquet"))
        data = pq.ParquetFile(path).read()
        pq.write_table(data.replace_schema_metadata({**data.schema.metadata, b"rankscope.ontology": b"2.0.0"}), path)


@pytest.mark.parametrize("kind", ["missing", "empty", "foreign", "file", "truncated", "newer ontology"])
@pytest.mark.parametrize("command", COMMANDS)
def test_one_line_and_status_2(rankscope: Command, tmp_path: Path, command: str, kind: str) -> None:
    run_dir = healthy_run(tmp_path / "run")
    spoil(run_dir, kind)
    before = sorted(tmp_path.rglob("*"))
    ran = rankscope(*(part.format(run=run_dir) for part in COMMANDS[command]))
    is_list = command == "verify" and kind == "truncated"  # it names every damaged file before its one line
    assert ran.status == 2, ran
    assert (ran.out == "") != is_list
    assert (
        ran.err.startswith("rankscope: ") and ran.err.count("\n") == 1 and str(tmp_path) in ran.err
    ) or "2.0.0" in ran.err
    assert sorted(path for path in tmp_path.rglob("*") if "local" not in path.parts) == [
        path for path in before if "local" not in path.parts
    ]


@pytest.mark.parametrize("command", ["report", "query", "export"])
def test_a_run_without_rows(rankscope: Command, tmp_path: Path, command: str) -> None:
    run_dir = healthy_run(tmp_path / "run")
    spoil(run_dir, "no rows")
    ran = rankscope(*(part.format(run=run_dir) for part in COMMANDS[command]))
    assert (ran.status, ran.out, ran.err) == (2, "", f"rankscope: {run_dir}: the run has no rows\n")


@pytest.mark.parametrize("engine", ["spark", "pool:4", ""])
def test_what_is_no_engine(rankscope: Command, tmp_path: Path, engine: str) -> None:
    run_dir = healthy_run(tmp_path / "run")
    line = f"rankscope: no engine {engine!r}: auto, local, pool, ray or ray:ADDRESS\n"
    assert rankscope("report", str(run_dir), f"--engine={engine}") == (2, "", line)


def test_no_permission(open_folder: Path) -> None:
    run_dir = healthy_run(open_folder / "run")
    run_dir.chmod(0o000)
    lines = [[part.format(run=run_dir) for part in arguments] for arguments in (*COMMANDS.values(), ["runs", "{run}"])]
    for ran in run_as_nobody(open_folder, lines):
        assert (ran.status, ran.out) == (2, "")
        assert ran.err.startswith("rankscope: ") and ran.err.count("\n") == 1 and "ermission" in ran.err


def test_one_file_without_permission_is_named_and_the_rest_is_read(open_folder: Path) -> None:
    run_dir = healthy_run(open_folder / "run")
    path = next((run_dir / "span").rglob("*.parquet"))
    for item in (run_dir, *run_dir.rglob("*")):
        item.chmod(0o755)
    path.chmod(0o000)
    (ran,) = run_as_nobody(open_folder, [["report", str(run_dir)]])
    assert ran.status == 0
    fault = f"span/incarnation=0/node=host-a-11111111/{path.name}: no permission to read it"
    assert fault in " ".join(ran.out.split()).replace("/ ", "/")
    assert "66.67 %" in ran.out
