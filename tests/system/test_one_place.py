"""Two nodes whose run directories are two folders: the node without rank 0 says so, and copying merges."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from rankscope.cli import main
from rankscope.schema import paths

pytestmark = pytest.mark.system

TRAIN = """
import time
import torch, torch.distributed as dist
import rankscope, rankscope.auto
dist.init_process_group("gloo")
for step in range(12):
    time.sleep(0.5)
    dist.all_reduce(torch.ones(3))
    rankscope.step()
dist.destroy_process_group()
"""

JOB = f"""
import os, socket, subprocess, sys
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
ranks = []
for rank in range(2):
    own = {{"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}}
    for name in ("RANKSCOPE_DIR", "RANKSCOPE_LOCAL_DIR"):
        own[name] = os.environ[name] + f"/node{{rank}}"
    ranks.append(subprocess.Popen([sys.executable, "-c", {TRAIN!r}], env=os.environ | own))
sys.exit(max(rank.wait() for rank in ranks))
"""

HASTE = """
def _hasten(one_place):
    one_place.PATIENCE_NS = 1_000_000_000

wrapt.register_post_import_hook(_hasten, "rankscope.tracer.one_place")
"""


def sealed(place: Path) -> Path:
    deadline = time.monotonic() + 30
    while (place / paths.LIVE).exists() or not (place / "run.json").exists():
        assert time.monotonic() < deadline, f"{place} was never sealed"
        time.sleep(0.05)
    return place


def test_the_other_node_says_where_its_files_are(
    jobs: Any, plain: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with (jobs.folder / "site" / "sitecustomize.py").open("a") as site:
        site.write(HASTE)
    job = plain(JOB, env={"RANKSCOPE_AGENT": "now"}).check()
    first, other = sealed(job.run_dir / "node0"), sealed(job.run_dir / "node1")
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(job.local_dir / "nowhere"))
    monkeypatch.setenv("COLUMNS", "400")

    def said(place: Path) -> list[str]:
        sql = "SELECT why FROM capture WHERE hook = 'agent.place'"
        assert main.run(["query", str(place), sql, "--json"]) == 0
        return [why for (why,) in json.loads(capsys.readouterr().out)["rows"]]

    assert said(first) == []
    (why,) = said(other)
    assert f"writes to its own folder {other}," in why and f"copy it into {first} there to merge" in why
    shutil.copytree(other, first, dirs_exist_ok=True, ignore=shutil.ignore_patterns("run.json"))
    assert main.run(["report", str(first)]) == 0
    assert f"said by agent.place: {why}" in " ".join(capsys.readouterr().out.split())
