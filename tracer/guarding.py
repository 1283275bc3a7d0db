"""The session's own guard: what fails in it is swallowed, counted and journalled, and the session goes on."""

from collections.abc import Callable
from typing import Final

from rankscope.hooks import base
from rankscope.hooks.base import Guard

NAME: Final = "session"
MAX_NOTES: Final = 20
_ERRORS: Final = 6


class SessionGuard(Guard):
    """Unlike a hook's guard it switches nothing off: what is left of the session still works."""

    __slots__ = ("_num_notes",)

    def failed(self, error: BaseException) -> None:
        """Take note of our own failure; the training goes on."""
        try:
            self._counters[_ERRORS] += 1
            self._num_notes = getattr(self, "_num_notes", 0) + 1
            if self._num_notes <= MAX_NOTES:
                self.recorder.journal("note", text=f"{NAME}: {type(error).__name__}: {error}")
        finally:
            if base.on_swallow is not None:
                base.on_swallow(self.hook, error)

    def run(self, work: Callable[[], object]) -> None:
        """Call `work`; no exception leaves."""
        try:
            work()
        except Exception as error:  # noqa: BLE001
            self.failed(error)
