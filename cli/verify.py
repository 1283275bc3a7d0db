"""`rankscope verify RUN`: does every file still hold what was written?"""

import sys
from dataclasses import asdict
from typing import Annotated

from .addressing import address_of
from .arguments import JsonOption, Option, RunArgument
from .printing import console, print_json
from .words import count, size

FOUND, DAMAGED = 1, 2
_ENDLESS = 100_000
"""Columns: a path is never broken, so that it can be copied."""


def command(
    run: RunArgument,
    json: JsonOption = False,
    fail_on_findings: Annotated[
        bool, Option("--fail-on-findings", help="Exit with 1, not 2, if a file is damaged.")
    ] = False,
) -> int:
    """Compare every file of a run with its index.

    Leaves with 2 if a file is missing, changed or unreadable. Example: rankscope verify my-run
    """
    from rankscope.tracer.verify import verify

    found = verify(address_of(run))
    damaged = [problem for problem in found.problems if problem.kind != "not sealed"]
    if json:
        print_json(asdict(found) | {"is_intact": found.is_intact})
    else:
        streams = f", {count(found.num_streams)} streams not sealed yet" if found.num_streams else ""
        rows = f"{count(found.num_rows)} rows, {size(found.num_bytes)}"
        print(f"{found.run_id}: {count(found.num_files)} files, {rows} checked{streams}")
        _draw([(problem.file, problem.kind, problem.detail) for problem in found.problems])
    if not damaged:
        return 0
    print(
        f"rankscope: {run}: {len(damaged)} of its files are damaged; {damaged[0].file}: {damaged[0].kind}",
        file=sys.stderr,
    )
    return FOUND if fail_on_findings else DAMAGED


def _draw(problems: list[tuple[str, str, str]]) -> None:
    if not problems:
        return

    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("file", "problem", "detail"):
        table.add_column(name, overflow="fold")
    for cells in problems:
        table.add_row(*(Text(cell) for cell in cells))
    console(_ENDLESS).print(table)
