"""Complete, once each: what was captured equals the flight recorder's list, on every rank, for every way in."""

import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from rankscope.analyzers.run import Run

from .witness import Row, entries_by_group, mismatch

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(900)]

JOB = Path(__file__).parent / "jobs" / "complete.py"

COLLECTIVES = """
    SELECT group_id, op, bytes_in, bytes_out, dtype, tier, seq, src, dst, tag, state, wait_end_ns, completed_ns,
           timing_source, issued_ns, returned_ns
    FROM collective WHERE rank = ? ORDER BY issued_ns, record
"""
GROUPS = "SELECT group_id, member_starts, member_strides, member_counts, ordinal, mesh_dimension FROM process_group"


@pytest.fixture
def captured(torchrun, tmp_path):
    """`captured(nproc, *workloads) -> (run, documents by rank)`: the job's dataset and what its witness wrote."""
    runs = []

    def start(nproc, *workloads, timeout=200):
        env = {"COMPLETE_OUT": str(tmp_path), "TORCH_FR_BUFFER_SIZE": "20000", "RANKSCOPE_AGENT": "now"}
        job = torchrun(JOB, nproc, args=workloads, env=env, timeout=timeout).check()
        job.settle()
        runs.append(Run.open(str(job.run_dir)))
        return runs[-1], [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(nproc)]

    yield start
    for run in runs:
        run.close()


def _members(starts, strides, counts):
    return [
        start + i * stride for start, stride, count in zip(starts, strides, counts, strict=True) for i in range(count)
    ]


def _ids_by_name(run, document):
    """The recorder's group name -> our group id: the n-th group with the same members has ordinal n."""
    known = {}
    for group_id, starts, strides, counts, ordinal, _ in run.rows(GROUPS):
        known[tuple(_members(starts, strides, counts)), ordinal] = group_id
    seen: Counter[tuple[int, ...]] = Counter()
    ids = {}
    for name, members in document["groups"].items():
        ids[name] = known[tuple(members), seen[tuple(members)]]
        seen[tuple(members)] += 1
    return ids


def _check(run, documents):
    for rank, document in enumerate(documents):
        rows, transfers, seqs = defaultdict(list), [], defaultdict(list)
        for group_id, op, size_in, size_out, dtype, tier, seq, src, dst, tag, *rest in run.rows(COLLECTIVES, [rank]):
            _check_times(op, *rest)
            if op in ("send", "recv"):
                transfers.append((op, src, dst, tag, size_in if op == "send" else size_out, dtype))
            else:
                seqs[group_id].append(seq)
            rows[group_id].append(Row(op, size_in, size_out, dtype, tier))
        ids, entries = _ids_by_name(run, document), entries_by_group(document)
        problems = {name: mismatch(rows[ids[name]], entries.get(name, [])) for name in ids}
        assert not any(problems.values()), f"rank {rank}: {problems}"
        assert set(rows) <= set(ids.values())
        assert Counter(transfers) == Counter(map(tuple, document["schedule"])), f"rank {rank}"
        assert all(found == list(range(len(found))) for found in seqs.values())


def _check_times(op, state, wait_end, completed, timing, issued, returned):
    assert returned is None or issued <= returned
    assert completed is None or completed >= issued
    assert (timing == "wait") == (wait_end is not None and wait_end == completed), (op, timing, wait_end, completed)
    assert (state == "completed") == (completed is not None), (op, state, completed)


def test_what_two_ranks_do(captured):
    run, documents = captured(
        2, "direct", "all_to_all", "objects", "ddp", "ddp_accumulation", "zero", "fsdp1", "fsdp2", "functional",
        "inference", "autograd_nn", "threads", "checkpoint", "transfers", "pipeline",
    )  # fmt: skip
    _check(run, documents)
    ((num_unwaited,),) = run.rows("SELECT count(*) FROM collective WHERE state = 'issued' AND timing_source IS NULL")
    assert num_unwaited == 0


def test_what_four_ranks_do(captured):
    run, documents = captured(4, "tensor_parallel", "sub_groups", "hsdp", "direct", "all_to_all")
    _check(run, documents)
    dimensions = {row[5] for row in run.rows(GROUPS)}
    assert {"dp", "tp"} <= dimensions


def test_compiled(captured):
    run, documents = captured(2, "compiled", "compiled_ddp", timeout=280)
    _check(run, documents)
