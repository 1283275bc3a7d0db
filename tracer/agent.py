"""The node agent: one process per launch and node that drains the local ranks' rings and journals into the run.

It finds every process of the launch folder, whatever run and incarnation it belongs to, hands each one's rows to its
run's writer every 1.6 s, seals every ten minutes, and leaves within 5 s of the last local rank: it merges its files,
looks once more for live rings while it still holds the folder's lock, and deletes rings and journals whose rows are
safely sealed. What it costs at 8 ranks of 1,000 records a second: `benchmarks/agent_cost.py`.

`python -m rankscope.tracer.agent --folder F [--lock-fd N]`; without a descriptor it takes the lock itself.
"""

import argparse
import contextlib
import fcntl
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from rankscope.schema import paths
from rankscope.schema.errors import SettingsError
from rankscope.schema.leftovers import folder_run, run_of
from rankscope.schema.process_rows import PlacedRow, this_boot
from rankscope.schema.process_state import RunRef

from .drain import Batch, ProcessDrain, remove_files
from .launch import take_lock
from .launch_folders import clean, remove_stale
from .node_samplers import NodeSamplers
from .one_place import OnePlace
from .otlp.wanted import wanted
from .run_writer import AgentIdentity, RunWriter
from .settings import Settings, from_environment
from .step_pace import StepPace
from .tidying import tidy
from .watchdog import Watchdog

if TYPE_CHECKING:
    from .otlp.exporter import Exporter

TICK_SECONDS: Final = 0.8
DRAIN_NS: Final = 1_600_000_000
"""Rows reach the run directory this long after they were recorded, at most; with the pass itself under 2 s."""
GRACE_NS: Final = 2_000_000_000
"""How long the agent waits for restarted ranks after the last one."""
UNBOUND_NS: Final = 30_000_000_000
"""A process that has joined no run after this long is written to its own."""
SEALING_SECONDS: Final = 1.5
"""Time for merging files at the end; what is not merged by then stays in several files."""

PLACE_HOOK: Final = "agent.place"
EXPORT_HOOK: Final = "agent.otlp"
"""In `capture`, which keeps one word per hook: these stand beside the agent's other notes."""

_log = logging.getLogger("rankscope.agent")


class NodeAgent:
    """The agent of one launch folder.

    is_live: it is there while the ranks are, so it watches them and exports to where the OTEL_* variables say, if they
    do; not so where it only tidies up what somebody left.
    """

    def __init__(self, folder: Path | str, *, is_live: bool = False) -> None:
        self.folder = Path(folder)
        self._drains: dict[str, ProcessDrain] = {}
        self._writers: dict[RunRef, RunWriter] = {}
        self._runs: dict[str, RunRef] = {}
        self._seen_ns: dict[str, int] = {}
        self._sealed_out: list[ProcessDrain] = []
        self._notes: list[str] = []
        self._drained_ns, self._last_alive_ns = 0, time.monotonic_ns()
        self._token = f"{paths.hash63(os.getpid(), time.time_ns(), str(folder)):016x}"[:8]
        self._num_writers, self._lock = 0, -1
        self._samplers = NodeSamplers(paths.hash63(self._token))
        settings = _settings()
        self._budget_bytes, self._pace = settings.budget_bytes, StepPace()
        self._one_place = OnePlace()
        self._exporter = _exporter(self._token) if is_live else None
        self._watchdog = Watchdog(settings.patience_seconds) if is_live else None
        self._num_incidents = 0

    def run(self, stop: threading.Event) -> None:
        """Work until the last local rank has been gone for a while, or `stop` is set. Blocks."""
        self._hold_lock()
        try:
            self._work(stop)
        finally:
            self._samplers.stop()
            if self._exporter is not None:
                self._exporter.finish()

    def _work(self, stop: threading.Event) -> None:
        while True:
            self._look()
            is_over = stop.is_set() or time.monotonic_ns() - self._last_alive_ns > GRACE_NS
            if is_over or self._is_due():
                self._pass()
            if stop.is_set():
                self._stopped()
                return
            if is_over and self._leave():
                return
            stop.wait(TICK_SECONDS)

    def _hold_lock(self) -> None:
        """The record lock that says to `is_alive` that this agent is at work (the flock says so to other ranks)."""
        self._lock = os.open(
            self.folder / paths.AGENT_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        with contextlib.suppress(OSError):
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _look(self) -> None:
        """Find new processes, and see who lives."""
        now = time.monotonic_ns()
        for name in sorted(os.listdir(self.folder)):
            path = f"{self.folder}/{name}"
            if name.endswith(".journal") and path not in self._drains and path not in self._runs:
                self._drains[path] = ProcessDrain(path)
                self._seen_ns[path] = now
        for drain in self._drains.values():
            if not drain.is_finished:
                drain.look()
                if drain.is_alive:
                    self._last_alive_ns = now
        self._samplers.look((self._runs[path], drain.state) for path, drain in self._drains.items()
                            if drain.is_alive and not drain.is_finished and path in self._runs)  # fmt: skip

    def _is_due(self) -> bool:
        someone_died = any(not drain.is_alive and not drain.is_finished for drain in self._drains.values())
        return someone_died or time.monotonic_ns() - self._drained_ns >= DRAIN_NS

    def _pass(self) -> None:
        """Drain every process whose run is known, and flush every run."""
        now = self._drained_ns = time.monotonic_ns()
        adopted = folder_run([drain.state for drain in self._drains.values()])
        batches: dict[RunRef, list[Batch]] = {}
        for path, drain in self._drains.items():
            if drain.is_finished or not self._bind(path, drain, adopted, now):
                continue
            writer = self._writer(self._runs[path], drain)
            if not drain.is_alive or not writer.is_stuck:
                batches.setdefault(writer.run, []).append(self._read(drain, writer.run, now))
        self._set_pace(batches)
        sampled = self._samplers.take(now)
        self._export(sampled)
        self._look_for_incidents(now)
        for run, writer in self._writers.items():
            writer.add(batches.get(run, []))
            if not writer.is_stuck:
                writer.add([Batch(rows=sampled.get(run, []))])
            self._add_notes(writer)
            writer.flush(now)
            self._look_for_rank_0(writer, now)
            if writer.seal(now):
                self._forget_finished(writer.run)

    def _read(self, drain: ProcessDrain, run: RunRef, now: int) -> Batch:
        batch = drain.read(now, not drain.is_alive)
        if self._exporter is not None:
            self._exporter.saw(run, drain.state, batch, drain.is_finished)
        if self._watchdog is not None:
            self._watchdog.saw(run, drain.state, batch, now, drain.is_finished)
        return batch

    def _look_for_incidents(self, now: int) -> None:
        for incident in self._watchdog.take(now) if self._watchdog is not None else []:
            _log.warning("%s: %s", incident.run.run_id, incident.text)
            row = incident.row(paths.hash63(self._token), self._num_incidents)
            self._num_incidents += 1
            if incident.run in self._writers:
                self._writers[incident.run].add([Batch(rows=[row])])
            if self._exporter is not None:
                self._exporter.incident(incident)

    def _export(self, sampled: dict[RunRef, list[PlacedRow]]) -> None:
        if self._exporter is None:
            return
        for run, rows in sampled.items():
            self._exporter.sampled(run, rows)
        for text in self._exporter.news() if self._writers else []:
            _log.warning("%s", text)
            for writer in self._writers.values():
                self._tell(writer, EXPORT_HOOK, text)

    def _look_for_rank_0(self, writer: RunWriter, now: int) -> None:
        """Say once, in the run's own files, that this node's are not where those of rank 0 are."""
        if not writer.is_reached:
            return
        states = [drain.state for path, drain in self._drains.items() if self._runs.get(path) == writer.run]
        try:
            text = self._one_place.look(writer.run, writer.place, states, now)
        except OSError:  # asked again at the next pass; the writer says what is wrong with the place
            return
        if text is not None:
            _log.warning("%s", text)
            self._tell(writer, PLACE_HOOK, text)

    def _set_pace(self, batches: dict[RunRef, list[Batch]]) -> None:
        for batch in (batch for found in batches.values() for batch in found):
            for placed in batch.parts:
                self._pace.saw(placed.kind, placed.part)
        living = [drain.state.proc for drain in self._drains.values() if drain.is_alive and not drain.is_finished]
        self._samplers.pace(self._pace.slowest_s(living))

    def _bind(self, path: str, drain: ProcessDrain, adopted: RunRef | None, now: int) -> bool:
        """Decide which run a process belongs to; False while it may still join one."""
        state = drain.state
        may_join = state.run is None and drain.is_alive and path not in self._runs
        if may_join and now - self._seen_ns[path] < UNBOUND_NS and not drain.is_filling():
            return False
        run = state.run or self._runs.get(path) or run_of(state, adopted)
        if run is None:
            return False
        self._runs[path] = run
        return True

    def _writer(self, run: RunRef, drain: ProcessDrain) -> RunWriter:
        writer = self._writers.get(run)
        if writer is None:
            self._num_writers += 1
            me = AgentIdentity(
                node=drain.state.node,
                token=f"{self._token}{self._num_writers:x}",
                boot_id=this_boot(),
                lock=str(self.folder / paths.AGENT_LOCK),
                folder=self.folder,
            )
            writer = RunWriter(run, me, lambda: self._held(run), lambda: self._rotated(run), self._say,
                               self._budget_bytes)  # fmt: skip
            self._writers[run] = writer
        return writer

    def _held(self, run: RunRef) -> pa.Table:
        procs, records = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for path, drain in self._drains.items():
            if self._runs.get(path) == run:
                numbers = drain.pending_numbers()
                procs.append(np.full(len(numbers), drain.state.proc, np.int64))
                records.append(numbers)
        return pa.table({"proc": np.concatenate(procs), "record": np.concatenate(records)})

    def _rotated(self, run: RunRef) -> None:
        for path, drain in self._drains.items():
            if self._runs.get(path) == run:
                drain.forget_written()

    def _leave(self) -> bool:
        """Finish every run, look again under the lock, and go; False if somebody came meanwhile."""
        deadline = time.monotonic() + SEALING_SECONDS
        sampled = self._samplers.take(time.monotonic_ns(), is_last=True)
        self._export(sampled)
        if self._exporter is not None:
            self._exporter.settle()
            self._export({})
        for run in list(self._writers):
            writer = self._writers.pop(run)
            writer.add([Batch(rows=sampled.get(run, []))])
            self._add_notes(writer)
            if writer.finish(time.monotonic_ns(), lambda: time.monotonic() < deadline):
                self._forget_finished(run)
            else:
                self._add_notes(writer)
                writer.leave(time.monotonic_ns())
                self._writers[run] = writer
        self._look()
        if any(drain.is_alive for drain in self._drains.values()):
            return False
        if any(not drain.is_finished and self._is_bound(path, drain) for path, drain in self._drains.items()):
            return False
        for drain in self._drains.values():
            drain.close()
        clean(self.folder)
        return True

    def _is_bound(self, path: str, drain: ProcessDrain) -> bool:
        """A process that came and went while we sealed has rows to be taken, unless nobody can say whose they are."""
        adopted = folder_run([other.state for other in self._drains.values()])
        return run_of(drain.state, adopted) is not None

    def _stopped(self) -> None:
        """Asked to go: at the end of the own process (thread mode), or by a signal. Others may still be at work.

        Not those that have said that they end: they record no more, and do not seal, since they find this agent there.
        """
        own = [drain for drain in self._drains.values() if drain.is_own and not drain.is_finished]
        patience = time.monotonic() + GRACE_NS / 1e9
        while own and time.monotonic() < patience and self._others_alive():
            time.sleep(0.05)
            self._look()
        for drain in self._drains.values():
            drain.is_alive = drain.is_alive and not drain.is_own and drain.state.ended_ns is None
        self._pass()
        if self._others_alive():
            for writer in self._writers.values():
                writer.leave(time.monotonic_ns())
            return
        self._leave()

    def _others_alive(self) -> bool:
        alive = [drain for drain in self._drains.values() if drain.is_alive and not drain.is_finished]
        return any(not drain.is_own and drain.state.ended_ns is None for drain in alive)

    def _forget_finished(self, run: RunRef) -> None:
        """Delete the local files of the run's dead processes: all their rows are sealed."""
        for path in [path for path, drain in self._drains.items() if drain.is_finished and self._runs.get(path) == run]:
            drain = self._drains.pop(path)
            drain.close()
            remove_files(drain.state)

    def _say(self, text: str) -> None:
        _log.warning("%s", text)
        self._notes.append(text)

    def _add_notes(self, writer: RunWriter) -> None:
        for text in self._notes:
            self._tell(writer, "agent", text)
        self._notes.clear()

    def _tell(self, writer: RunWriter, hook: str, text: str) -> None:
        row = {"proc": paths.hash63(self._token), "time_ns": time.monotonic_ns(), "hook": hook, "why": text}
        writer.add([Batch(rows=[PlacedRow("capture", 0, row)])])


def main(arguments: list[str] | None = None) -> int:
    """Run the agent of one launch folder to its end. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m rankscope.tracer.agent", description=__doc__)
    parser.add_argument("--folder", required=True, type=Path, help="the launch folder")
    parser.add_argument("--lock-fd", type=int, help="an inherited descriptor that holds the folder's lock")
    options = parser.parse_args(arguments)
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    lock = options.lock_fd if options.lock_fd is not None else take_lock(options.folder)
    if lock is None:
        return 0
    os.set_inheritable(lock, False)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    _be_small()
    remove_stale(options.folder)
    NodeAgent(options.folder, is_live=True).run(stop)
    os.close(lock)
    if not stop.is_set():
        tidy(options.folder, lambda folder, over: NodeAgent(folder).run(over))
    return 0


def _exporter(token: str) -> "Exporter | None":
    """What exports live; None where nobody asked for it, and nothing of it is loaded."""
    asked = wanted(os.environ)
    if not asked.is_anything:
        return None
    from .otlp.exporter import Exporter

    exporter = Exporter(asked, os.environ, token)
    exporter.start()
    return exporter


def _settings() -> Settings:
    """As the rank that started this agent had them in its environment."""
    try:
        return from_environment(os.environ)
    except SettingsError:  # of another variable: the ranks took theirs from `attach`, or would not be here
        return Settings()


def _be_small() -> None:
    """One thread for computing, and an allocator that gives memory back."""
    pa.set_memory_pool(pa.system_memory_pool())
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 19)


if __name__ == "__main__":
    sys.exit(main())
