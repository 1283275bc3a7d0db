"""Readings of processes: a real one that works, sleeps and ends; threads that come and go; other namespaces."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_tree import KernelTree

from rankscope.hooks.process_sampling import MAX_THREADS, make
from rankscope.hooks.sampling import LocalProcess, Surroundings
from rankscope.schema.arrow import rows_to_table
from rankscope.schema.errors import HookUnavailable

STAT = "7 (py (x) 1) S 1 2 3 4 5 6 70 8 90 10 110 12 14 15 16 17 5 19 20 21 220 23"


def task(tree: KernelTree, thread: int, ran: int, waited: int, involuntary: int, voluntary: int) -> None:
    status = f"Name: x\nvoluntary_ctxt_switches:\t{voluntary}\nnonvoluntary_ctxt_switches:\t{involuntary}"
    tree.own({f"7/task/{thread}/schedstat": f"{ran} {waited} 3", f"7/task/{thread}/status": status})


@pytest.fixture
def tree(tmp_path: Path) -> KernelTree:
    made = KernelTree(tmp_path)
    made.own({"self/stat": "", "7/stat": STAT, "7/io": "rchar: 1\nread_bytes: 4096\nwrite_bytes: 8192", "7/fd/0": "",
              "7/fd/1": ""})  # fmt: skip
    task(made, 7, 100, 10, 1, 2)
    made.processes = (LocalProcess(proc=70, rank=3, incarnation=0, pid=7),)
    return made


def test_every_column(tree: KernelTree) -> None:
    (row,) = make(tree.surroundings).sample(5)["process_sample"]
    tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    assert row == {
        "proc": 70, "rank": 3, "time_ns": 5, "cpu_user_ns": 110 * tick, "cpu_system_ns": 12 * tick,
        "num_involuntary_switches": 1, "num_voluntary_switches": 2, "run_queue_wait_ns": 10, "num_minor_faults": 70,
        "num_major_faults": 90, "num_threads": 5, "num_open_files": 2, "read_bytes": 4096,
        "write_bytes": 8192, "rss_bytes": 220 * os.sysconf("SC_PAGE_SIZE"), "reason": None,
    }  # fmt: skip
    assert rows_to_table("process_sample", [row]).num_rows == 1


def test_totals_never_fall_when_threads_end_and_ids_are_used_again(tree: KernelTree) -> None:
    sampler = make(tree.surroundings)
    task(tree, 8, 1000, 100, 5, 5)

    def totals() -> tuple[int, int, int]:
        (row,) = sampler.sample(0)["process_sample"]
        return row["run_queue_wait_ns"], row["num_involuntary_switches"], row["num_voluntary_switches"]

    assert totals() == (110, 6, 7)
    (tree.proc / "7/task/8").rename(tree.proc / "gone")
    assert totals() == (110, 6, 7)
    task(tree, 8, 50, 20, 1, 1)  # another thread under the old id
    assert totals() == (130, 7, 8)
    task(tree, 8, 60, 25, 2, 1)
    assert totals() == (135, 8, 8)


def test_an_idle_thread_is_not_asked_for_its_switches(tree: KernelTree) -> None:
    sampler = make(tree.surroundings)
    sampler.sample(0)
    (tree.proc / "7/task/7/status").unlink()
    (row,) = sampler.sample(1)["process_sample"]
    assert row["num_voluntary_switches"] == 2 and row["reason"] is None


def test_what_cannot_be_read_is_null_and_why(tree: KernelTree) -> None:
    (tree.proc / "7/io").unlink()
    (tree.proc / "7/task/7/schedstat").unlink()
    (row,) = make(tree.surroundings).sample(0)["process_sample"]
    assert row["read_bytes"] is None and row["reason"]["read_bytes"] == "the kernel has no such file"
    assert row.get("run_queue_wait_ns") is None and "run_queue_wait_ns" in row["reason"]
    for number in range(MAX_THREADS + 1):
        (tree.proc / f"7/task/{1000 + number}").mkdir()
    (row,) = make(tree.surroundings).sample(0)["process_sample"]
    assert "threads" in row["reason"]["run_queue_wait_ns"] and row["cpu_user_ns"] > 0


def test_another_pid_namespace_is_a_row_with_the_reason(tree: KernelTree) -> None:
    tree.processes = (LocalProcess(proc=70, rank=3, incarnation=0, pid=None),)
    (row,) = make(tree.surroundings).sample(0)["process_sample"]
    assert row["rank"] == 3 and "PID namespace" in row["reason"]["cpu_user_ns"] and row.get("cpu_user_ns") is None


def test_a_process_that_is_gone_is_no_row(tree: KernelTree) -> None:
    tree.processes = (LocalProcess(proc=71, rank=0, incarnation=0, pid=8), *tree.processes)
    assert [row["proc"] for row in make(tree.surroundings).sample(0)["process_sample"]] == [70]


def test_without_proc_it_says_why(tmp_path: Path) -> None:
    with pytest.raises(HookUnavailable):
        make(KernelTree(tmp_path).surroundings)


PROGRAM = """
import sys, threading, time
def work(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until: pass
for line in sys.stdin:
    work(0.2)
    thread = threading.Thread(target=work, args=(0.1,))
    thread.start()
    thread.join()
    for _ in range(20): time.sleep(0.001)
    open("/dev/null")
    print("done", flush=True)
"""


def test_a_real_process() -> None:
    child = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None and child.stdout is not None
    local = LocalProcess(proc=1, rank=0, incarnation=0, pid=child.pid)
    sampler = make(Surroundings("here", Path("/sys"), Path("/proc"), lambda: (local,)))
    rows = []
    for _ in range(2):
        child.stdin.write("go\n")
        child.stdin.flush()
        assert child.stdout.readline() == "done\n"
        rows += sampler.sample(0)["process_sample"]
    child.stdin.close()
    child.stdout.close()
    child.wait(10)
    before, after = rows
    spent = after["cpu_user_ns"] + after["cpu_system_ns"] - before["cpu_user_ns"] - before["cpu_system_ns"]
    assert 250_000_000 < spent < 600_000_000
    assert after["num_voluntary_switches"] - before["num_voluntary_switches"] >= 20
    assert after["rss_bytes"] > 1_000_000 and after["num_threads"] == 1 and after["num_open_files"] >= 3
    assert after["run_queue_wait_ns"] is None or after["run_queue_wait_ns"] >= before["run_queue_wait_ns"]
    assert sampler.sample(0)["process_sample"] == []
