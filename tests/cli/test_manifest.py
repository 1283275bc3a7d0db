"""`rankscope manifest`: the document, its form on a terminal, and runs that told little."""

import json
from pathlib import Path

from command_line import Command
from run_builder import RunBuilder, healthy_run


def _told_run(root: Path) -> Path:
    build = RunBuilder(root)
    build.step(0, 0, 0, 1)
    build.entities()
    made_with = {
        "python": "3.11",
        "code": {"commit": "abc", "is_dirty": False},
        "command": ["python", "[bold]train.py"],
    }
    build.rows["run", None][0] |= {"manifest": made_with, "scheduler": {"SLURM_JOB_ID": "7"}, "precision": "bf16"}
    for seed in (2, 1, 2):
        build.add("artifact", kind="seed", name="torch", version=str(seed), source="torch.manual_seed, rank 0")
    build.add("artifact", kind="dataset", name="s3://bucket/c4", digest="ab" * 32)
    return build.seal()


def test_the_document(rankscope: Command, tmp_path: Path) -> None:
    ran = rankscope("manifest", str(_told_run(tmp_path / "run")), "--json")
    document = json.loads(ran.out)
    assert ran.status == 0 and list(document) == [
        "run", "scheduler", "manifest", "artifacts", "nodes", "devices", "groups"
    ]  # fmt: skip
    assert document["run"]["run_id"] == "run-1" and document["run"]["precision"] == "bf16"
    assert document["scheduler"] == {"SLURM_JOB_ID": "7"} and document["manifest"]["code"]["commit"] == "abc"
    assert [(row["kind"], row["name"], row["version"]) for row in document["artifacts"]] == [
        ("dataset", "s3://bucket/c4", None), ("seed", "torch", "1"), ("seed", "torch", "2")
    ]  # fmt: skip
    assert document["nodes"][0]["num_processes"] == 2 and document["devices"] == []
    assert document["groups"] == [{"mesh_dimension": "world", "backend": "gloo", "size": 2, "num_groups": 1}]


def test_on_a_terminal(rankscope: Command, tmp_path: Path) -> None:
    ran = rankscope("manifest", str(_told_run(tmp_path / "run")))
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    for line in (
        "run_id run-1", "commit abc", "command python [bold]train.py", "SLURM_JOB_ID 7",
        "seed torch 1 (torch.manual_seed, rank 0)", f"dataset s3://bucket/c4 digest {'ab' * 8}",
        "host-a 2 processes, CPUs –, –, –", "world 1 group of 2 ranks, gloo",
    ):  # fmt: skip
        assert line in lines, line
    assert "null" not in ran.out and "None" not in ran.out


def test_a_run_that_told_nothing(rankscope: Command, tmp_path: Path) -> None:
    document = json.loads(rankscope("manifest", str(healthy_run(tmp_path / "run")), "--json").out)
    assert document["manifest"] == {} and document["artifacts"] == [] and document["run"]["owner"] is None


def test_a_manifest_that_cannot_be_parsed_is_shown_as_it_is(rankscope: Command, tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.step(0, 0, 0, 1)
    build.entities()
    build.rows["run", None][0]["manifest"] = "{torn"
    document = json.loads(rankscope("manifest", str(build.seal()), "--json").out)
    assert document["manifest"] == {"unreadable": "{torn"}


def test_bad_input_is_one_line(rankscope: Command, tmp_path: Path) -> None:
    ran = rankscope("manifest", str(tmp_path / "nothing"))
    assert ran.status == 2 and len(ran.err.splitlines()) == 1
