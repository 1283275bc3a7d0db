"""The whole report of large runs: time, memory, linear in rows, and the planted straggler found.

    python benchmarks/scale.py [--jobs 1024x1000x100 16384x100x100] [--layout tp=8] [--fractions 0.1 1] [--cores 2]
                               [--keep FOLDER]

Each job is RANKSxSTEPSxCOLLECTIVES, written by `rankscope synth` (seeded): tensor parallel by 8 inside nodes of 8, data
parallel across them (or another --layout; with a pipeline four micro-batches), clocks up to 50 ms off and drifting, one
rank 3 ms late by compute in every step. For each fraction of the steps `rankscope report` is run once on --cores cores,
from its start to its exit. Printed: rows of table collective; wall and CPU seconds; the peak of the proportional set
sizes of all its processes, looked at 5 times a second; CPU microseconds a row; whether a headline names the rank. Last,
the ratio of CPU time a row between the largest and the smallest fraction: 1 is linear. CPU time divided by --cores is
what the report takes where nothing else runs. Needs room for about 16 bytes a row in the folder for temporary files;
exit status 1 if the figures of the acceptance list (60 s, 4 GiB, found) are not met by wall time.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

COMMAND = "from rankscope.cli.main import main; main()"
MAX_SECONDS, MAX_GIB = 60.0, 4.0
LATE_BY = "compute:3ms"


class Job(NamedTuple):
    """A synthetic run."""

    ranks: int
    steps: int
    collectives: int

    @classmethod
    def parse(cls, text: str) -> "Job":
        """From RANKSxSTEPSxCOLLECTIVES. Raises ValueError."""
        ranks, steps, collectives = (int(part) for part in text.split("x"))
        return cls(ranks, steps, collectives)

    @property
    def late_rank(self) -> int:
        """The rank that is planted as late: somewhere in the middle of a node in the middle."""
        return self.ranks // 2 + 5


class Cost(NamedTuple):
    """One report. rows: of table collective; is_found: the late rank stands in a headline."""

    rows: int
    seconds: float
    cpu_seconds: float
    peak_gib: float
    is_found: bool


def main() -> int:
    """Print the table; 1 if a figure of the acceptance list is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", nargs="+", type=Job.parse, default=[Job(1024, 1000, 100), Job(16384, 100, 100)])
    parser.add_argument("--layout", default="tp=8", help="as `rankscope synth` takes it")
    parser.add_argument("--fractions", nargs="+", type=float, default=[0.1, 1.0])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="where runs are kept, or found from an earlier time")
    chosen = parser.parse_args()
    is_met = True
    print("ranks x steps x collectives |        rows | wall s |  CPU s | peak GiB | CPU us/row | found", flush=True)
    for job in chosen.jobs:
        costs = []
        for fraction in sorted(chosen.fractions):
            part = job._replace(steps=max(2, round(job.steps * fraction)))
            with tempfile.TemporaryDirectory() as folder:
                cost = report(written(part, chosen.layout, chosen.keep or Path(folder)), part, chosen.cores)
            costs.append(cost)
            print(
                f"{part.ranks:,} x {part.steps:,} x {part.collectives:,}".ljust(27),
                f"| {cost.rows:>11,} | {cost.seconds:6.1f} | {cost.cpu_seconds:6.1f} | {cost.peak_gib:8.2f} "
                f"| {1e6 * cost.cpu_seconds / cost.rows:10.2f} | {'yes' if cost.is_found else 'no'}",
                flush=True,
            )
            is_met &= cost.seconds <= MAX_SECONDS and cost.peak_gib <= MAX_GIB and cost.is_found
        if len(costs) > 1:
            slope = costs[-1].cpu_seconds / costs[-1].rows / (costs[0].cpu_seconds / costs[0].rows)
            print(f"    CPU time a row, {chosen.fractions[-1]:g} against {chosen.fractions[0]:g} of it: {slope:.2f}x")
    return 0 if is_met else 1


def written(job: Job, layout: str, folder: Path) -> Path:
    """The run of `job` below `folder`, made if it is not there."""
    run = folder / f"{job.ranks}x{job.steps}x{job.collectives} {layout}"
    if not run.exists():
        place = ["--layout", layout, "--ranks-per-node", "8", "--clock-offset-ms", "50", "--drift-ppm", "20"]
        place += ["--microbatches", "4"] if "pp=" in layout else []
        size = ["--ranks", str(job.ranks), "--steps", str(job.steps), "--collectives", str(job.collectives)]
        late = ["--straggler", f"{job.late_rank}:{LATE_BY}"]
        subprocess.run(
            [sys.executable, "-c", COMMAND, "synth", "-o", str(run), *size, *place, *late],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    return run


def report(run: Path, job: Job, cores: int) -> Cost:
    """One report of `run`, on so many of this process's cores. Raises CalledProcessError."""
    allowed = set(sorted(os.sched_getaffinity(0))[:cores])
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "report", str(run)], stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, allowed),  # noqa: PLW1509 -- this process has no other threads yet
    )  # fmt: skip
    peak = Peak(process.pid)
    output, _ = process.communicate()
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    peak_bytes = peak.stop()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, "rankscope report", output)
    cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    headlines = output.partition("\nSteps\n")[0]
    is_found = re.search(rf"\brank {job.late_rank}\b", headlines, re.IGNORECASE) is not None
    rows = sum(pq.read_metadata(path).num_rows for path in run.glob("collective/*/*/*.parquet"))
    return Cost(rows, seconds, cpu_seconds, peak_bytes / 2**30, is_found)


class Peak:
    """Looks at the memory of a process and its children until it is stopped."""

    def __init__(self, pid: int) -> None:
        self._pid, self._most, self._is_over = pid, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """The largest sum of proportional set sizes that was seen, in bytes."""
        self._is_over.set()
        self._thread.join()
        return self._most

    def _watch(self) -> None:
        while not self._is_over.wait(0.2):
            self._most = max(self._most, sum(_set_size(pid) for pid in _family(self._pid)))


def _family(pid: int) -> list[int]:
    found = [pid]
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in path.read_text().split():
                found += _family(int(child))
        except OSError:
            continue
    return found


def _set_size(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    sys.exit(main())
