"""What each rank's process got from the kernel: CPU time, waits for a CPU, switches, faults, threads, files, I/O.

Seen from outside, by /proc/<pid>, so a rank that hangs or starves is seen as well. "Runnable without a CPU" is the
contention that a rank suffers from its neighbours: /proc/<pid>/task/*/schedstat, second number, added up over threads.
The kernel keeps it and the context switches per thread and forgets them with the thread; totals are therefore carried
here from reading to reading (what a thread does after its last reading is lost). A thread that did not run since has no
new switches and is not asked for them: an idle thread costs one file, a busy one two, about 10 us each.

Sources: proc(5) stat, status, io, fd; Documentation/scheduler/sched-stats.rst.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from rankscope.schema.errors import HookUnavailable

from .kernel_files import names_in, read_or_why, read_text
from .sampling import LocalProcess, Row, Rows, Surroundings, with_reasons

MAX_THREADS: Final = 512
_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_COLUMNS: Final = (
    "cpu_user_ns", "cpu_system_ns", "num_involuntary_switches", "num_voluntary_switches", "run_queue_wait_ns",
    "num_minor_faults", "num_major_faults", "num_threads", "num_open_files", "read_bytes", "write_bytes", "rss_bytes",
)  # fmt: skip


class _Thread(NamedTuple):
    """What one thread counted at its last reading, in ns and switches."""

    ran_ns: int
    waited_ns: int
    num_involuntary: int
    num_voluntary: int


@dataclass(slots=True)
class _Threads:
    """All threads of one process that were ever seen. A thread's start time is not kept: ids are reused late."""

    last: dict[str, _Thread] = field(default_factory=dict)
    waited_ns: int = 0
    num_involuntary: int = 0
    num_voluntary: int = 0


def make(surroundings: Surroundings) -> "ProcessSampler":
    """The sampler. Raises HookUnavailable where there is no /proc of processes."""
    if not (surroundings.proc / "self").exists():
        raise HookUnavailable(f"{surroundings.proc} shows no processes")
    return ProcessSampler(surroundings)


class ProcessSampler:
    """One row per living process and reading."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._around = surroundings
        self._threads: dict[int, _Threads] = {}

    def sample(self, now_ns: int) -> Rows:
        """One reading of every process that still lives."""
        processes = self._around.processes()
        self._threads = {process.proc: self._threads.get(process.proc, _Threads()) for process in processes}
        rows = [row for process in processes if (row := self._row(process)) is not None]
        return {"process_sample": [{**row, "time_ns": now_ns} for row in rows]}

    def _row(self, process: LocalProcess) -> Row | None:
        keys: Row = {"proc": process.proc, "rank": process.rank}
        if process.pid is None:
            why = "it lives in another PID namespace than the agent"
            return with_reasons(keys, dict.fromkeys(_COLUMNS, why))
        folder = self._around.proc / str(process.pid)
        row, reasons = dict(keys), dict[str, str]()
        if not _add_stat(folder, row):
            return None  # it ended between two looks
        _add_io(folder, row, reasons)
        _add_open_files(folder, row, reasons)
        _add_threads(folder, self._threads[process.proc], row, reasons)
        return with_reasons(row, reasons)


def _add_stat(folder: Path, row: Row) -> bool:
    text = read_text(folder / "stat")
    fields = (text or "").rpartition(")")[2].split()  # the second, the name, may hold blanks and parentheses
    if len(fields) < 22:
        return False
    row |= {"num_minor_faults": int(fields[7]), "num_major_faults": int(fields[9]),
            "cpu_user_ns": int(fields[11]) * _TICK_NS, "cpu_system_ns": int(fields[12]) * _TICK_NS,
            "num_threads": int(fields[17]), "rss_bytes": int(fields[21]) * _PAGE_BYTES}  # fmt: skip
    return True


def _add_io(folder: Path, row: Row, reasons: dict[str, str]) -> None:
    text, why = read_or_why(folder / "io")
    found = dict(line.split(": ", 1) for line in (text or "").splitlines() if ": " in line)
    for column in ("read_bytes", "write_bytes"):
        row[column] = int(found[column]) if column in found else None
        reasons[column] = why or "the kernel does not account I/O by task"


def _add_open_files(folder: Path, row: Row, reasons: dict[str, str]) -> None:
    try:
        row["num_open_files"] = len(os.listdir(folder / "fd"))
    except OSError as error:
        row["num_open_files"], reasons["num_open_files"] = None, error.strerror or "it cannot be read"


def _add_threads(folder: Path, threads: _Threads, row: Row, reasons: dict[str, str]) -> None:
    names = names_in(folder / "task")
    columns = ("run_queue_wait_ns", "num_involuntary_switches", "num_voluntary_switches")
    if len(names) > MAX_THREADS:
        reasons |= dict.fromkeys(columns, f"more than {MAX_THREADS} threads")
        return
    why = ""
    for name in names:
        why = _read_thread(folder / "task" / name, name, threads) or why
    if not threads.last:
        reasons |= dict.fromkeys(columns, why or "it has no threads any more")
        return
    threads.last = {name: threads.last[name] for name in names if name in threads.last}
    row |= dict(zip(columns, (threads.waited_ns, threads.num_involuntary, threads.num_voluntary), strict=True))


def _read_thread(folder: Path, name: str, threads: _Threads) -> str:
    """Add what a thread counted since its last reading; returns why nothing could be read."""
    text, why = read_or_why(folder / "schedstat")
    parts = (text or "").split()
    if len(parts) != 3:
        return why or "the kernel keeps no schedstat"
    ran_ns, waited_ns = int(parts[0]), int(parts[1])
    last = threads.last.get(name)
    if last is None or ran_ns < last.ran_ns:
        last = _Thread(-1, 0, 0, 0)  # new, or its id was taken by another one
    involuntary, voluntary = last.num_involuntary, last.num_voluntary
    if ran_ns != last.ran_ns:
        involuntary, voluntary = _switches(folder) or (involuntary, voluntary)
    threads.waited_ns += max(0, waited_ns - last.waited_ns)
    threads.num_involuntary += max(0, involuntary - last.num_involuntary)
    threads.num_voluntary += max(0, voluntary - last.num_voluntary)
    threads.last[name] = _Thread(ran_ns, waited_ns, involuntary, voluntary)
    return ""


def _switches(folder: Path) -> tuple[int, int] | None:
    """Involuntary and voluntary context switches of a thread; None if it has just ended."""
    text = read_text(folder / "status") or ""
    found = dict(line.split(":", 1) for line in text.splitlines() if "ctxt_switches" in line)
    try:
        return int(found["nonvoluntary_ctxt_switches"]), int(found["voluntary_ctxt_switches"])
    except KeyError:
        return None
