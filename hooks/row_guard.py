"""The guard of a hook that writes a row at nearly every entry: entries are counted inline, rows are what is left."""

from .base import Guard, Recorder


class RowGuard(Guard):
    """Counts `calls` and, of these, `num_rowless`; the counters are written at timed entries and by `flush`."""

    __slots__ = ("num_rowless",)

    def __init__(self, recorder: Recorder, hook: str) -> None:
        super().__init__(recorder, hook)
        self.num_rowless = 0

    def flush(self) -> None:
        """Write the counts to the ring file."""
        self._counters[0], self._counters[4] = self.calls, self.calls - self.num_rowless
