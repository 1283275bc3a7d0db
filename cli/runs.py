"""`rankscope runs [DIR]`: the runs in a folder, newest first."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated

from rankscope.schema.paths import RUNS_FOLDER

from .arguments import Argument, JsonOption
from .printing import console, print_json
from .words import NONE, size

_ENDLESS = 100_000
"""Columns: a path is never broken, so that it can be copied."""


def command(
    folder: Annotated[str, Argument(metavar="[DIR]", help="A folder of runs.")] = RUNS_FOLDER,
    json: JsonOption = False,
) -> None:
    """List the runs in a folder, newest first.

    Example: rankscope runs /shared/rankscope-runs
    """
    from rankscope.analyzers.runs import FoundRun, find_runs

    found = find_runs(folder)
    if json:
        print_json({"runs": [asdict(run) for run in found]})
        return

    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    def cells(run: FoundRun) -> tuple[str, ...]:
        ranks = NONE if run.world_size is None else str(run.world_size)
        return (
            run.run_id,
            _moment(run.created_ns),
            run.state,
            ranks,
            size(run.num_bytes),
            run.job_id or NONE,
            run.problem or run.path,
        )

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, side in (
        ("run", "left"),
        ("began", "left"),
        ("state", "left"),
        ("ranks", "right"),
        ("size", "right"),
        ("job", "left"),
        ("where", "left"),
    ):
        table.add_column(name, justify=side, overflow="fold")  # type: ignore[arg-type]
    for run in found:
        table.add_row(*(Text(cell) for cell in cells(run)))
    console(_ENDLESS).print(table)


def _moment(ns: int) -> str:
    """Local time, to the second."""
    return datetime.fromtimestamp(ns / 1e9).astimezone().strftime("%Y-%m-%d %H:%M:%S") if ns else NONE
