"""The sample of a large run: the rows of the chosen steps, or sequence numbers, however the run is cut into parts."""

from collections.abc import Callable
from pathlib import Path

import pytest
from any_run import written

from rankscope.analyzers import parts, sampled
from rankscope.analyzers.run import Run, TableSize
from rankscope.analyzers.sampled_part import COLUMNS


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("part_rows", [3, 1 << 30])
@pytest.mark.parametrize("has_steps", [True, False])
def test_its_rows_are_those_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, part_rows: int, has_steps: bool
) -> None:
    path = written(tmp_path / "run", seed, is_one_host=False)
    for name, value in (("MAX_ROWS", 8), ("MIN_BLOCKS", 2), ("MOST_ROWS", 40), ("BLOCK", 1), ("NUMBERS", 2)):
        monkeypatch.setattr(sampled, name, value)
    monkeypatch.setattr(parts, "PART_ROWS", part_rows)
    if not has_steps:
        monkeypatch.setattr(Run, "size", _without_steps(Run.size))
    with Run.open(str(path)) as run:
        found = sampled.sampled(run)
        assert found.stride > 1 and found.column == ("step" if has_steps else "seq")
        names = ", ".join(("incarnation", *COLUMNS))
        assert run.rows(f"SELECT {names} FROM {found.table} ORDER BY ALL") == run.rows(
            f"SELECT {names} FROM collective WHERE {found.chosen} ORDER BY ALL"
        )
        described = (f"SELECT column_name, column_type FROM (DESCRIBE SELECT {names} FROM {table})"
                     for table in (found.table, "collective"))  # fmt: skip
        of_sample, of_table = (run.rows(sql) for sql in described)
        assert of_sample == of_table


def _without_steps(size: Callable[[Run, str], TableSize]) -> Callable[[Run, str], TableSize]:
    return lambda run, table: size(run, "empty" if table == "step" else table)
