"""`rankscope seal` and `rankscope verify` on a run whose agent died before it sealed."""

import json
from pathlib import Path

from command_line import Command
from run_builder import RunBuilder, healthy_run


def unsealed(root: Path) -> Path:
    build = RunBuilder(root)
    for rank in (0, 1):
        build.collective(rank, 0, 1, None, None, record=0)
        build.step(rank, 0, 0, 10)
    build.stream()
    for rank in (0, 1):
        build.collective(rank, 0, 1, (1, 5), 5, record=0)
    build.entities()
    return build.stream()


def test_seal_then_verify_then_damage(rankscope: Command, tmp_path: Path) -> None:
    run_dir = unsealed(tmp_path / "run")
    before = json.loads(rankscope("query", str(run_dir), "SELECT * FROM collective ORDER BY rank", "--json").out)
    done = json.loads(rankscope("seal", str(run_dir), "--json").out)
    assert done["run_id"] == "run-1" and done["num_rows"] > 0 and done["left_alone"] == []
    assert not list(run_dir.rglob("*.arrows"))
    assert (
        json.loads(rankscope("query", str(run_dir), "SELECT * FROM collective ORDER BY rank", "--json").out) == before
    )
    again = json.loads(rankscope("seal", str(run_dir), "--json").out)
    assert again["num_rows"] == 0
    checked = rankscope("verify", str(run_dir))
    assert checked.status == 0 and checked.err == "" and checked.out.startswith("run-1: ")
    path = next((run_dir / "step").rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-10])
    damaged = rankscope("verify", str(run_dir), "--json")
    assert damaged.status == 2 and damaged.err.count("\n") == 1
    problems = json.loads(damaged.out)["problems"]
    assert [(problem["file"], problem["kind"]) for problem in problems] == [(str(path.relative_to(run_dir)), "changed")]
    assert rankscope("verify", str(run_dir), "--fail-on-findings").status == 1


def test_files_that_no_index_knows_are_named(rankscope: Command, tmp_path: Path) -> None:
    ran = rankscope("verify", str(healthy_run(tmp_path / "run")))
    assert ran.status == 2 and "not in the index" in ran.out


def test_seal_says_what_it_did(rankscope: Command, tmp_path: Path) -> None:
    ran = rankscope("seal", str(unsealed(tmp_path / "run")))
    assert ran.status == 0 and "rows newly sealed" in ran.out and "on 1 nodes" in ran.out
