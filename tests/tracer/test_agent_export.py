"""The agent as a process, with living ranks that need no torch: what it exports while they live, hang and die."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from node import read_everything
from otlp_receiver import Receiver, Running

from rankscope.schema.process_rows import this_boot

RANK = Path(__file__).parents[1] / "helpers" / "fake_rank.py"
PATIENCE_SECONDS = 60.0


class Launch:
    """Fake ranks as processes of their own, and their agent."""

    def __init__(self, base: Path, environment: dict[str, str]) -> None:
        self.base, self.folder = base, base / "local" / f"rankscope-{os.getuid()}" / "launch"
        self.environment = {
            **os.environ, "RANKSCOPE_LOCAL_DIR": str(base / "local"), "OMP_NUM_THREADS": "1",
            "OTEL_METRIC_EXPORT_INTERVAL": "200", "OTEL_BSP_SCHEDULE_DELAY": "200", **environment,
        }  # fmt: skip
        self.ranks: list[subprocess.Popen[bytes]] = []
        self.agent: subprocess.Popen[bytes] | None = None

    def start(self, num: int, seconds: float, **more: Any) -> None:
        for rank in range(num):
            settings = {
                "folder": str(self.folder), "run_dir": str(self.base / "run"), "rank": rank, "world_size": num,
                "rate": 50, "seconds": seconds, "witness": str(self.base / f"witness{rank}"), "tells": False,
                "boot_id": this_boot(), **more,
            }  # fmt: skip
            self.ranks.append(subprocess.Popen([sys.executable, str(RANK), json.dumps(settings)]))
        wait_for(lambda: len(list(self.folder.glob("*.journal"))) == num)
        command = [sys.executable, "-m", "rankscope.tracer.agent", "--folder", str(self.folder)]
        with (self.base / "agent.log").open("wb") as log:
            self.agent = subprocess.Popen(command, env=self.environment, stderr=log)

    def close(self) -> None:
        for process in [*self.ranks, *([self.agent] if self.agent else [])]:
            process.kill()
            process.wait()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Launch]]:
    made: list[Launch] = []

    def begin(**environment: str) -> Launch:
        made.append(Launch(tmp_path, environment))
        return made[-1]

    yield begin
    for one in made:
        one.close()


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ranks_of_last_request(receiver: Receiver) -> set[int]:
    """The ranks that the newest request tells operations of."""
    points = receiver.metric_requests[-1][1] if receiver.metric_requests else []
    return {point.attributes["training.rank"] for point in points if point.name == "training.collective.io"}


def incidents(receiver: Receiver) -> dict[tuple[int, str], int]:
    return {(point.attributes["training.rank"], point.attributes["training.incident.kind"]): point.value
            for point in receiver.last("training.incidents")}  # fmt: skip


def test_a_rank_that_is_killed_becomes_an_incident_and_its_series_end(launch: Callable[..., Launch]) -> None:
    with Running() as receiver:
        one = launch(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint)
        one.start(2, 60)
        wait_for(lambda: ranks_of_last_request(receiver) == {0, 1})
        one.ranks[1].send_signal(signal.SIGKILL)
        wait_for(lambda: ranks_of_last_request(receiver) == {0})
        assert incidents(receiver) == {(0, "dead_rank"): 0, (1, "dead_rank"): 1, (0, "hang"): 0, (1, "hang"): 0}
        wait_for(lambda: any(span.name == "training.incident" for span in receiver.spans))
        (span,) = [span for span in receiver.spans if span.name == "training.incident"]
        assert (span.attributes["training.rank"], span.status) == (1, 2)
        assert span.attributes["training.incident.text"].startswith("rank 1 was killed (pid ")
        assert 0 < span.end_ns - span.start_ns < 60e9 and abs(span.end_ns - time.time_ns()) < 60e9
        one.ranks[0].kill()
        assert one.agent is not None and one.agent.wait(PATIENCE_SECONDS) == 0
    rows = [row for row in read_everything(one.base / "run", "incident") if row["rank"] == 1]
    assert [(row["kind"], row["severity"], row["rule"]) for row in rows] == [
        ("dead_rank", "critical", "exit_kind is killed")
    ]


def test_an_operation_beyond_the_patience_becomes_an_incident(launch: Callable[..., Launch]) -> None:
    with Running() as receiver:
        one = launch(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint, RANKSCOPE_PATIENCE_SECONDS="3")
        one.start(2, 2, hangs=True)
        wait_for(lambda: incidents(receiver).get((0, "hang")) == 1)
        wait_for(lambda: [s for s in receiver.spans if s.attributes.get("training.incident.kind") == "hang"])
        span = next(s for s in receiver.spans if s.attributes.get("training.incident.kind") == "hang")
        assert span.attributes["training.collective.operation"] == "all_reduce"
        assert span.end_ns - span.start_ns > 3e9
        pending = {point.attributes["training.rank"]: point.value
                   for point in receiver.last("training.collective.pending")}  # fmt: skip
        assert pending == {0: 1, 1: 1}


def test_an_endpoint_that_hangs_keeps_the_agent_two_seconds_and_is_told_in_the_run(
    launch: Callable[..., Launch],
) -> None:
    with Running("hang") as receiver:
        one = launch(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint, OTEL_EXPORTER_OTLP_TIMEOUT="1")
        one.start(1, 8)
        assert one.ranks[0].wait(PATIENCE_SECONDS) == 0
        began = time.monotonic()
        assert one.agent is not None and one.agent.wait(PATIENCE_SECONDS) == 0
        stayed = time.monotonic() - began
    told = [row["why"] for row in read_everything(one.base / "run", "capture") if row["hook"] == "agent.otlp"]
    assert sorted(text.split(" do not arrive")[0] for text in told) == ["otlp: metrics"]  # no steps, so no spans
    assert read_everything(one.base / "run", "collective")
    assert stayed < 5 + 2 + 8  # it leaves within 5 s of the last rank without export; 8 s for a busy machine
