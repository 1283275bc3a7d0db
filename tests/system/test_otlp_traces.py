"""One trace per step with all ranks, in a store of traces that people have: Phoenix, by its own API.

Starting it takes minutes and its packages 1.5 GB, so this runs only where an environment with arize-phoenix is named
(RANKSCOPE_TEST_PHOENIX: its `phoenix` program). Last run: 30 November 2026, arize-phoenix 20.26.1, Python 3.11.
"""

import json
import os
import subprocess
import time
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rotel_collector import free_port

from rankscope.analyzers.run import Run
from rankscope.cli import main

PHOENIX = os.environ.get("RANKSCOPE_TEST_PHOENIX", "")
pytestmark = [
    pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(1500),
    pytest.mark.skipif(not PHOENIX, reason="RANKSCOPE_TEST_PHOENIX names no `phoenix` program"),
]  # fmt: skip
JOB = Path(__file__).parent / "jobs" / "exporting.py"
RANKS = 4
START_SECONDS = 600.0
OFFLINE = {
    "PHOENIX_TELEMETRY_ENABLED": "false", "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    "PHOENIX_DISABLE_AGENT_ASSISTANT": "true", "PHOENIX_ALLOWED_SANDBOX_PROVIDERS": "NONE",
}  # fmt: skip


@pytest.fixture
def phoenix(tmp_path: Path) -> Iterator[str]:
    with _serving(tmp_path) as address:
        yield address


@contextmanager
def _serving(folder: Path) -> Iterator[str]:
    port = free_port()
    own = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    environment = {
        **own, **OFFLINE, "PHOENIX_WORKING_DIR": str(folder / "phoenix"), "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port), "PHOENIX_GRPC_PORT": str(free_port()),
    }  # fmt: skip
    log_path = folder / "phoenix.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen([PHOENIX, "serve"], env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"phoenix does not start: {log_path.read_text()[-3000:]}")
                time.sleep(1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def stored(address: str, num: int) -> list[dict[str, Any]]:
    """All spans of the store, once there are `num` of them: it takes them in the background."""
    deadline = time.monotonic() + 120
    while True:
        found: list[dict[str, Any]] = []
        cursor = ""
        while True:
            query = urllib.parse.urlencode({"limit": 1000, **({"cursor": cursor} if cursor else {})})
            with urllib.request.urlopen(f"{address}/v1/projects/default/spans?{query}", timeout=60) as answer:
                page = json.load(answer)
            found += page["data"]
            cursor = page.get("next_cursor") or ""
            if not cursor:
                break
        if len(found) >= num or time.monotonic() > deadline:
            return found
        time.sleep(1)


def ranks_of_traces(spans: list[dict[str, Any]]) -> dict[int, set[int]]:
    """Ranks by step; asserts that a step is one trace, and a trace one step."""
    steps: dict[str, set[int]] = defaultdict(set)
    ranks: dict[int, set[int]] = defaultdict(set)
    for span in spans:
        told = span["attributes"]
        steps[span["context"]["trace_id"]].add(told["training.step"])
        if "training.rank" in told:
            ranks[told["training.step"]].add(told["training.rank"])
    assert all(len(found) == 1 for found in steps.values()) and len(steps) == len(ranks)
    return dict(ranks)


def test_live_and_afterwards(torchrun: Any, phoenix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{phoenix}/v1/traces", "RANKSCOPE_AGENT": "now"}
    job = torchrun(JOB, RANKS, env=env).check()
    job.settle()
    live = stored(phoenix, 3 * (1 + RANKS))
    assert ranks_of_traces(live) == {step: set(range(RANKS)) for step in (0, 20, 40)}
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(job.local_dir))
    assert main.run(["export", "otlp", str(job.run_dir), "--endpoint", phoenix, "--steps", "1:19"]) == 0
    with Run.open(str(job.run_dir)) as run:
        query = "SELECT (SELECT count(*) FROM {}) + (SELECT count(*) FROM {})".format(
            "span WHERE step BETWEEN 1 AND 19", "collective WHERE step BETWEEN 1 AND 19"
        )
        ((num_rows,),) = run.rows(query)
    everything = stored(phoenix, len(live) + num_rows + 19 * (1 + RANKS))
    assert len(everything) == len(live) + num_rows + 19 * (1 + RANKS)
    assert ranks_of_traces(everything) == {step: set(range(RANKS)) for step in (*range(21), 40)}
