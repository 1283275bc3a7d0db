"""A small DDP job: its last operations are closed, and over the cost budget its report says what has no row."""

import json
import re
import subprocess
import sys

import pytest

from rankscope.analyzers.coverage import coverage
from rankscope.analyzers.run import Run
from rankscope.hooks import native

pytestmark = pytest.mark.system

NUM_STEPS = 320
JOB = f"""
import rankscope.auto, torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range({NUM_STEPS}):
    model(torch.ones(2, 16)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
REDUCED = "SELECT count(*), count(*) FILTER (WHERE completed_ns IS NULL) FROM collective WHERE op = 'all_reduce'"


def job_of(torchrun, budget):
    job = torchrun(JOB, 2, env={"RANKSCOPE_AGENT": "now", "RANKSCOPE_COST_BUDGET": budget}).check()
    job.settle()
    return job


def test_without_a_budget_every_row_is_there_and_closed(torchrun):
    with Run.open(str(job_of(torchrun, "0").run_dir)) as run:
        assert run.rows(REDUCED) == [(2 * NUM_STEPS, 0)]
        found = coverage(run)
    assert found.coverage.value == 1 and found.operations.share.value == 1


@pytest.mark.skipif(native.is_available(), reason="native hooks cost too little to have a budget: nothing is thinned")
def test_over_the_budget_the_report_says_what_has_no_row(torchrun):
    job = job_of(torchrun, "0.0001")
    command = [sys.executable, "-c", "from rankscope.cli.main import main; main()", "report", str(job.run_dir)]
    text, document = (
        subprocess.run([*command, *more], capture_output=True, text=True, timeout=100, check=True).stdout
        for more in ([], ["--json"])
    )
    text = " ".join(text.split())
    (told,) = re.findall(r"operations have rows \(([\d,]+) of ([\d,]+)\)", text)
    rows, num = (int(part.replace(",", "")) for part in told)
    with Run.open(str(job.run_dir)) as run:
        ((num_reduced, num_open),) = run.rows(REDUCED)
    assert num_open == 0 and num_reduced < rows < num
    assert 0.85 * 2 * NUM_STEPS < num - (rows - num_reduced) <= 2 * NUM_STEPS  # the last steps have no row behind them
    assert f"Only {100 * rows // num} % of the operations have rows" in text and "the budget is 0.0001" in text
    found = {item["name"]: item for item in json.loads(document)["measurements"] if "statistic" not in item["scope"]}
    assert found["capture.operations"]["value"] == rows / num
    assert found["capture.coverage"]["value"] < 1
    reduced = [item for item in json.loads(document)["measurements"] if item["scope"].get("op") == "all_reduce"]
    by_name = {item["name"]: item for item in reduced}
    assert by_name["collective.count"]["value"] == num_reduced
    assert "operations were counted" in str(by_name["collective.bytes"]["provenance"])
    assert by_name["collective.count_estimate"]["value"] > num_reduced
