"""The first report over real jobs: while they run, with a rank killed, and after they ended."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from in_flight import IN_FLIGHT

pytestmark = pytest.mark.system

REPORT = "from rankscope.cli.main import main; main()"

DESCRIBED = """
import sys, time
from rankscope.analyzers.run import Run

is_described = False
while not is_described:
    time.sleep(0.1)
    with Run.open(sys.argv[1]) as run:
        is_described = bool(run.rows("SELECT world_size FROM run"))
"""

LIVE = """
import os, subprocess, sys, time
import torch, torch.distributed as dist
import rankscope, rankscope.auto

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(6):
    time.sleep(0.02 * rank)
    dist.all_reduce(torch.ones(250))
    rankscope.step()
if rank == 0:
    # the seventh all_reduce of rank 1
    subprocess.run([sys.executable, "-c", IN_FLIGHT, os.environ["RANKSCOPE_DIR"], "6", "1"], check=True)
    # rank 0 tells what the run is when its watch thread next looks around: some seconds after it joined
    subprocess.run([sys.executable, "-c", DESCRIBED, os.environ["RANKSCOPE_DIR"]], check=True, timeout=60)
    command = [sys.executable, "-c", REPORT, "report", os.environ["RANKSCOPE_DIR"], "--json"]
    with open(os.environ["RANKSCOPE_DIR"] + ".live.json", "wb") as out:
        subprocess.run(command, stdout=out, check=True, timeout=60)
    command = [sys.executable, "-c", REPORT, "report", os.environ["RANKSCOPE_DIR"]]
    with open(os.environ["RANKSCOPE_DIR"] + ".live.txt", "wb") as out:
        subprocess.run(command, stdout=out, check=True, timeout=60)
dist.all_reduce(torch.ones(250))
if DIES and rank == 1:
    os.kill(os.getpid(), 9)
dist.destroy_process_group()
"""


def script(dies: bool) -> str:
    return f"REPORT, IN_FLIGHT, DESCRIBED = {REPORT!r}, {IN_FLIGHT!r}, {DESCRIBED!r}\nDIES = {dies}\n{LIVE}"


def command(run_dir: Path, local_dir: Path, *arguments: str) -> str:
    environment = {**os.environ, "RANKSCOPE_LOCAL_DIR": str(local_dir), "COLUMNS": "160"}
    done = subprocess.run(
        [sys.executable, "-c", REPORT, arguments[0], str(run_dir), *arguments[1:]],
        env=environment, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def values(document: dict[str, Any], name: str, **scope: object) -> list[Any]:
    return [
        item["value"]
        for item in document["measurements"]
        if item["name"] == name and scope.items() <= item["scope"].items()
    ]


@pytest.mark.parametrize("agent", ["auto", "now"])
def test_while_it_runs_and_after_it_ended(torchrun: Any, agent: str) -> None:
    job = torchrun(script(dies=False), 2, env={"RANKSCOPE_AGENT": agent}).check()
    live = json.loads(Path(f"{job.run_dir}.live.json").read_text())
    assert live["run"]["is_running"] and live["run"]["world_size"] == 2
    # six on both ranks, and the one that rank 1 has begun
    assert values(live, "collective.count", op="all_reduce") == [13]
    assert values(live, "collective.unfinished", op="all_reduce") == [1]
    text = Path(f"{job.run_dir}.live.txt").read_text()
    assert "still running" in text
    assert "all_reduce number 6 in world in step 6 is in flight: issued by rank 1, not by rank 0." in " ".join(
        text.split()
    )

    job.settle()
    ended = json.loads(command(job.run_dir, job.local_dir, "report", "--json"))
    assert not ended["run"]["is_running"] and ended["verdicts"] == []
    assert values(ended, "collective.count", op="all_reduce") == [14]
    assert values(ended, "collective.bytes", op="all_reduce") == [14 * 1000]
    assert values(ended, "collective.unfinished", op="all_reduce") == [0]
    assert values(ended, "step.count") == [6]
    assert values(ended, "capture.coverage") == [1.0]
    assert values(ended, "capture.dropped") == [0] and values(ended, "capture.errors") == [0]
    # rank 1 sleeps 20 ms before each: rank 0 waits about that long, rank 1 hardly at all
    waits = {item["scope"]["rank"]: item["value"] for item in ended["measurements"] if item["name"] == "time.host_wait"}
    assert waits[0] > waits[1] and waits[0] > 5 * 15_000_000
    assert values(ended, "collective.wait", op="all_reduce", statistic="p95")[0] > 15_000_000
    assert "Communication" in command(job.run_dir, job.local_dir, "report")
    ranks = json.loads(
        command(job.run_dir, job.local_dir, "query", "SELECT DISTINCT rank FROM step ORDER BY 1", "--json")
    )
    assert ranks["rows"] == [[0], [1]]


def test_a_rank_that_was_killed_is_said_first(torchrun: Any) -> None:
    job = torchrun(script(dies=True), 2)
    assert job.returncode != 0
    job.settle()
    document = json.loads(command(job.run_dir, job.local_dir, "report", "--json"))
    killed = [verdict for verdict in document["verdicts"] if verdict["kind"] == "dead_rank"]
    assert len(killed) == 1 and 1 in killed[0]["ranks"]
    assert values(document, "collective.count", op="all_reduce") == [14]
    assert values(document, "capture.coverage") == [1.0]
    assert "died without a clean end" in command(job.run_dir, job.local_dir, "report").splitlines()[3]
