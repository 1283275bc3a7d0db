"""How long the steps of the local ranks take, from their rows: samplers need not read more often than that."""

from collections.abc import Iterable
from typing import Final

from rankscope.schema import decode, ring
from rankscope.schema.ring_rows import Part

STEP: Final = ring.layout_of("step").kind


class StepPace:
    """The last step of each local process, as the agent's passes show it."""

    def __init__(self) -> None:
        self._started_ns: dict[int, int] = {}
        self._length_ns: dict[int, int] = {}

    def saw(self, kind: int, part: Part) -> None:
        """Records of one process; only those of steps say something."""
        if kind != STEP or not len(part.records):
            return
        times = [*([self._started_ns[part.proc]] if part.proc in self._started_ns else []),
                 *sorted(decode.base_times(part.records).tolist())]  # fmt: skip
        self._started_ns[part.proc] = times[-1]
        if len(times) > 1 and times[-1] > times[0]:
            self._length_ns[part.proc] = (times[-1] - times[0]) // (len(times) - 1)

    def slowest_s(self, procs: Iterable[int]) -> float:
        """Seconds between two steps of the slowest of `procs`, as of the last pass; 0 while nobody knows."""
        return max((self._length_ns.get(proc, 0) for proc in procs), default=0) / 1e9
