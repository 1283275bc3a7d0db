"""What a run that a test wrote below its folder answers to SQL."""

from pathlib import Path
from typing import Any

from rankscope.analyzers.run import Run


def rows(tmp_path: Path, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a statement over the run in `tmp_path/run`."""
    with Run.open(str(tmp_path / "run")) as run:
        return run.rows(sql)
