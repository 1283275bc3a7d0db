"""A call that may never come back, made in a daemon thread of its own and looked at from outside.

Drivers hang: a GPU that fell off the bus, or a driver under reset, can hold a call for minutes. The thread waits, and
whoever asked gets an answer in time, or learns for how long there has been none. Costs one idle thread.
"""

import math
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

_Answer = TypeVar("_Answer")


class WatchedCall(Generic[_Answer]):
    """Repeats `call` on request. `ask`, `answer` and `silent_seconds` are for one other thread."""

    def __init__(self, call: Callable[[], _Answer], name: str) -> None:
        self._call, self._name = call, name
        self._asked, self._done = threading.Event(), threading.Event()
        self._asked_s, self._is_busy = 0.0, False
        self._result: tuple[_Answer | None, BaseException | None] = (None, None)
        self._thread: threading.Thread | None = None

    def ask(self) -> bool:
        """Begin a call; False if the last one has not come back. An answer that came too late is forgotten."""
        if self._is_busy and not self._done.is_set():
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._done.clear()
        self._asked_s, self._is_busy = time.monotonic(), True
        self._asked.set()
        return True

    def answer(self, patience_seconds: float) -> _Answer:
        """What the call gave. Raises TimeoutError if it is not there in time, and whatever the call raised."""
        if not self._done.wait(max(0.0, patience_seconds)):
            raise TimeoutError(f"no answer for {math.ceil(self.silent_seconds())} s")
        self._is_busy = False
        found, error = self._result
        if error is not None:
            raise error
        return found  # type: ignore[return-value]

    def silent_seconds(self) -> float:
        """For how long there has been no answer; 0 if none is waited for."""
        return time.monotonic() - self._asked_s if self._is_busy and not self._done.is_set() else 0.0

    def _work(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            try:
                self._result = (self._call(), None)
            except Exception as error:  # noqa: BLE001 (handed over to whoever asked)
                self._result = (None, error)
            self._done.set()
