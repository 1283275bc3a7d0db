"""The temporal breakdown and the overlap of HolisticTraceAnalysis, to the microsecond, for people who move over.

Its rules are copied, also where the answer of rankscope differs: whatever has a stream is device work, times of
nanosecond traces are cut to whole microseconds (inwards), of several profiled steps the last is left out with all
launched in it, and classes go by the begin of the name only. Source: facebookresearch/HolisticTraceAnalysis at f4d0062,
`temporal_breakdown` and `get_comm_comp_overlap`; equal to traceinsight 0.6.1.
"""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
COMPUTE, COMMUNICATION, MEMORY, OTHER = 0, 1, 2, 3
NO_STREAM: Final = -1

_COMMUNICATION: Final = re.compile(r"nccl|hip|hccl|.*ncclKernel")
_MEMORY: Final = re.compile(r"(hip)?Memcpy|(hip)?Memset|dma")
_OTHER: Final = re.compile(r".*(Memcpy|Memset|dma|Sync)|Stream Wait Event|cuda\w*LaunchKernel|runFunction")


@dataclass(frozen=True, slots=True)
class HtaTrace:
    """The events of one rank with a category and a duration, in file order. Times in microseconds.

    Those that no rule asks for (of the host, without a correlation, no step) may be left out. has_fractions: of any
    event. stream: `NO_STREAM` on the host. classes: of the names (`class_of`). step: ordinal of a ProfilerStep event,
    -1 else.
    """

    rank: int
    start: Floats
    duration: Floats
    stream: Numbers
    correlation: Numbers
    classes: Numbers
    step: Numbers
    has_fractions: bool


@dataclass(frozen=True, slots=True)
class Breakdown:
    """One rank's line, in microseconds and per cent. overlap: None where there is no communication (HTA: NaN)."""

    rank: int
    idle_us: float
    compute_us: float
    non_compute_us: float
    kernel_us: float
    overlap_percent: float | None

    def percent(self, part_us: float) -> float | None:
        """A part of kernel_us, rounded as HTA does; None of nothing."""
        return round(100 * part_us / self.kernel_us, 2) if self.kernel_us else None


def class_of(name: str) -> int:
    """HTA's class of a name; the first pattern that matches at its begin decides."""
    if _COMMUNICATION.match(name):
        return COMMUNICATION
    if _MEMORY.match(name):
        return MEMORY
    return OTHER if _OTHER.match(name) else COMPUTE


def breakdowns(traces: list[HtaTrace]) -> list[Breakdown]:
    """HTA's breakdown of each rank that has device work. Which steps there are is a matter of all ranks together."""
    steps = {step for trace in traces for step in trace.step[trace.step >= 0].tolist()}
    found = []
    for trace in sorted(traces, key=lambda trace: trace.rank):
        start, end = _whole(trace)
        chosen = trace.stream != NO_STREAM
        if len(steps) > 1:
            chosen &= _before_the_last_step(trace, start)
        if chosen.any():
            found.append(_breakdown(trace.rank, start[chosen], end[chosen], trace.classes[chosen]))
    return found


def union(start: Floats, end: Floats) -> float:
    """Length of the union of intervals; those that touch are one."""
    if not len(start):
        return 0.0
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    begins = np.concatenate(([True], start[1:] > end[:-1]))
    lasts = np.concatenate((begins[1:], [True]))
    return float(np.sum(end[lasts] - start[begins]))


def _whole(trace: HtaTrace) -> tuple[Floats, Floats]:
    """Begin and end, cut inwards to whole microseconds if any time is a fraction."""
    start, end = trace.start, trace.start + trace.duration
    if trace.has_fractions:
        return np.ceil(start), np.floor(end)
    return start, end


def _before_the_last_step(trace: HtaTrace, start: Floats) -> Mask:
    steps = start[trace.step >= 0]
    if not len(steps):
        return np.ones(len(start), np.bool_)
    is_host = (trace.stream == NO_STREAM) & (start < steps.max())
    kept = trace.correlation[is_host]
    return np.isin(trace.correlation, kept[kept > 0])


def _breakdown(rank: int, start: Floats, end: Floats, classes: Numbers) -> Breakdown:
    kernel = float(end.max() - start.min())
    is_compute, is_communication = classes == COMPUTE, classes == COMMUNICATION
    idle = kernel - union(start, end)
    compute = union(start[is_compute], end[is_compute])
    communication = union(start[is_communication], end[is_communication])
    either = is_compute | is_communication
    both = compute + communication - union(start[either], end[either])
    overlap = round(100 * both / communication, 2) if communication else None
    return Breakdown(rank, idle, compute, kernel - compute - idle, kernel, overlap)
