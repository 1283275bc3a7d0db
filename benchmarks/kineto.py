"""Import and analysis of a Kineto trace against HolisticTraceAnalysis on the same file: time, memory, the same numbers.

    python benchmarks/kineto.py --hta-python VENV/bin/python [--trace FILE] [--repeats 3]

VENV holds `traceinsight==0.6.1 pandas==2.3.3 numpy==1.26.4 plotly==7.1.0`. Without --trace the largest trace below
RANKSCOPE_TEST_DATA is taken: v100_5steps/df_index_resolver.json.gz (54 MB), from HolisticTraceAnalysis, tests/data.
Each repeat takes each tool from its start to its exit, with bytecode at hand, as installed packages have it. HTA is
asked for what `rankscope time` tells: breakdown, overlap, kernels by name. rankscope answers in two ways: `time TRACE`
at once, and as two commands, of which `import` writes a run and `time` analyses it (times are added, of the peaks the
larger counts). The last line is `time --hta`, which computes breakdown and overlap as HTA does, and is compared with
HTA without its kernels by name. All print JSON: HTA draws nothing either. CPU time is what remains on a machine with
other work. Exit status 1 if the figures of the acceptance list (10x by CPU time, half the memory, the same numbers)
are not met by `time TRACE`.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

LARGEST = "kineto/v100_5steps/df_index_resolver.json.gz"
HTA = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from time import process_time
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]})
found = analysis.get_temporal_breakdown(visualize=False).to_dict("records")[0]
found |= analysis.get_comm_comp_overlap(visualize=False).to_dict("records")[0]
before = process_time()
analysis.get_gpu_kernel_breakdown(visualize=False)
print("KERNELS", process_time() - before)
print("ANSWER" + json.dumps({key: float(value) for key, value in found.items() if key != "rank"}))
"""
COMMAND = "from rankscope.cli.main import main; main()"
HTA_NAME, AT_ONCE, TWO, LIKE_HTA = "HolisticTraceAnalysis", "time TRACE", "import, then time", "time --hta TRACE"


class Cost(NamedTuple):
    """One process. seconds: wall; cpu_seconds: user and system; peak_mib: largest resident set."""

    seconds: float
    cpu_seconds: float
    peak_mib: float
    output: str


def measure(command: list[str], cache: str) -> Cost:
    """Run `command` to its end. cache: for bytecode. Raises CalledProcessError."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile() as out:
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        out.seek(0)
        text = out.read().decode()
    return Cost(seconds, usage.ru_utime + usage.ru_stime, peak_mib(usage), text)


def both(first: Cost, second: Cost) -> Cost:
    """One after the other: times add up, of the peaks the larger counts."""
    return Cost(first.seconds + second.seconds, first.cpu_seconds + second.cpu_seconds,
                max(first.peak_mib, second.peak_mib), second.output)  # fmt: skip


def peak_mib(usage: resource.struct_rusage) -> float:
    """Linux counts in KiB."""
    return usage.ru_maxrss / 1024


def rounds(trace: str, hta_python: str, repeats: int) -> dict[str, list[Cost]]:
    """The tools in turn, `repeats` times, after one time that is not counted."""
    found: dict[str, list[Cost]] = {HTA_NAME: [], AT_ONCE: [], TWO: [], LIKE_HTA: []}
    with tempfile.TemporaryDirectory() as folder:

        def rankscope(*arguments: str) -> Cost:
            return measure([sys.executable, "-c", COMMAND, *arguments, "--json"], f"{folder}/cache")

        for number in range(repeats + 1):
            out = f"{folder}/run{number}"
            found[HTA_NAME].append(measure([hta_python, "-c", HTA, trace], f"{folder}/hta-cache"))
            found[AT_ONCE].append(rankscope("time", trace))
            found[TWO].append(both(rankscope("import", "kineto", trace, "-o", out), rankscope("time", out)))
            found[LIKE_HTA].append(rankscope("time", "--hta", trace))
    return {name: costs[1:] for name, costs in found.items()}


def answers(found: dict[str, list[Cost]]) -> list[tuple[Any, Any]]:
    """Pairs that must be equal: HTA and the mode like it, by HTA's names; the trace itself and the imported run.

    Communication by mesh dimension is told by the run only.
    """
    hta = json.loads(found[HTA_NAME][0].output.partition("ANSWER")[2])
    ours = json.loads(found[LIKE_HTA][0].output)["hta"][0]
    at_once, run = numbers(found[AT_ONCE][0]), numbers(found[TWO][0])
    return [(hta, {key: ours[key] for key in hta}), (at_once, {name: run.get(name) for name in at_once})]


def numbers(cost: Cost) -> dict[str, Any]:
    """What `rankscope time` measured, by name."""
    return {item["name"]: item["value"] for item in json.loads(cost.output)["measurements"]}


def kernels_cpu(cost: Cost) -> float:
    """The CPU time of HTA's kernels by name."""
    return float(cost.output.partition("KERNELS")[2].split()[0])


def report(found: dict[str, list[Cost]]) -> bool:
    """Print the table; True if the figures of the acceptance list are met."""
    base = medians(found[HTA_NAME])
    names = statistics.median(map(kernels_cpu, found[HTA_NAME]))
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {len(found[TWO])} repeats, medians")
    print(f"{'':<24}{'wall s':>9}{'CPU s':>9}{'peak MiB':>10}{'wall':>8}{'CPU':>8}{'memory':>9}")
    for name, costs in found.items():
        cost, less = medians(costs), names if name == LIKE_HTA else 0.0
        ratios = [(base[at] - less) / cost[at] for at in range(2)]
        print(f"{name:<24}{cost[0]:>9.2f}{cost[1]:>9.2f}{cost[2]:>10.0f}"
              f"{ratios[0]:>7.1f}x{ratios[1]:>7.1f}x{cost[2] / base[2]:>9.2f}")  # fmt: skip
    different = [pair for pair in answers(found) if pair[0] != pair[1]]
    print("same numbers:", f"no: {different}" if different else "yes")
    ours = medians(found[AT_ONCE])
    return not different and base[1] >= 10 * ours[1] and ours[2] <= base[2] / 2


def medians(costs: list[Cost]) -> tuple[float, float, float]:
    """Wall, CPU, memory."""
    wall, cpu, peak = ([cost[at] for cost in costs] for at in range(3))
    return (
        statistics.median(map(float, wall)),
        statistics.median(map(float, cpu)),
        statistics.median(map(float, peak)),
    )


def main() -> int:
    """The command line; 0 if the figures are met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hta-python", required=True)
    parser.add_argument("--trace", default="")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    trace = options.trace or str(Path(os.environ.get("RANKSCOPE_TEST_DATA", ".")) / LARGEST)
    if not Path(trace).exists():
        print(f"{trace} is not there: set RANKSCOPE_TEST_DATA or give --trace")
        return 2
    return 0 if report(rounds(trace, options.hta_python, options.repeats)) else 1


if __name__ == "__main__":
    sys.exit(main())
