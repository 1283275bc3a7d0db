"""Every number that any command prints can be explained and comes out again, to the bit, on one thread and on two."""

import json
import os
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from rankscope.analyzers.explain import Explained, Explainer
from rankscope.analyzers.run import Run
from rankscope.cli import main
from rankscope.schema.catalogue import CATALOGUE

DATA = Path(os.environ.get("RANKSCOPE_TEST_DATA", ""))
needs_data = pytest.mark.skipif("RANKSCOPE_TEST_DATA" not in os.environ, reason="RANKSCOPE_TEST_DATA is not set")
COMMANDS = ("report", "time", "collectives", "pipeline", "stragglers", "hang", "checkpoints", "clocks", "efficiency")
"""Each prints the form of the definitions."""
IMPORTS = {
    "kineto": "kineto/dlrm_v100_8ranks",
    "what-if": "straggler_whatif/trace-ST.parquet",
    "pipeline": "pipeline/pp8_1f1b",
    "flight-recorder": "flight_recorder/gpu_error_1st",
}
LIVE = """
import gc, os, time
import torch, torch.distributed as dist
import rankscope, rankscope.auto
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step, (batch,) in enumerate(DataLoader(TensorDataset(torch.randn(96, 64)), batch_size=4)):
    time.sleep(0.005 * rank)
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(torch.ones(1000))
    rankscope.log(loss=loss.item())
    if step % 8 == 7:
        torch.save(model.state_dict(), f"{os.environ['RANKSCOPE_DIR']}.{rank}.pt")
        gc.collect()
dist.destroy_process_group()
"""


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(tmp_path / "local"))


def printed(capsys: pytest.CaptureFixture[str], run: str) -> list[dict[str, Any]]:
    """Every measurement of every command that has something to say of the run."""
    found: list[dict[str, Any]] = []
    for command in COMMANDS:
        status = main.run([command, run, "--json"])
        captured = capsys.readouterr()
        assert status == 0 or (status == 2 and captured.err.count("\n") == 1), captured.err
        found += json.loads(captured.out)["measurements"] if status == 0 else []
    assert len(found) > 20
    return found


def key(name: str, scope: dict[str, Any]) -> str:
    return f"{name} {json.dumps(scope)}"


def check(capsys: pytest.CaptureFixture[str], run: str) -> list[Explained]:
    """What was printed is what is explained; all of it comes out again, and every statement runs."""
    numbers = printed(capsys, run)
    told: dict[str, list[Explained]] = {}
    with Run.open(run, threads=2) as opened, Explainer(opened, threads=1) as explainer:
        for name in {item["name"] for item in numbers}:
            for item in explainer.explain(name, {}):
                told.setdefault(key(name, item.measurement.scope), []).append(item)
    for number in numbers:
        explained = told[key(number["name"], number["scope"])]
        documents = [json.loads(json.dumps(item.measurement.as_json())) for item in explained]
        same = [document["value"] == number["value"] and document["n"] == number["n"]
                and document["interval"] == number["interval"] for document in documents]  # fmt: skip
        assert any(same), (number, documents)
    every = [item for items in told.values() for item in items]
    assert [key(item.measurement.name, item.measurement.scope) for item in every if not item.is_equal] == []
    assert {item.statement.problem for item in every} == {""}
    assert all(resolve_name(item.statement.module).__doc__ for item in every if item.statement.module)
    assert all(item.is_same_dataset and item.formula for item in every)
    for item in every:
        provenance = item.measurement.provenance
        assert provenance.definition == CATALOGUE[item.measurement.name].definition
        assert provenance.dataset_digest == opened.digest and provenance.tables and provenance.statement
        assert provenance.rankscope_version and provenance.ontology_version and provenance.duckdb_version
        assert item.measurement.value is not None or item.measurement.reason
    return every


@needs_data
@pytest.mark.parametrize("form", IMPORTS)
def test_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    run = str(tmp_path / "run")
    assert main.run(["import", form, str(DATA / IMPORTS[form]), "-o", run]) == 0
    capsys.readouterr()
    every = check(capsys, run)
    assert any(item.statement.column for item in every)


def test_simulated_over_four_hosts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Clocks that differ, tensor x data parallel groups, a late rank: what needs aligned clocks comes out again too."""
    run = str(tmp_path / "run")
    shape = ["--ranks", "8", "--ranks-per-node", "2", "--steps", "40", "--collectives", "8", "--layout", "tp=2"]
    planted = ["--straggler", "5:data:3ms", "--clock-offset-ms", "50", "--drift-ppm", "20"]
    assert main.run(["synth", "-o", run, *shape, *planted]) == 0
    capsys.readouterr()
    every = check(capsys, run)
    names = {item.measurement.name for item in every if item.measurement.value is not None}
    assert {"clock.offset", "clock.error", "straggler.lateness_own", "collective.busbw", "straggler.blame"} <= names
    assert any(item.measurement.provenance.clock_error_ns for item in every)


@pytest.mark.system
def test_live(torchrun: Any, capsys: pytest.CaptureFixture[str]) -> None:
    job = torchrun(LIVE, 2, env={"RANKSCOPE_AGENT": "now"}).check()
    job.settle()
    every = check(capsys, str(job.run_dir))
    names = {item.measurement.name for item in every if item.measurement.value is not None}
    expected = {
        "step.duration",
        "collective.wait",
        "time.compute",
        "checkpoint.blocking",
        "data.stall_fraction",
        "memory.rss",
    }
    assert expected <= names
