"""What live export costs: the agent's CPU per export, and what a job feels of an endpoint that is well or unwell.

    python benchmarks/otlp.py [--repeats 3] [--no-jobs]

Per export: points are made, encoded, compressed and sent over loopback to rotel by one thread, whose CPU time is taken.
The job: two ranks, alternately without export and with each kind of endpoint, so that a machine that gets slower is not
taken for an endpoint that does; what counts is the difference of medians beside the spread without export. The agent
is a process of its own that nobody waits for; how long it outlives the job is told as well.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np

ROOT: Final = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from otlp_receiver import Running  # noqa: E402
from rotel_collector import Rotel  # noqa: E402

JOB: Final = ROOT / "tests" / "system" / "jobs" / "exporting.py"
ENDPOINTS: Final = ("none", "well", "dead", "refuse", "hang")
SIZES: Final = (200, 2_000)
EXPORTS: Final = 20


def main() -> None:
    """Run and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="jobs for each kind of endpoint")
    parser.add_argument("--no-jobs", action="store_true", help="only the CPU per export")
    options = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        exports(Path(folder))
        if not options.no_jobs:
            jobs(Path(folder), options.repeats)


def exports(folder: Path) -> None:
    """CPU of one export, by protocol and compression."""
    print("\nCPU of one export of metrics (ms)      points:", *(f"{size:>8,}" for size in SIZES))
    with Running() as receiver, Rotel(receiver, folder) as collector:
        for protocol in ("http/protobuf", "grpc"):
            for compression in ("none", "gzip"):
                os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.endpoint(protocol)
                os.environ["OTEL_EXPORTER_OTLP_COMPRESSION"] = compression
                costs = [1e3 * cpu_of_export(protocol, size) for size in SIZES]
                print(f"{protocol:>20} {compression:>8}", " " * 17, *(f"{cost:8.1f}" for cost in costs))
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_COMPRESSION"):
        del os.environ[name]


def cpu_of_export(protocol: str, num_points: int) -> float:
    """Median CPU seconds of this process for making, encoding and sending a snapshot."""
    from rankscope.tracer.otlp import sending
    from rankscope.tracer.otlp.meter import RunPoints, Snapshot
    from rankscope.tracer.otlp.series import Series

    series = Series(time.time_ns())
    for number in range(num_points):
        name = ("training.step.duration", "training.collective.io", "training.collective.wait.time")[number % 3]
        attributes = (("training.rank", number // 25), ("training.collective.operation", f"op{number % 25}"))
        if name == "training.step.duration":
            series.observe(name, attributes, np.array([100_000_000, 200_000_000]))
        else:
            series.add(name, attributes, number)
    send, costs = sending.metrics("otlp", protocol, False), []
    for _ in range(EXPORTS):
        began = time.process_time()
        points = tuple(series.points((("training.run.id", "benchmark"),)))
        assert send(Snapshot(time.time_ns(), (RunPoints({"service.name": "benchmark"}, points),)))
        costs.append(time.process_time() - began)
    return statistics.median(costs)


def jobs(folder: Path, repeats: int) -> None:
    """Wall time of the job and of the agent's stay, by endpoint."""
    taken: dict[str, list[tuple[float, float]]] = {kind: [] for kind in ENDPOINTS}
    for number in range(repeats):
        for kind in ENDPOINTS:
            taken[kind].append(job(folder / f"{kind}{number}", kind))
    base = [seconds for seconds, _ in taken["none"]]
    print(f"\nA job of two ranks, medians of {repeats} (s); without export {min(base):.1f} .. {max(base):.1f}")
    print(f"{'endpoint':>10} {'job':>8} {'difference':>12} {'agent stays':>12} {'than without':>13}")
    stays = statistics.median(stay for _, stay in taken["none"])
    for kind, found in taken.items():
        seconds, stay = (statistics.median(values) for values in zip(*found, strict=True))
        more = seconds - statistics.median(base)
        print(f"{kind:>10} {seconds:8.2f} {more:+12.2f} {stay:12.2f} {stay - stays:+13.2f}")


def job(place: Path, kind: str) -> tuple[float, float]:
    """How long the job took, and how much longer its agent was there."""
    place.mkdir()
    with Running(kind if kind in ("refuse", "hang") else "answer") as receiver:
        where = {"none": {}, "dead": {"OTEL_EXPORTER_OTLP_ENDPOINT": unused()}}
        env = {
            **os.environ, "OMP_NUM_THREADS": "1", "RANKSCOPE_DIR": str(place / "run"), "RANKSCOPE_AGENT": "now",
            "RANKSCOPE_LOCAL_DIR": str(place / "local"), "OTEL_METRIC_EXPORT_INTERVAL": "1000",
            **where.get(kind, {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint}),
        }  # fmt: skip
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(JOB)]
        began = time.monotonic()
        subprocess.run(command, env=env, cwd=place, check=True, capture_output=True, timeout=300)
        seconds = time.monotonic() - began
        began = time.monotonic()
        while agents(place):
            time.sleep(0.05)
        return seconds, time.monotonic() - began


def agents(place: Path) -> list[str]:
    """Agents of the job that are still there."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        if b"rankscope.tracer.agent" in text and str(place).encode() in text:
            found.append(path.parent.name)
    return found


def unused() -> str:
    """An address where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


if __name__ == "__main__":
    main()
