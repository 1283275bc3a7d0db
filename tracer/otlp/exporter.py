"""The agent's exporter: what a pass found is handed over and forgotten; everything else happens in its own threads.

One thread counts (`meter`), one per signal sends (`sender`), a few answer who pulls (`prometheus`). `saw` costs the
agent about a microsecond. Nothing here raises into the agent or makes it wait: a queue that is full drops and counts,
and the end takes EXIT_SECONDS at most. OpenTelemetry is imported in the sending threads only. A forked child of a
process that runs this (thread mode) has none of the threads, and `saw` does nothing in it.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from rankscope.schema.process_rows import PlacedRow
from rankscope.schema.process_state import ProcessState, RunRef

from ..drain import Batch
from ..watchdog import Incident
from .meter import Meter, Piece, Snapshot
from .prometheus import PATH, PullEndpoint
from .secrets import secrets_of
from .sender import Make, Sender
from .wanted import Wanted, endpoint

EXIT_SECONDS: Final = 2.0
MAX_WAITING: Final = 2_000_000
"""Records that wait for the counting thread (128 bytes each)."""
_log = logging.getLogger(__name__)


class Exporter:
    """Live export of one agent. token: names the agent among all."""

    def __init__(self, asked: Wanted, environment: Mapping[str, str], token: str) -> None:
        self.num_dropped = 0
        self._asked, self._pid = asked, os.getpid()
        self._meter, self._meter_lock = Meter(asked, token), threading.Lock()
        self._work: deque[Callable[[], None]] = deque()
        self._num_waiting = 0
        self._wake, self._flush, self._is_over = threading.Event(), threading.Event(), threading.Event()
        self._flushed = threading.Event()
        self._news: deque[str] = deque(asked.problems)
        self._senders = {signal: _senders(signal, asked, environment, self._news.append)
                         for signal in ("metrics", "traces")}  # fmt: skip
        self._pull: PullEndpoint | None = None
        self._thread = threading.Thread(target=self._run, name="rankscope-otlp", daemon=True)
        self._deadline_s = float("inf")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def saw(self, run: RunRef, state: ProcessState, batch: Batch, is_last: bool) -> None:
        """One pass over one process of `run`. is_last: it is dead."""
        parts = [Piece(*placed) for placed in batch.parts]
        rows = list(batch.rows)
        self._put(sum(len(item.part.records) for item in parts),
                  lambda: self._meter.saw(run, state, parts, rows, is_last))  # fmt: skip

    def sampled(self, run: RunRef, rows: Iterable[PlacedRow]) -> None:
        """Readings of the node's samplers."""
        found = list(rows)
        if found:
            self._put(len(found), lambda: self._meter.sampled(run, found))

    def incident(self, incident: Incident) -> None:
        """Something went wrong."""
        self._put(1, lambda: self._meter.incident(incident))

    def news(self) -> list[str]:
        """Lines about changes of state since the last call."""
        found = []
        while self._news:
            found.append(self._news.popleft())
        return found

    def settle(self, seconds: float = EXIT_SECONDS) -> None:
        """Export what there is, and wait for it, `seconds` at most; what then is not there is told by `news`."""
        if os.getpid() != self._pid:
            return
        self._deadline_s = time.monotonic() + seconds
        self._flushed.clear()
        self._flush.set()
        self._wake.set()
        self._flushed.wait(seconds)
        for sender in self._all_senders():
            sender.settle(self._deadline_s)
        if self.num_dropped:
            self._news.append(f"otlp: {self.num_dropped:,} records were not counted: the export was too slow")
            self.num_dropped = 0

    def finish(self) -> None:
        """The end: what is left is exported, EXIT_SECONDS at most from the last `settle` on."""
        if os.getpid() != self._pid:
            return
        self._deadline_s = min(self._deadline_s, time.monotonic() + EXIT_SECONDS)
        self._is_over.set()
        self._flush.set()
        self._wake.set()
        self._thread.join(max(0.0, self._deadline_s - time.monotonic()))
        for sender in self._all_senders():
            sender.finish(self._deadline_s)

    def _all_senders(self) -> list[Sender]:
        return [sender for senders in self._senders.values() for sender in senders]

    def _put(self, size: int, work: Callable[[], None]) -> None:
        if os.getpid() != self._pid:
            return
        if self._num_waiting + size > MAX_WAITING:
            self.num_dropped += size
            return
        self._num_waiting += size
        self._work.append(work)
        self._wake.set()

    def _run(self) -> None:
        try:
            self._open()
            self._loop()
        except Exception as error:  # noqa: BLE001 (an exporter that fails is no reason for the agent to)
            _log.warning("otlp: export ended: %s: %s", type(error).__name__, error)
            self._news.append(f"otlp: export ended: {type(error).__name__}: {error}")
        finally:
            if self._pull is not None:
                self._pull.stop()

    def _open(self) -> None:
        for sender in self._all_senders():
            sender.start()
        if "prometheus" in self._asked.metrics:
            host, port = self._asked.pull_host, self._asked.pull_port
            try:
                self._pull = PullEndpoint(host, port, self._read)
                self._pull.start()
            except OSError as error:
                self._news.append(f"otlp: no {PATH} at {host}:{port}: {error.strerror or error}")

    def _loop(self) -> None:
        metrics_s = spans_s = time.monotonic()
        while True:
            now = time.monotonic()
            due = min(metrics_s + self._asked.export_s, spans_s + self._asked.spans_s) - now
            self._wake.wait(max(0.0, min(due, self._asked.export_s)))
            self._wake.clear()
            is_over, is_flush = self._is_over.is_set(), self._flush.is_set()
            self._flush.clear()
            self._digest()
            now = time.monotonic()
            if is_flush or now - metrics_s >= self._asked.export_s:
                metrics_s = now
                self._export_metrics()
            if is_flush or now - spans_s >= self._asked.spans_s:
                spans_s = now
                self._export_spans()
            if is_flush:
                self._flushed.set()
            if is_over:
                return

    def _digest(self) -> None:
        while self._work:
            work = self._work.popleft()
            with self._meter_lock:
                work()
        self._num_waiting = 0

    def _export_metrics(self) -> None:
        if self._senders["metrics"]:
            snapshot = self._read(is_push=True)
            for sender in self._senders["metrics"] if snapshot.runs else []:
                sender.offer(snapshot)

    def _export_spans(self) -> None:
        with self._meter_lock:
            spans = self._meter.spans()
        for sender in self._senders["traces"]:
            sender.add(spans)

    def _read(self, is_push: bool = False) -> Snapshot:
        with self._meter_lock:
            return self._meter.snapshot(is_push)


def _senders(signal: str, asked: Wanted, environment: Mapping[str, str], say: Callable[[str], None]) -> list[Sender]:
    kinds = (asked.metrics if signal == "metrics" else asked.traces) - {"prometheus"}
    protocol = asked.protocols.get(signal, "")
    found, secrets = [], secrets_of(environment)
    for kind in sorted(kinds):
        place = endpoint(environment, signal, protocol) if kind == "otlp" else kind
        name = signal if kind == "otlp" else f"{signal}-{kind}"
        found.append(Sender(name, place, _maker(signal, kind, protocol, asked.is_delta), say, secrets))
    return found


def _maker(signal: str, kind: str, protocol: str, is_delta: bool) -> Make:
    def make(ready: Callable[[], None]) -> Callable[[Any], bool]:
        from . import sending

        if signal == "metrics":
            return sending.metrics(kind, protocol, is_delta, ready=ready)
        return sending.spans(kind, protocol, ready=ready)

    return make
