"""SIGKILL of a rank, the agent, everything at random moments: is every record that was completed still there?

    python benchmarks/crash.py [--kills 200] [--seed 0] [--keep-local]

Each round starts two processes (plain python: attach, join, then spans, so that a round takes seconds, not the import
of torch; `tests/system/test_crash.py` does the same with torchrun and all_reduce), kills at a moment drawn at random,
and compares what a reader finds with what the processes wrote to files of their own, one system call a span. Every
fourth round everything is killed and the local directory deleted at once: then at most 2 s may be missing.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rankscope.schema import paths
from rankscope.schema.arrow import conform
from rankscope.schema.leftovers import find_leftovers
from rankscope.schema.merge import merge_rows
from rankscope.schema.streams import read_stream
from rankscope.tracer.rundir import RunDir
from rankscope.tracer.seal import seal
from rankscope.tracer.verify import sealed_names, verify

VICTIMS = ("rank", "agent", "everything", "everything and the local disk")
RANK = '''
import os, time
import rankscope


class Store(dict):
    """A job's store, for a process that is alone in its group."""

    def check(self, keys):
        return all(key in self for key in keys)

    def set(self, key, value):
        self[key] = value if isinstance(value, bytes) else value.encode()

    def get(self, key):
        return self[key]


rankscope.attach().recorder.joined(0, 1, Store())
witness = os.open(f"{os.environ['WITNESS']}/{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
number, deadline = 0, time.monotonic() + 30
while time.monotonic() < deadline and not os.path.exists(os.environ["WITNESS"] + "/stop"):
    with rankscope.span("work"):
        pass
    number += 1
    os.write(witness, b"%d %d\\n" % (number, time.monotonic_ns()))
    time.sleep(0.001)
with rankscope.span("last"):
    time.sleep(0.01)
'''


@dataclass
class Round:
    """What one round showed. lost: completed spans that nobody finds; missing_seconds: age of the newest one found."""

    victim: str
    num_completed: int
    num_lost: int
    num_twice: int
    missing_seconds: float
    num_bad_files: int


def main() -> None:
    """Run the rounds and print the table. Exit status 1 if something was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw, rounds = random.Random(options.seed), []
    for number in range(options.kills):
        with tempfile.TemporaryDirectory(prefix="crash") as base:
            rounds.append(play(Path(base), VICTIMS[number % len(VICTIMS)], draw.uniform(0.2, 5.0)))
        if rounds[-1].num_lost and "disk" not in rounds[-1].victim:
            print(f"round {number}: {rounds[-1]}", flush=True)
    sys.exit(report(rounds))


def play(base: Path, victim: str, after_seconds: float) -> Round:
    """One round below `base`."""
    witness = base / "witness"
    witness.mkdir()
    (base / "rank.py").write_text(RANK)
    os.environ.update(
        RANKSCOPE_DIR=str(base / "run"), RANKSCOPE_LOCAL_DIR=str(base / "local"), RANKSCOPE_RUN_ID="crash",
        RANKSCOPE_AGENT="now", WITNESS=str(witness), OMP_NUM_THREADS="1",
    )  # fmt: skip
    ranks = [subprocess.Popen([sys.executable, str(base / "rank.py")]) for _ in range(2)]
    while len(list(witness.iterdir())) < 2 or not agents(base) or not (base / "run" / paths.RUN_FILE).exists():
        time.sleep(0.01)
    time.sleep(after_seconds)
    killed_ns = kill(base, victim, ranks)
    if victim in ("rank", "agent"):
        time.sleep(0.5)
        (witness / "stop").touch()
    for rank in ranks:
        rank.wait()
    wait_for_agents(base)
    return compare(base, victim, killed_ns)


def kill(base: Path, victim: str, ranks: list[subprocess.Popen[bytes]]) -> int:
    """Kill; returns the moment (CLOCK_MONOTONIC ns)."""
    if victim == "rank":
        ranks[0].kill()
    elif victim == "agent":
        for pid in agents(base):
            os.kill(pid, signal.SIGKILL)
    else:
        for pid in [*(rank.pid for rank in ranks), *agents(base)]:
            os.kill(pid, signal.SIGKILL)
    moment = time.monotonic_ns()
    if "disk" in victim:
        for launch in base.glob("local/*/*"):
            shutil.rmtree(paths.TMPFS_BASE / launch.parent.name / launch.name, ignore_errors=True)
        shutil.rmtree(base / "local", ignore_errors=True)
    return moment


def agents(base: Path) -> list[int]:
    """The agents that work below `base`."""
    found = []
    for name in os.listdir("/proc"):
        try:
            command = Path(f"/proc/{name}/cmdline").read_bytes() if name.isdigit() else b""
        except OSError:
            continue
        if b"tracer.agent" in command and str(base).encode() in command:
            found.append(int(name))
    return found


def wait_for_agents(base: Path) -> None:
    """Until they have left."""
    while agents(base):
        time.sleep(0.05)


def compare(base: Path, victim: str, killed_ns: int) -> Round:
    """Hold what is found, before and after sealing, against the witnesses."""
    lost = twice = 0
    missing = 0.0
    witnesses = {int(p.name): int(p.read_bytes().split()[-2]) for p in (base / "witness").iterdir() if p.name != "stop"}
    for is_sealed in (False, True):
        if is_sealed:
            seal(str(base / "run"))
        pids = {row["proc"]: row["pid"] for row in rows_of(base, "process")}
        spans = [row for row in rows_of(base, "span") if row["name"] == "work" and row["end_ns"] is not None]
        found = Counter(pids[row["proc"]] for row in spans)
        lost = max(lost, sum(max(0, number - found[pid]) for pid, number in witnesses.items()))
        twice = max(twice, sum(max(0, found[pid] - number - 1) for pid, number in witnesses.items()))
        newest = max((row["end_ns"] for row in spans), default=0)
        missing = max(missing, (killed_ns - newest) / 1e9)
    num_bad = sum(problem.kind != "not sealed" for problem in verify(str(base / "run")).problems)
    return Round(victim, sum(witnesses.values()), lost, twice, missing, num_bad)


def rows_of(base: Path, table: str) -> list[dict[str, Any]]:
    """What a reader finds: sealed files, streams, leftovers."""
    place = RunDir(str(base / "run"))
    names = [name for name in sealed_names(place) if name.split("/")[0] == table]
    parts = [conform(pq.read_table(base / "run" / name, partitioning=None), table) for name in names]
    parts += [read_stream(str(path), table) for path in sorted(base.glob(f"run/live/*/{table}.*.arrows"))]
    for leftover in find_leftovers(str(base / "run")):
        parts += [rows for key, rows in leftover.tables().items() if key[0] == table]
    found: list[dict[str, object]] = merge_rows(pa.concat_tables(parts).unify_dictionaries(), table).to_pylist()
    return found


def report(rounds: list[Round]) -> int:
    """Print the table; 1 if something was lost that must not be."""
    print(f"{'killed':32s} rounds  completed   lost  twice  bad files  newest found before the kill, s (median, max)")
    bad = 0
    for victim in VICTIMS:
        these = [each for each in rounds if each.victim == victim]
        if not these:
            continue
        ages = sorted(each.missing_seconds for each in these)
        lost, twice = sum(each.num_lost for each in these), sum(each.num_twice for each in these)
        files = sum(each.num_bad_files for each in these)
        age = f"{ages[len(ages) // 2]:.2f}, {ages[-1]:.2f}" if victim.startswith("everything") else "-"
        completed = sum(each.num_completed for each in these)
        print(f"{victim:32s} {len(these):6d} {completed:10d} {lost:6d} {twice:6d} {files:10d}  {age}")
        bad += twice + files + (ages[-1] > 2.0 if "disk" in victim else lost)
    return 1 if bad else 0


if __name__ == "__main__":
    main()
