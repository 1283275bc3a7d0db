"""Right in time: a rank that sleeps a known time before each all_reduce is the one with the short wait."""

import json
from statistics import median

import pytest

from rankscope.analyzers.run import Run

pytestmark = [pytest.mark.system, pytest.mark.slow]

NUM = 50
SLEEP_NS = 20_000_000
NOISE_NS = 15_000_000
"""How late a woken thread may be on a loaded machine; the median of NUM may not be."""

JOB = """
import json, os, time
import rankscope.auto
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, marks, tensor = dist.get_rank(), [], torch.ones(1)
dist.all_reduce(tensor)
for _ in range(50):
    if rank == 1:
        time.sleep(0.02)
    begin = time.monotonic_ns()
    if MODE == "sync":
        dist.all_reduce(tensor)
    else:
        work = dist.all_reduce(tensor, async_op=True)
        time.sleep(0.005)
        work.wait()
    marks.append((begin, time.monotonic_ns()))
with open(os.environ["MARKS"] + str(rank), "w") as file:
    json.dump(marks, file)
dist.destroy_process_group()
"""

SQL = """
    SELECT issued_ns, returned_ns, wait_begin_ns, wait_end_ns, completed_ns FROM collective
    WHERE op = 'all_reduce' AND rank = ? ORDER BY seq
"""


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_planted_times(torchrun, tmp_path, mode):
    source = JOB.replace("MODE", repr(mode))
    job = torchrun(source, 2, env={"MARKS": str(tmp_path / "marks"), "RANKSCOPE_AGENT": "now"}).check()
    job.settle()
    with Run.open(str(job.run_dir)) as run:
        rows = [run.rows(SQL, [rank])[1:] for rank in (0, 1)]
    marks = [json.loads((tmp_path / f"marks{rank}").read_text()) for rank in (0, 1)]
    for rank in (0, 1):
        assert len(rows[rank]) == NUM
        for (issued, returned, wait_begin, wait_end, completed), (begin, end) in zip(
            rows[rank], marks[rank], strict=True
        ):
            assert begin <= issued <= returned <= wait_begin <= wait_end <= end
            assert issued <= completed <= end
        # what stands between the script's own clock and ours is our wrapper, not the operation
        assert median(row[0] - mark[0] for row, mark in zip(rows[rank], marks[rank], strict=True)) < 1_000_000
        assert median(mark[1] - row[3] for row, mark in zip(rows[rank], marks[rank], strict=True)) < 1_000_000
    waits = [median(row[3] - row[2] for row in rows[rank]) for rank in (0, 1)]
    assert waits[1] < NOISE_NS / 3 < waits[0]
    if mode == "sync":
        assert abs(waits[0] - SLEEP_NS) < NOISE_NS
    late = [second[0] - first[0] for first, second in zip(*rows, strict=True)]
    assert abs(median(late) - (waits[0] - waits[1])) < NOISE_NS
    together = [abs(first[4] - second[4]) for first, second in zip(*rows, strict=True)]
    assert median(together) < NOISE_NS
