"""The times of a synthetic run between simulation and writing: by rank, in memory, or in a file where they are many.

Simulated step by step over all ranks, written node by node: somewhere the two have to meet. 16 bytes an operation.
"""

import tempfile
from typing import Final

import numpy as np
import numpy.typing as npt

from .synth_plan import Plan
from .synth_steps import StepTimes

Floats = npt.NDArray[np.float64]

IN_MEMORY_BYTES: Final = 256_000_000
"""More than this goes to an unnamed file in the folder for temporary files."""


class Store:
    """Times in ns of true time; NaN for what did not happen.

    issued, completed: (ranks, steps, operations); span_start, span_end: (ranks, steps, spans); waits, starts, ends:
    (ranks, steps).
    """

    def __init__(self, plan: Plan, first: StepTimes) -> None:
        operations = plan.ranks, plan.steps, first.issued.shape[1]
        spans = plan.ranks, plan.steps, first.span_start.shape[1]
        self.issued, self.completed = _array(operations), _array(operations)
        self.span_start, self.span_end = _array(spans), _array(spans)
        self.waits, self.starts, self.ends = (_array((plan.ranks, plan.steps)) for _ in range(3))

    def keep(self, times: StepTimes) -> None:
        """Take over one step."""
        step = times.step
        for target, source in (
            (self.issued, times.issued), (self.completed, times.completed), (self.span_start, times.span_start),
            (self.span_end, times.span_end),
        ):  # fmt: skip
            target[:, step, :] = source.transpose(0, 2, 3, 1).reshape(target.shape[0], -1)
        self.waits[:, step], self.starts[:, step] = times.waits.ravel(), times.start.ravel()
        self.ends[:, step] = times.end.ravel()


def _array(shape: tuple[int, ...]) -> Floats:
    size = int(np.prod(shape)) * 8
    if size <= IN_MEMORY_BYTES:
        return np.empty(shape)
    with tempfile.TemporaryFile(prefix="rankscope-synth-") as file:  # numpy's mapping keeps it until it goes
        file.truncate(size)
        return np.memmap(file, np.float64, "r+", shape=shape)
