"""What the node agent costs: CPU, memory and files at 8 local ranks of 1,000 records a second each.

    python benchmarks/agent_cost.py [--ranks 8] [--rate 1000] [--seconds 60]

The ranks are real rings and journals, written by the recorder's own writer in processes without torch. On a busy
machine the agent's CPU time grows (shared caches and hyper-threads), so a calibration loop is timed beside it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

RANK = Path(__file__).parent.parent / "tests" / "helpers" / "fake_rank.py"
TICKS = os.sysconf("SC_CLK_TCK")
SETTLE_SECONDS = 5.0


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rate", type=int, default=1000, help="records a second and rank")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        measure(Path(base), options.ranks, options.rate, options.seconds)


def measure(base: Path, num_ranks: int, rate: int, seconds: float) -> None:
    """One run below `base`."""
    os.environ.update(RANKSCOPE_LOCAL_DIR=str(base / "local"), OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    folder = base / "local" / f"rankscope-{os.getuid()}" / "launch"
    ranks = [start_rank(base, folder, rank, num_ranks, rate, seconds) for rank in range(num_ranks)]
    while len(list(folder.glob("*.journal"))) < num_ranks:
        time.sleep(0.05)
    agent = subprocess.Popen([sys.executable, "-m", "rankscope.tracer.agent", "--folder", str(folder)])
    time.sleep(SETTLE_SECONDS)
    cpu_before, began, rss = cpu_seconds(agent.pid), time.monotonic(), []
    slow = calibration()
    while all(rank.poll() is None for rank in ranks):  # what it does once they are gone nobody shares a core with
        spent, passed = cpu_seconds(agent.pid) - cpu_before, time.monotonic() - began
        rss.append(memory_mb(agent.pid))
        time.sleep(0.5)
    usage = os.wait4(agent.pid, 0)[2]
    outside = usage.ru_utime + usage.ru_stime - spent
    report(base, num_ranks, rate, spent / passed, outside, max(rss), slow)


def start_rank(
    base: Path, folder: Path, rank: int, num_ranks: int, rate: int, seconds: float
) -> subprocess.Popen[bytes]:
    """One rank as a process of its own."""
    settings = {
        "folder": str(folder), "run_dir": str(base / "run"), "rank": rank, "world_size": num_ranks, "rate": rate,
        "seconds": seconds, "witness": str(base / f"witness{rank}"), "tells": False,
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
    }  # fmt: skip
    return subprocess.Popen([sys.executable, str(RANK), json.dumps(settings)])


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mb(pid: int) -> float:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def calibration() -> float:
    """CPU ns of one turn of an empty loop, now: about 20 on a quiet machine of 2024."""
    began = time.process_time_ns()
    for _ in range(3_000_000):
        pass
    return (time.process_time_ns() - began) / 3_000_000


def report(base: Path, num_ranks: int, rate: int, share: float, outside: float, rss_mb: float, loop_ns: float) -> None:
    """Print the table."""
    sealed = [path for path in (base / "run").rglob("*.parquet") if path.parent.name != "index"]
    size = sum(path.stat().st_size for path in sealed if "collective" in path.parts)
    (row,) = duckdb.execute(
        f"SELECT count(*), count(DISTINCT (proc, record)) FROM '{base}/run/collective/*/*/*.parquet'"
    ).fetchall()
    # Per table and ten minutes one file, six an hour, merged to one at the end; entities are rewritten each time.
    facts = {
        path.relative_to(base / "run").parts[0] for path in sealed if len(path.relative_to(base / "run").parts) > 2
    }
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, empty loop {loop_ns:.1f} ns")
    print(f"{num_ranks} ranks x {rate} records/s        measured    must    aim")
    print(f"CPU of one core                 {100 * share:6.2f} %   2 %     1 %")
    print(f"CPU of starting and leaving     {outside:6.2f} s")
    print(f"resident memory, largest        {rss_mb:6.0f} MB  150 MB  80 MB")
    print(f"sealed files a node and hour    {6 * len(facts) + len(sealed):6d}     120")
    print(f"rows, of these distinct         {row[0]}, {row[1]}")
    print(f"Parquet bytes a row             {size / max(row[0], 1):6.1f}     32      16")


if __name__ == "__main__":
    main()
