"""Where samplers run: each in a thread of its own inside the agent, so that none delays the drain or another sampler.

Sampled every RANKSCOPE_SAMPLE_SECONDS while a rank of a run lives on this node, and once more after the last one. A
sampler that raises is switched off; one that does not come back for BLOCKED_NS (a driver or a dead file server) as
well, its thread is left behind. One whose reading costs much CPU time is taken less often, and so are all of them
where steps are longer than that: once per step of the slowest local rank, at least every SLOWEST_S. All of it is in
`capture`.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Final, NamedTuple

from rankscope.hooks import base
from rankscope.hooks.registry import SamplerSpec
from rankscope.hooks.sampling import LocalProcess, Rows, Sampler, Surroundings
from rankscope.schema.errors import HookUnavailable
from rankscope.schema.process_rows import PlacedRow
from rankscope.schema.process_state import Row, RunRef
from rankscope.schema.tables import TABLES

BLOCKED_NS: Final = 30_000_000_000
MAX_SHARE: Final = 0.05
"""Share of one CPU that a sampler may use; then it samples less often."""
SLOWEST_S: Final = 10.0
"""Long steps make the readings no rarer than this."""
MAX_WAITING: Final = 10_000
"""Rows of one sampler that wait for the agent's next pass; beyond it they are dropped and counted."""
REPORT_NS: Final = 60_000_000_000
"""What the samplers did is told this often, when one is switched off, and at the end."""


class LocalRank(NamedTuple):
    """A living process and the run that it belongs to."""

    run: RunRef
    process: LocalProcess


class _Taken(NamedTuple):
    rows: Rows
    ranks: tuple[LocalRank, ...]


class SamplerHost:
    """The samplers of one agent. proc: the agent's own number in table `capture`."""

    def __init__(self, specs: Sequence[SamplerSpec], interval_s: float, proc: int) -> None:
        self.ranks: tuple[LocalRank, ...] = ()
        self._workers = [_Worker(spec, self, interval_s) for spec in specs]
        self._proc, self._is_running, self._told_ns = proc, False, 0
        self._last: tuple[LocalRank, ...] = ()
        self.step_s = 0.0
        """Length of a step of the slowest local rank; 0 while nobody knows."""

    def update(self, surroundings: Surroundings, ranks: tuple[LocalRank, ...]) -> None:
        """Take note of who lives now. The first living rank starts the samplers."""
        self.ranks = ranks
        if ranks:
            self._last = ranks
            if not self._is_running:
                self._is_running = True
                for worker in self._workers:
                    worker.start(surroundings)
        for worker in self._workers:
            worker.watch(time.monotonic_ns())

    def local_processes(self) -> tuple[LocalProcess, ...]:
        """The living processes, for `Surroundings.processes`."""
        return tuple(rank.process for rank in self.ranks)

    def take(self, now_ns: int, is_last: bool = False) -> dict[RunRef, list[PlacedRow]]:
        """The rows since the last call, placed in the runs that lived on this node when they were read."""
        placed: dict[RunRef, list[PlacedRow]] = defaultdict(list)
        for worker in self._workers:
            for taken in worker.take():
                _place(taken, placed)
        if self._is_running and (is_last or self._has_news() or now_ns - self._told_ns >= REPORT_NS):
            self._told_ns = now_ns
            _place(_Taken({"capture": [worker.report(self._proc, now_ns) for worker in self._workers]}, self._last),
                   placed)  # fmt: skip
        return placed

    def stop(self) -> None:
        """Let the threads end; none is waited for."""
        for worker in self._workers:
            worker.stop()

    def _has_news(self) -> bool:
        news = [worker.has_news() for worker in self._workers]  # each is asked
        return any(news)


class _Worker:
    """One sampler and its thread."""

    def __init__(self, spec: SamplerSpec, host: SamplerHost, interval_s: float) -> None:
        self.spec, self._host, self._interval_s = spec, host, interval_s
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._waiting: list[_Taken] = []
        self._num_waiting, self._num_rows, self._num_dropped, self._num_errors, self._num_calls = 0, 0, 0, 0, 0
        self._busy_since_ns, self._cpu_ns = 0, 0
        self._why, self._told_why = "", ""

    def start(self, surroundings: Surroundings) -> None:
        """Begin to sample."""
        threading.Thread(
            target=self._work, args=(surroundings,), name=f"rankscope-{self.spec.name}", daemon=True
        ).start()

    def stop(self) -> None:
        """No further reading."""
        self._stop.set()

    def watch(self, now_ns: int) -> None:
        """Give a sampler up that is stuck."""
        busy_since = self._busy_since_ns
        if busy_since and not self._why and now_ns - busy_since > BLOCKED_NS:
            self._switch_off(f"a reading did not come back for {BLOCKED_NS // 1_000_000_000} s")

    def take(self) -> list[_Taken]:
        """What was read since the last call."""
        with self._lock:
            taken, self._waiting, self._num_waiting = self._waiting, [], 0
        return taken

    def has_news(self) -> bool:
        """It was switched off since this was last asked."""
        is_new, self._told_why = self._why != self._told_why, self._why
        return is_new

    def report(self, proc: int, now_ns: int) -> Row:
        """Its row of table `capture`."""
        return {"proc": proc, "time_ns": now_ns, "hook": self.spec.name, "is_on": not self._why,
                "why": self._why or None, "num_rows": self._num_rows, "num_dropped": self._num_dropped,
                "num_errors": self._num_errors, "num_calls": self._num_calls}  # fmt: skip

    def _work(self, surroundings: Surroundings) -> None:
        try:
            sampler = _make(self.spec, surroundings)
            seen: tuple[LocalRank, ...] = ()
            while not self._stop.is_set():
                ranks = self._host.ranks
                if ranks or seen:  # once more after the last rank: its last second counts as well
                    self._sample(sampler, ranks or seen)
                seen = ranks
                self._pause(bool(ranks))
        except HookUnavailable as error:
            self._switch_off(str(error))
        except Exception as error:  # noqa: BLE001
            self._num_errors += 1
            self._switch_off(f"{type(error).__name__}: {error}")
            if base.on_swallow is not None:
                base.on_swallow(self.spec.name, error)

    def _sample(self, sampler: Sampler, ranks: tuple[LocalRank, ...]) -> None:
        began_cpu, now_ns = time.thread_time_ns(), time.monotonic_ns()
        self._busy_since_ns = now_ns
        try:
            rows = sampler.sample(now_ns)
        finally:
            self._busy_since_ns = 0
        self._cpu_ns += time.thread_time_ns() - began_cpu
        self._num_calls += 1
        if not self._why:
            self._keep(rows, ranks)

    def _keep(self, rows: Rows, ranks: tuple[LocalRank, ...]) -> None:
        number = sum(map(len, rows.values()))
        with self._lock:
            if self._num_waiting + number > MAX_WAITING:
                self._num_dropped += number
                return
            self._num_rows += number
            self._num_waiting += number
            self._waiting.append(_Taken(rows, ranks))

    def _pause_s(self) -> float:
        mean_s = self._cpu_ns / max(1, self._num_calls) / 1e9
        return max(self._interval_s, min(self._host.step_s, SLOWEST_S), mean_s / MAX_SHARE)

    def _pause(self, has_ranks: bool) -> None:
        """Until the next reading is due; no longer than the interval once the last rank has gone."""
        began = time.monotonic()
        while (left := began + self._pause_s() - time.monotonic()) > 0:
            if self._stop.wait(min(left, self._interval_s)) or (has_ranks and not self._host.ranks):
                return

    def _switch_off(self, why: str) -> None:
        self._why = why
        self._stop.set()


def _make(spec: SamplerSpec, surroundings: Surroundings) -> Sampler:
    module, _, function = spec.target.partition(":")
    try:
        found = import_module(f"rankscope.hooks.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("rankscope"):
            raise
        raise HookUnavailable(f"the library {error.name} is not installed") from None
    made: Sampler = getattr(found, function)(surroundings)
    return made


def _place(taken: _Taken, placed: dict[RunRef, list[PlacedRow]]) -> None:
    for table, rows in taken.rows.items():
        is_entity = TABLES[table].table_class == "entity"
        for row in rows:
            for run, incarnation in _owners(table, row, taken.ranks):
                placed[run].append(PlacedRow(table, None if is_entity else incarnation, row))


def _owners(table: str, row: Row, ranks: Iterable[LocalRank]) -> set[tuple[RunRef, int]]:
    """A process's row goes to its run; a node's, a device's and the capture's to every run that lives on the node."""
    of_process = table != "capture" and "proc" in row
    places = {(rank.run, rank.process.incarnation) for rank in ranks
              if not of_process or rank.process.proc == row["proc"]}  # fmt: skip
    return {(run, 0) for run, _ in places} if TABLES[table].table_class == "entity" else places
