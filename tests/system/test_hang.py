"""Who is missing: in real incidents of which dumps were kept, and in a job that hangs while the command looks at it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from command_line import document
from in_flight import IN_FLIGHT

DATA = Path(os.environ.get("RANKSCOPE_TEST_DATA", "")) / "flight_recorder"
needs_data = pytest.mark.skipif("RANKSCOPE_TEST_DATA" not in os.environ, reason="RANKSCOPE_TEST_DATA is not set")

TRAIN = """
import os, signal, subprocess, sys, time
import torch, torch.distributed as dist
import rankscope.auto

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(4):
    if step == 3 and rank == 1:
        others = str(dist.get_world_size() - 1)
        subprocess.run([sys.executable, "-c", IN_FLIGHT, os.environ["RANKSCOPE_DIR"], "3", others], check=True)
        time.sleep(1.2)  # more than the patience of 1 s
        code = "from rankscope.cli.main import main; main()"
        command = [sys.executable, "-c", code, "hang", os.environ["RANKSCOPE_DIR"], "--json"]
        for name, patience in (("hanging", "1"), ("patient", "600")):
            with open(os.environ["OUT"] + "/" + name, "w") as file:
                subprocess.run([*command, "--patience", patience], stdout=file, check=True, timeout=60)
    dist.all_reduce(torch.ones(8))
if os.environ.get("ENDS_BADLY"):
    # the launcher ends the others once it sees that one has died: those who are slow would be killed, not fail
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    dist.barrier()
    if rank == 2:
        os._exit(3)
    dist.all_reduce(torch.ones(8))
dist.destroy_process_group()
"""
DDP = """
import os, signal
import torch, torch.distributed as dist
import rankscope.auto

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
for step in range(4):
    if step == 3 and dist.get_rank() == 1:
        LEAVE
    model(torch.ones(2, 8)).sum().backward()
"""
JOB = f"IN_FLIGHT = {IN_FLIGHT!r}\n{TRAIN}"


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(tmp_path / "local"))


def incident(name: str, tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The answers beside the dumps, what the import said, what the command says."""
    run = str(tmp_path / "run")
    imported = document("import", "flight-recorder", str(DATA / name), "-o", run)
    answers: dict[str, Any] = json.loads((DATA / "expected.json").read_text())[name]
    return answers, imported, document("hang", run)


@needs_data
def test_ranks_whose_interpreter_was_locked_are_named(tmp_path: Path) -> None:
    answers, imported, found = incident("lock_gil_1st", tmp_path)
    events = {item["rank"]: item["num_events"] for item in imported["files"]}
    assert events == {int(rank): num for rank, num in answers["entries"].items()}
    assert {item["rank"] for item in imported["files"] if "empty record" in item["note"]} == {9, 14}
    (verdict,) = found["verdicts"]
    assert (verdict["kind"], verdict["ranks"]) == ("hang", answers["injected"])
    assert "waiting for them; no operation in the record of 9, 14" in verdict["text"]
    first = verdict["evidence"][0]
    assert not first["is_behind"] and set(first["missing"]) <= {9, 14}
    behind = [item for item in verdict["evidence"] if item["is_behind"]]
    assert {rank for item in behind for rank in item["waiting"]} == set(range(8))


@needs_data
def test_a_broken_device_is_named_as_far_as_the_evidence_goes(tmp_path: Path) -> None:
    answers, _, found = incident("gpu_error_1st", tmp_path)
    named, undecided = found["verdicts"]
    assert (named["kind"], named["ranks"]) == ("hang", answers["nvrx_reference_missing"])
    laggards = [item["missing"] for item in named["evidence"] if item["missing"]]
    assert laggards == [[12]] * answers["max_seq_laggards"]["12"]
    # rank 14 issued everything: its group is the one in which all came and nobody finished
    assert undecided["ranks"] == [] and "cannot be decided" in undecided["text"]
    assert [item["waiting"] for item in undecided["evidence"]] == [[14, 15]]
    assert undecided["confidence"] < named["confidence"]


@pytest.mark.system
@pytest.mark.slow
def test_a_job_that_hangs_and_then_goes_on(torchrun: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = torchrun(JOB, 3, env={"OUT": str(tmp_path), "ENDS_BADLY": "1"})
    hanging, patient = (json.loads((tmp_path / name).read_text()) for name in ("hanging", "patient"))
    (verdict,) = hanging["verdicts"]
    assert (verdict["kind"], verdict["ranks"]) == ("hang", [1])
    assert (verdict["evidence"][0]["waiting"], verdict["evidence"][0]["seq"]) == ([0, 2], 3)
    assert patient["verdicts"] == []
    # rank 2 died before the last operation, and gloo told the others
    assert job.returncode != 0
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(job.local_dir))
    (dead,) = document("hang", str(job.run_dir))["verdicts"]
    assert (dead["kind"], dead["ranks"]) == ("dead_rank", [2])


@pytest.mark.system
@pytest.mark.parametrize(
    ("leave", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "it died without a clean end"),
        ("raise ValueError('bad sample')", "it ended by an exception that nothing caught (ValueError)"),
    ],
)
def test_the_rank_that_died_is_missing_where_ddp_waits_in_cpp(
    torchrun: Any, monkeypatch: pytest.MonkeyPatch, leave: str, words: str
) -> None:
    job = torchrun(DDP.replace("LEAVE", leave), 2)
    assert job.returncode != 0
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(job.local_dir))
    found = document("hang", str(job.run_dir))
    (dead,) = found["verdicts"]  # gloo calls the operation complete that an error ended
    assert (dead["ranks"], dead["text"].endswith(words)) == ([1], True)
    if "SIGKILL" not in leave:  # torchrun may kill rank 0 as well: where all were killed, that says nothing
        assert dead["kind"] == "dead_rank"
    assert (dead["evidence"][0]["waiting"], dead["evidence"][0]["op"]) == ([0], "all_reduce")
