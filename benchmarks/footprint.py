"""What rankscope costs a training process besides time in collectives: memory, threads, import, and writing the ring.

    python benchmarks/footprint.py [--repeats 5] [--records 300000] [--disk FOLDER]

Memory and threads: a one-rank gloo training of 50 steps, with and without, interleaved; read from /proc by the process
itself after the last step. Import: of `rankscope.auto` after torch. Ring: one loop that reads the clock, writes a
collective's record and reads the clock again, per place, alone and beside `dd conv=fsync` into the same disk; and the
same loop without the write, which shows what the machine itself does to a loop.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rankscope.schema import ring
from rankscope.tracer import ring_file
from rankscope.tracer.journal import Journal
from rankscope.tracer.recorder import RingRecorder

TRAIN = """
import json, os, sys, time
import torch, torch.distributed as dist
begun, cpu = time.perf_counter(), time.process_time()
if sys.argv[1] == "on":
    import rankscope.auto
import_ms, import_cpu_ms = (time.perf_counter() - begun) * 1e3, (time.process_time() - cpu) * 1e3
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(50):
    optimizer.zero_grad(); model(torch.ones(8, 64)).sum().backward(); optimizer.step()
time.sleep(1.5)  # the watch thread has had its first turn
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
told = {name: int(status[name].split()[0]) for name in ("VmRSS", "RssAnon", "RssFile", "RssShmem", "Threads")}
switches = 0
for thread in os.listdir("/proc/self/task"):
    name = open(f"/proc/self/task/{thread}/comm").read().strip()
    if name.startswith("rankscope"):
        text = dict(line.split(":", 1) for line in open(f"/proc/self/task/{thread}/status"))
        switches += int(text["voluntary_ctxt_switches"])
print(json.dumps({**told, "import_ms": import_ms, "import_cpu_ms": import_cpu_ms, "switches": switches}))
"""
HEAVY = ("numpy", "pyarrow", "duckdb", "rich", "opentelemetry")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--disk", type=Path, default=Path(tempfile.gettempdir()), help="a folder on a local disk")
    options = parser.parse_args()
    machine = f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{machine}, load {os.getloadavg()[0]:.1f}\n")
    process_table(options.repeats)
    ring_table(options.records, options.disk)


def process_table(repeats: int) -> None:
    """Memory, threads and import time: medians of `repeats` runs each, interleaved."""
    seen: dict[str, list[dict[str, float]]] = {"off": [], "on": []}
    with tempfile.TemporaryDirectory() as cache:
        train_once("on", cache)
        for _ in range(repeats):
            for mode, found in seen.items():
                found.append(train_once(mode, cache))
    print("| training process | off | on | extra |\n|---|---|---|---|")
    for name, unit in (("VmRSS", "KiB"), ("RssAnon", "KiB"), ("RssFile", "KiB"), ("RssShmem", "KiB"), ("Threads", "")):
        off, on = (statistics.median(run[name] for run in seen[mode]) for mode in ("off", "on"))
        print(f"| {name} {unit} | {off:,.0f} | {on:,.0f} | {on - off:+,.0f} |")
    for name, what in (("import_ms", "elapsed"), ("import_cpu_ms", "CPU time")):
        times = sorted(run[name] for run in seen["on"])
        figure = f"{statistics.median(times):.1f} ms | min {times[0]:.1f} ms"
        print(f"| import rankscope.auto after torch, {what} | | {figure} |")
    wakes = max(run["switches"] for run in seen["on"])
    print(f"| wakes of our thread in its first 1.5 s | | {wakes:.0f} | |")
    print(f"| heavy modules loaded by `import rankscope.auto` | | {', '.join(heavy_modules()) or 'none'} | |\n")


def train_once(mode: str, cache: str) -> dict[str, float]:
    """One training in a process of its own. cache: for bytecode, which an installed package brings along."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "RANKSCOPE_AGENT": "off", "RANKSCOPE_DIR": f"{folder}/run",
                       "RANKSCOPE_LOCAL_DIR": f"{folder}/local", "PYTHONPYCACHEPREFIX": cache}  # fmt: skip
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        done = subprocess.run(
            [sys.executable, "-c", TRAIN, mode, f"{folder}/store"], env=environment, cwd=folder,
            capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        for launch in Path(folder).glob("local/*/*"):
            remove_rings(launch)
        found: dict[str, float] = json.loads(done.stdout)
        return found


def remove_rings(launch: Path) -> None:
    """The rings of a launch whose agent was off."""
    folder = Path("/dev/shm") / launch.parent.name / launch.name
    for path in folder.glob("*.ring"):
        path.unlink()
    with suppress(OSError):
        folder.rmdir()


def heavy_modules() -> list[str]:
    """Of the modules that a training process should not load, those that the import loads."""
    script = f"import sys, rankscope.auto; print(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.split()


def ring_table(num_records: int, disk: Path) -> None:
    """Ring writes per place, alone and beside a writer that syncs."""
    print("| ring write, us | beside | p50 | p99 | p99.99 | max |\n|---|---|---|---|---|---|")
    for place, folder in (("tmpfs", Path("/dev/shm")), ("disk", disk)):
        for beside in (False, True):
            with new_ring(folder) as recorder, syncing_writer(disk) if beside else nothing():
                layout = ring.layout_of("collective")
                values = [1] * len(layout.open_columns)
                report(place, beside, timed_loop(lambda: recorder.open(layout, *values), num_records))  # noqa: B023
    for beside in (False, True):
        with syncing_writer(disk) if beside else nothing():
            report("no write", beside, timed_loop(lambda: None, num_records))


def timed_loop(work: Callable[[], object], num_records: int) -> list[int]:
    """Times of `num_records` calls in ns, sorted."""
    now, times = time.perf_counter_ns, [0] * num_records
    for index in range(num_records):
        begun = now()
        work()
        times[index] = now() - begun
    return sorted(times)


def report(place: str, beside: bool, times: list[int]) -> None:
    """One row of the ring's table."""
    figures = [times[int(share * (len(times) - 1))] / 1e3 for share in (0.5, 0.99, 0.9999, 1.0)]
    print(
        f"| {place} | {'dd conv=fsync' if beside else '-'} | "
        + " | ".join(f"{figure:,.2f}" for figure in figures)
        + " |"
    )


@contextmanager
def nothing() -> Iterator[None]:
    """No writer beside."""
    yield


@contextmanager
def syncing_writer(disk: Path) -> Iterator[None]:
    """`dd conv=fsync` of 256 MB after 256 MB into a file on `disk`, until the block ends."""
    path = disk / f"rankscope-footprint-{os.getpid()}"
    loop = f"while :; do dd if=/dev/zero of={path} bs=1M count=256 conv=fsync 2>/dev/null; done"
    writer = subprocess.Popen(["sh", "-c", loop], start_new_session=True)
    try:
        yield
    finally:
        os.killpg(writer.pid, 9)
        writer.wait()
        path.unlink(missing_ok=True)


class Place:
    """A coordinator whose ring lies where it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def awake(self) -> ring_file.RingFile:
        """A ring of the default size."""
        return ring_file.create("bench.ring", 1, self.folder, None, ring.DEFAULT_CAPACITY)

    def joined(self, rank: int, world_size: int, store: Any) -> None:
        """Not here."""

    def left(self) -> None:
        """Not here."""

    def boundary(self) -> None:
        """Not here."""


@contextmanager
def new_ring(folder: Path) -> Iterator[RingRecorder]:
    """A recorder whose ring lies below `folder`; removed afterwards."""
    with tempfile.TemporaryDirectory(dir=folder) as base:
        recorder = RingRecorder(Place(Path(base) / "rings" / "bench"), Journal())
        recorder.awake()
        yield recorder
        made = recorder.ring
        recorder.switch_off()
        if made is not None:
            os.close(made.descriptor)


if __name__ == "__main__":
    main()
