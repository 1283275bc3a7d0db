"""Why an export failed: the SDK's exporters log the reason and return only that they failed."""

import logging
import re
from collections.abc import Iterable
from typing import Final

from .secrets import hidden

REJECTED: Final = "opentelemetry.rankscope.rejected"
MAX_TEXT: Final = 200
_CAUSE: Final = re.compile(r"\[Errno -?\d+\] ([^'\")]+)")
_LOGGERS: Final = ("opentelemetry", "urllib3", "requests")


class Reasons(logging.Filter):
    """Keeps what the SDK logs in one thread back, and remembers why the last export failed, without `secrets`.

    The last word is that it gave up; the warnings before say why. `last` is such a warning where there was one.
    `rejected` is what the endpoint said of the part that it did not take of a request that it took (logger REJECTED).
    """

    def __init__(self, thread: str, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self.last, self.rejected, self._thread, self._secrets = "", "", thread, tuple(secrets)
        self._held: list[logging.Logger] = []

    def filter(self, record: logging.LogRecord) -> bool:
        """False for records of the thread."""
        if record.threadName != self._thread:
            return True
        if record.name == REJECTED:
            self.rejected = self.of(record.getMessage())
        elif record.levelno == logging.WARNING or (record.levelno > logging.WARNING and not self.last):
            self.last = self.of(record.getMessage())
        return False

    def of(self, error: object) -> str:
        """An error in one line, without the secrets."""
        return one_line(hidden(str(error), self._secrets))

    def install(self) -> None:
        """On every logger that the SDK has made by now: those above them never see the filter.

        So after its exporters were imported and before one is made, which may log as well.
        """
        for name in [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _LOGGERS]:
            logger = logging.getLogger(name)
            logger.addFilter(self)
            self._held.append(logger)

    def remove(self) -> None:
        """Take it back."""
        for logger in self._held:
            logger.removeFilter(self)


def one_line(error: object) -> str:
    """At most MAX_TEXT characters, without line breaks; of a long chain of causes the system's own words."""
    text = " ".join(str(error).split())
    cause = _CAUSE.search(text) if len(text) > MAX_TEXT else None
    return cause[1] if cause else text[:MAX_TEXT]
