"""A kernel window of a live run: the trace that the hook `kernel_windows` left becomes rows of table `kernel`.

The same reader and the same rows as for foreign traces. Times are brought to CLOCK_MONOTONIC by the difference of the
two clocks when the window closed; steps are those of the run. Collectives, spans and steps are not taken: the hooks saw
them. The trace is deleted once it is read, readable or not.
"""

import os
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from rankscope.schema.kernel_classes import Classes
from rankscope.schema.process_state import JournalRow

from .kineto_rows import RankState, rows_of
from .kineto_trace import Table, read_trace, shift
from .trace_rank import STEP_PREFIX

ROWS_A_LINE: Final = 1 << 32
"""Record numbers that each journal line has for its kernels, so that those of two windows differ."""


def window_rows(told: JournalRow, proc: int, rank: int | None) -> pa.Table | None:
    """The kernels of one window; None if there are none.

    Raises InputError, OSError (the trace), KeyError, TypeError, ValueError (the journal's row).
    """
    body: dict[str, Any] = told.body
    path = str(body["path"])
    try:
        trace = read_trace(path)
    finally:
        _delete(path)
    shift(trace, int(body["offset_ns"]))
    trace.steps, trace.annotations = Table(), Table()
    for step, start, end in body["steps"]:
        trace.steps.add(int(start), int(end), f"{STEP_PREFIX}{step}")
    state = RankState(-1 if rank is None else rank, proc, num_steps=int(body["steps"][0][0]))
    state.num_kernels = told.line * ROWS_A_LINE
    return rows_of(trace, state, Classes(), {}).get("kernel")


def _delete(path: str) -> None:
    if os.path.basename(os.path.dirname(path)).startswith("rankscope-kernels-"):
        with suppress(OSError):
            os.unlink(path)
            os.rmdir(os.path.dirname(path))
