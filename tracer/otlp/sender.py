"""One signal on its way to one endpoint: a thread of its own, so that an endpoint that hangs holds up nothing else.

Metrics are cumulative, so only the newest snapshot waits; of spans at most MAX_SPANS do, the newest are dropped beyond
it and counted. The SDK's exporter tries again by itself until its timeout; what it gives up, spans, is sent again
later. One line for each change of state, never one for each failure; the SDK's own log lines of these threads are kept
back and become the reason in ours. Never waits for anybody: the threads are daemons and `finish` joins for a while.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from .reasons import Reasons

MAX_SPANS: Final = 20_000
CHUNK: Final = 512
"""Spans of one request: about 150 kB."""
PREFIX: Final = "rankscope-otlp-"
Make = Callable[[Callable[[], None]], Callable[[Any], bool]]
"""Gives what sends: imports the SDK, calls its argument, then makes an exporter."""


class Sender:
    """The way of one signal. make: called in the thread. say: takes one line. secrets: are in none."""

    def __init__(
        self, signal: str, place: str, make: Make, say: Callable[[str], None], secrets: Iterable[str] = ()
    ) -> None:
        self.num_dropped, self._num_told = 0, 0
        self._signal, self._place, self._make, self._say = signal, place, make, say
        self._condition = threading.Condition()
        self._snapshot: Any = None
        self._spans: list[Any] = []
        self._is_over, self._is_fine, self._is_idle = False, True, True
        self._reasons = Reasons(PREFIX + signal, secrets)
        self._thread = threading.Thread(target=self._work, name=PREFIX + signal, daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def offer(self, snapshot: Any) -> None:
        """A snapshot of metrics; it takes the place of one that still waits."""
        with self._condition:
            self._snapshot, self._is_idle = snapshot, False
            self._condition.notify_all()

    def add(self, spans: list[Any]) -> None:
        """Further spans."""
        with self._condition:
            room = max(0, MAX_SPANS - len(self._spans))
            self.num_dropped += max(0, len(spans) - room)
            self._spans += spans[:room]
            self._is_idle &= not self._spans
            self._condition.notify_all()

    def settle(self, deadline_s: float) -> None:
        """Wait until everything is sent or given up, until `deadline_s` (time.monotonic()) at most, and say if not."""
        with self._condition:
            left = max(0.0, deadline_s - time.monotonic())
            is_done = self._condition.wait_for(lambda: self._is_idle, left)
        if not is_done and self._is_fine:
            self._note(False)
        if self.num_dropped > self._num_told:
            self._num_told = self.num_dropped
            self._say(f"otlp: {self.num_dropped:,} {self._signal} were dropped: {self._place} takes them too slowly")

    def finish(self, deadline_s: float) -> None:
        """Send what waits, until `deadline_s` (time.monotonic()) at most."""
        with self._condition:
            self._is_over = True
            self._condition.notify_all()
        self._thread.join(max(0.0, deadline_s - time.monotonic()))
        if not self._thread.is_alive():  # one that is left behind goes on being quiet
            self._reasons.remove()

    def _work(self) -> None:
        try:
            send = self._make(self._reasons.install)
            if self._reasons.last:  # a variable that it does not understand
                self._say(f"otlp: {self._signal}: {self._reasons.last}")
                self._reasons.last = ""
        except Exception as error:  # noqa: BLE001 (the SDK's: of a wrong variable, a missing package)
            self._say(f"otlp: no {self._signal} are exported: {self._reasons.of(error)}")
            send = _nowhere
        while True:
            with self._condition:
                while self._snapshot is None and not self._spans and not self._is_over:
                    self._is_idle = True
                    self._condition.notify_all()
                    self._condition.wait()
                snapshot, self._snapshot = self._snapshot, None
                spans, self._spans = self._spans[:CHUNK], self._spans[CHUNK:]
                if snapshot is None and not spans:
                    return
            self._send(send, snapshot, spans)

    def _send(self, send: Callable[[Any], bool], snapshot: Any, spans: list[Any]) -> None:
        for data in (snapshot, spans):
            if data:
                try:
                    is_fine = send(data)
                except Exception as error:  # noqa: BLE001 (whatever an exporter raises, the job must not feel it)
                    is_fine = False
                    self._reasons.last = self._reasons.of(error)
                if self._reasons.rejected:  # a part of it, for good: nothing to send again
                    self._reasons.last, self._reasons.rejected = self._reasons.rejected, ""
                    self._note(False)
                else:
                    self._note(is_fine)
                if not is_fine and data is spans and not self._is_over:
                    self._again(spans)

    def _again(self, spans: list[Any]) -> None:
        with self._condition:
            room = max(0, MAX_SPANS - len(self._spans))
            self.num_dropped += max(0, len(spans) - room)
            self._spans = spans[:room] + self._spans
            if not self._is_over:  # the exporter may have given up at once: no busy loop
                self._condition.wait(1.0)

    def _note(self, is_fine: bool) -> None:
        if is_fine:
            self._reasons.last = ""
        if is_fine == self._is_fine:
            return
        self._is_fine = is_fine
        if is_fine:
            self._say(f"otlp: {self._signal} arrive at {self._place} again")
        else:
            why = f": {self._reasons.last}" if self._reasons.last else ""
            self._say(f"otlp: {self._signal} do not arrive at {self._place}{why}; the run directory has everything")


def _nowhere(_: Any) -> bool:
    """Where nothing can be sent at all, which was said."""
    return True
