"""`rankscope prune`: old runs go, running ones and what is no run stay."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import fake_rank
import pytest
from command_line import Command
from run_builder import RunBuilder, healthy_run

from rankscope.schema.paths import local_base

DAY = 86_400


def aged(folder: Path, days: float, run_id: str = "") -> Path:
    """A sealed run that was last written so many days ago."""
    if run_id:
        build = RunBuilder(folder, run_id=run_id)
        build.step(0, 0, 0, 1)
        build.entities()
        build.seal()
    else:
        healthy_run(folder)
    moment = time.time() - days * DAY
    for path in folder.rglob("*"):
        os.utime(path, (moment, moment))
    return folder


def test_older_than(rankscope: Command, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    old, new = aged(runs / "old", 40, "old"), aged(runs / "new", 2, "new")
    tried = rankscope("prune", str(runs), "--older-than", "30d", "--dry-run")
    assert tried.status == 0 and tried.out.splitlines()[0].startswith("would delete old, last written ")
    assert old.is_dir()
    done = rankscope("prune", str(runs), "--older-than", "30d")
    assert done.out.splitlines()[0].startswith("deleted old, ") and done.out.splitlines()[-1].startswith(
        "deleted 1 of 2"
    )
    assert not old.exists() and new.is_dir()
    assert rankscope("report", str(new)).status == 0


def test_the_oldest_go_until_the_others_fit(rankscope: Command, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for days, name in ((3, "a"), (1, "b"), (2, "c")):
        aged(runs / name, days, name)
    num_bytes = sum(path.stat().st_size for path in (runs / "b").rglob("*") if path.is_file())
    done = json.loads(rankscope("prune", str(runs), "--max-bytes", str(num_bytes), "--json").out)
    assert [run["run_id"] for run in done["deleted"]] == ["a", "c"] and done["is_dry_run"] is False
    assert done["freed_bytes"] == sum(run["num_bytes"] for run in done["deleted"]) > 0
    assert [path.name for path in runs.iterdir()] == ["b"]


def test_nothing_left_is_no_error(rankscope: Command, tmp_path: Path) -> None:
    aged(tmp_path / "runs" / "old", 40, "old")
    for left in ("1 of 1", "0 of 0"):  # as from cron, twice
        done = rankscope("prune", str(tmp_path / "runs"), "--older-than", "30d")
        assert (done.status, done.err) == (0, "") and done.out.splitlines()[-1].startswith(f"deleted {left} runs")
    assert rankscope("prune", str(tmp_path / "nothing"), "--older-than", "30d").status == 2


def test_a_run_called_live_is_a_run_and_its_folder_none(rankscope: Command, tmp_path: Path) -> None:
    aged(tmp_path / "runs" / "live", 40, "live")
    done = rankscope("prune", str(tmp_path / "runs"), "--older-than", "30d")
    assert done.out.splitlines()[-1].startswith("deleted 1 of 1") and (tmp_path / "runs").is_dir()


def test_what_is_not_ours_stays(rankscope: Command, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    mixed = aged(runs / "mixed", 40, "mixed")
    (mixed / "checkpoint.pt").write_bytes(b"weights")
    (runs / "foreign" / "run").mkdir(parents=True)
    (runs / "foreign" / "run" / "data.parquet").write_bytes(b"x")
    (runs / "link").symlink_to(aged(tmp_path / "elsewhere", 40, "elsewhere"))
    done = json.loads(rankscope("prune", str(runs), "--older-than", "1d", "--json").out)
    assert [run["run_id"] for run in done["deleted"]] == ["mixed"]
    assert {Path(item["path"]).name for item in done["left_alone"]} == {"mixed", "foreign", "link"}
    assert [path.name for path in mixed.iterdir()] == ["checkpoint.pt"]
    assert (runs / "foreign" / "run" / "data.parquet").exists() and (tmp_path / "elsewhere" / "run.json").exists()


def test_a_run_that_another_host_writes_is_left_alone(rankscope: Command, tmp_path: Path) -> None:
    run = aged(tmp_path / "runs" / "busy", 40, "busy")
    beat = run / "live" / "node=other-12345678" / "a1.beat"
    beat.parent.mkdir(parents=True)
    beat.write_text(json.dumps({"boot_id": "another", "lock": "/nowhere"}))
    os.utime(beat, (time.time() - 30, time.time() - 30))
    arguments = ("prune", str(run.parent), "--older-than", "10s", "--json")
    done = json.loads(rankscope(*arguments).out)
    assert done["deleted"] == [] and "an agent on other-12345678" in done["left_alone"][0]["why"]
    os.utime(beat, (time.time() - 3600, time.time() - 3600))
    assert [found["run_id"] for found in json.loads(rankscope(*arguments).out)["deleted"]] == ["busy"]


@pytest.mark.parametrize(
    "arguments", [[], ["--older-than", "soon"], ["--max-bytes", "lots"], ["--older-than", "30d", "nowhere"]]
)
def test_wrong_usage_is_one_line(rankscope: Command, arguments: list[str]) -> None:
    ran = rankscope("prune", *arguments)
    assert ran.status == 2 and ran.out == "" and ran.err.count("\n") == 1


def test_a_run_with_a_living_process_is_left_alone(rankscope: Command, tmp_path: Path) -> None:
    """Its directory looks old and sealed; the process has yet to write to it. Once dead, its local files go too."""
    run = aged(tmp_path / "runs" / "living", 40, "run-1")
    folder, witness = local_base() / "launch", tmp_path / "witness"
    settings = {"folder": str(folder), "run_dir": str(run), "rank": 0, "boot_id": fake_rank.BOOT_ID, "rate": 1,
                "seconds": 600, "witness": str(witness)}  # fmt: skip
    process = subprocess.Popen([sys.executable, fake_rank.__file__, json.dumps(settings)])
    try:
        deadline = time.monotonic() + 60
        while not witness.exists() or not witness.read_bytes():
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.02)
        done = json.loads(rankscope("prune", str(run.parent), "--older-than", "1d", "--json").out)
        assert done["deleted"] == [] and done["left_alone"][0]["why"] == "it is running on this machine"
    finally:
        process.kill()
        process.wait()
    assert list(folder.glob("*.journal"))
    assert rankscope("prune", str(run.parent), "--older-than", "1d").out.startswith("deleted run-1, ")
    assert not run.exists() and not [*folder.glob("*.journal"), *folder.glob("*.ring")]
