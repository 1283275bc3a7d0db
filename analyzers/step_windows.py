"""The rows of a run by windows of whole steps, for who goes through all of it (export): memory is that of one window.

A window holds about `MAX_ROWS` rows, more only where one step has more. Rows that belong to no step are step -1.
"""

from dataclasses import dataclass
from typing import Any, Final

from .run import Row, Run
from .statements import statement

MAX_ROWS: Final = 20_000
OUTSIDE: Final = -1
LAST: Final = (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class StepWindow:
    """Steps first..last of one incarnation, and how many rows they have."""

    incarnation: int
    first: int
    last: int
    num_rows: int
    num_steps: int


@dataclass(frozen=True, slots=True)
class WindowRows:
    """Rows by table, in the columns of `step_windows.sql`: incarnation, step, rank, proc, start, end, then the rest."""

    step: list[Row]
    span: list[Row]
    kernel: list[Row]
    collective: list[Row]


def step_windows(run: Run, first: int = OUTSIDE, last: int = LAST, *, kernels: bool = True) -> list[StepWindow]:
    """The windows of steps first..last, in order. kernels: whether device activities count."""
    windows: list[StepWindow] = []
    asked: dict[str, object] = {"first": first, "last": last, "kernels": kernels}
    for incarnation, step, num_rows in run.rows(statement("step_windows", "sizes"), asked):
        held = windows[-1] if windows else None
        if held and held.incarnation == incarnation and held.first != OUTSIDE and held.num_rows + num_rows <= MAX_ROWS:
            windows[-1] = StepWindow(incarnation, held.first, step, held.num_rows + num_rows, held.num_steps + 1)
        else:
            windows.append(StepWindow(incarnation, step, step, num_rows, 1))
    return windows


def window_rows(run: Run, window: StepWindow, *, kernels: bool = True) -> WindowRows:
    """The rows of one window."""
    asked: dict[str, object] = {"incarnation": window.incarnation, "first": window.first, "last": window.last}
    tables = ("step", "span", "kernel", "collective") if kernels else ("step", "span", "collective")
    found = {table: run.rows(statement("step_windows", table), asked) for table in tables}
    return WindowRows(found["step"], found["span"], found.get("kernel", []), found["collective"])


def num_timeless(run: Run) -> int:
    """Rows of the whole run that tell no time, and so are in no window."""
    ((number,),) = run.rows(statement("step_windows", "timeless"))
    return int(number)


def clock_readings(run: Run) -> dict[int, list[tuple[int, int]]]:
    """By process: (monotonic_ns, wall_ns). Imported runs have none: their times are since 1970."""
    found: dict[int, list[tuple[int, int]]] = {}
    for proc, monotonic_ns, wall_ns in run.rows(statement("step_windows", "clock")):
        found.setdefault(proc, []).append((monotonic_ns, wall_ns))
    return found


def run_columns(run: Run) -> dict[str, Any]:
    """The run's own row, by column; empty where it has none."""
    cursor = run.connection.execute(statement("step_windows", "run"))
    row = cursor.fetchone()
    return {} if row is None else dict(zip((item[0] for item in cursor.description or ()), row, strict=True))
