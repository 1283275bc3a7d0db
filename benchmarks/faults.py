"""Faults injected into real torchrun jobs: does `rankscope stragglers` name the right rank and cause, and nobody else?

    python benchmarks/faults.py [--repeats 20] [--only data,compute] [--keep FOLDER]

Each kind of fault is a job of 4 gloo ranks that trains `--repeats` times, each time as a run of its own with another
late rank (`tests/system/jobs/faults.py`). Prints how often rank and cause were right, wrong, or nobody was named; for
even load and for sequences of different lengths nobody is right. The load of the machine is printed beside it: it makes
ranks late, too. unjudged: too little was recorded to say anything.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rankscope.analyzers.run import Run
from rankscope.analyzers.stragglers import stragglers
from rankscope.schema import paths
from rankscope.schema.measurement import Verdict

JOB = Path(__file__).parents[1] / "tests" / "system" / "jobs" / "faults.py"
RANKS = 4
CAUSES = {"even": None, "data": "data", "compute": "compute", "gc": "gc", "lengths": None, "untold": None,
          "grid": "compute", "buckets": "compute"}  # fmt: skip
"""Kinds of faults and the cause that is to be found; None: nobody is to be named."""
NEEDED = 0.95
JOB_SECONDS = 1800


@dataclass
class Count:
    """How the runs of one kind were judged."""

    right: int = 0
    wrong: int = 0
    nobody: int = 0
    unjudged: int = 0
    notes: tuple[str, ...] = ()


def main() -> int:
    """Run the jobs and print the table. Status 1 if a kind falls short of what is needed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20, help="runs of each kind")
    parser.add_argument("--only", default=",".join(CAUSES), help="kinds, comma-separated")
    parser.add_argument("--keep", default="", help="leave the runs in this folder")
    given = parser.parse_args()
    folder = Path(given.keep or tempfile.mkdtemp(prefix="rankscope-faults-"))
    print(f"{os.cpu_count()} CPUs, {RANKS} ranks, {given.repeats} runs of each kind")
    print(f"{'kind':<10}{'right':>7}{'wrong':>7}{'nobody':>8}{'unjudged':>10}  load (1 min)")
    is_good = True
    try:
        for kind in given.only.split(","):
            found = judged(kind, given.repeats, folder / kind)
            counts = f"{found.right:>7}{found.wrong:>7}{found.nobody:>8}{found.unjudged:>10}"
            print(f"{kind:<10}{counts}  {os.getloadavg()[0]:.1f}", flush=True)
            for note in found.notes:
                print(f"    {note}", flush=True)
            least = given.repeats if CAUSES[kind] is None else NEEDED * given.repeats
            is_good &= found.right >= least
    finally:
        clean(folder, bool(given.keep))
    return 0 if is_good else 1


def judged(kind: str, repeats: int, folder: Path) -> Count:
    """Run the job and judge each of its runs."""
    faults = [f"{kind}:{number % RANKS}" for number in range(repeats)]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*launch, str(JOB), str(folder), *faults], env=environment, capture_output=True, text=True,
                          timeout=JOB_SECONDS, check=False)  # fmt: skip
    if done.returncode:
        sys.exit(f"{kind}: the job failed\n{done.stderr[-3000:]}")
    count, notes = Count(), [line for line in done.stderr.splitlines() if line.startswith("rankscope")]
    for number in range(repeats):
        os.environ["RANKSCOPE_LOCAL_DIR"] = str(folder / f"{number}-local")
        with Run.open(str(folder / str(number))) as run:
            found = stragglers(run)
        named = [verdict for verdict in found.verdicts if verdict.ranks]
        verdict = "unjudged" if found.reason else judgement(named, CAUSES[kind], number % RANKS)
        setattr(count, verdict, getattr(count, verdict) + 1)
        is_right = verdict == "right" or (verdict == "nobody" and CAUSES[kind] is None)
        if not is_right:
            notes.append(f"{number}: " + ("; ".join(item.text for item in found.verdicts) or found.reason))
    if CAUSES[kind] is None:
        count.right = count.nobody
    count.notes = tuple(notes)
    return count


def judgement(named: list[Verdict], cause: str | None, late: int) -> str:
    """right: exactly the late rank, with its cause; nobody; else wrong."""
    if not named:
        return "nobody"
    is_right = cause is not None and [item.ranks for item in named] == [(late,)] and named[0].cause == cause
    return "right" if is_right else "wrong"


def clean(folder: Path, is_kept: bool) -> None:
    """Delete the runs, and what the job left in memory."""
    for launch in folder.glob("*/*-local/*/*"):
        shutil.rmtree(paths.TMPFS_BASE / launch.parent.name / launch.name, ignore_errors=True)
    if not is_kept:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
