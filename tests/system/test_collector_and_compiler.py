"""Pauses of the collector and compilations of real jobs appear on the rank that had them, and only there."""

from collections import defaultdict
from typing import Any

import pytest

from rankscope.schema.leftovers import find_leftovers

pytestmark = [pytest.mark.system, pytest.mark.slow]

JOB = """
import gc, time
gc.disable()  # only what is planted is a collection
import rankscope.auto
import rankscope
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
work = torch.compile(lambda x: x * 2, backend="eager") if rank == 0 else (lambda x: x * 2)
ballast = [[number] for number in range(400_000)] if rank == 1 else []
for step in range(9):
    if rank == 1 and step % 3 == 2:
        begin = time.monotonic_ns()
        gc.collect()
        print("planted", step, begin, time.monotonic_ns(), flush=True)
    work(torch.ones(4 if step < 4 else 5))  # a second size is a second compilation
    dist.all_reduce(torch.ones(4))
    rankscope.step()
if rank == 1:
    gc.collect(0)  # short, and after the last boundary
dist.destroy_process_group()
"""


def test_planted_pauses_and_compilations(torchrun, monkeypatch):
    job = torchrun(JOB, 2, env={"RANKSCOPE_AGENT": "off"}).check()
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(job.local_dir))
    spans, metrics, artifacts = _read(job)

    planted = [tuple(map(int, line.split()[1:])) for line in job.stdout.splitlines() if line.startswith("planted")]
    assert [step for step, _, _ in planted] == [2, 5, 8]
    pauses = [row for row in spans[1] if row["kind"] == "gc"]
    assert [(row["step"], row["name"]) for row in pauses] == [(step, "generation 2") for step, _, _ in planted]
    for row, (_, begin, end) in zip(pauses, planted, strict=True):
        assert begin <= row["start_ns"] < row["end_ns"] <= end
        assert row["end_ns"] - row["start_ns"] > 0.8 * (end - begin)  # all of the pause, not a part of it
    assert metrics[1]["gc.collections"] == 4 and 0 < metrics[1]["gc.short_pauses_ns"] < 1e6

    compiled = [row for row in spans[0] if row["kind"] == "compile"]
    assert [(row["step"], row["name"]) for row in compiled] == [(0, "dynamo"), (4, "dynamo")]
    assert all(row["end_ns"] > row["start_ns"] for row in compiled)
    assert [row for row in spans[1] if row["kind"] == "compile"] == []
    # torch's compiler itself calls the collector, on the rank that compiles; nothing of what was planted is there
    assert {row["step"] for row in spans[0] if row["kind"] == "gc"} <= {0, 4}
    assert [row["name"] for row in artifacts if row["kind"] == "compiler"] == ["torch.compile"]


def _read(job):
    """Spans and last values of metrics by rank, and the artifacts."""
    spans: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    metrics: defaultdict[int, dict[str, float]] = defaultdict(dict)
    artifacts: list[dict[str, Any]] = []
    for leftover in find_leftovers(str(job.run_dir)):
        for (table, _, _), part in leftover.tables().items():
            rows = part.to_pylist()
            if table == "artifact":
                artifacts += rows
            elif table == "metric":
                for row in sorted(rows, key=lambda row: row["record"]):
                    metrics[row["rank"]][row["name"]] = row["value"]
            elif table == "span":
                for row in sorted(rows, key=lambda row: row["start_ns"]):
                    spans[row["rank"]].append(row)
    return spans, metrics, artifacts
