"""A page that proves damaged only while an analyzer reads it: its file is left out and named, and the answer stands.

The run is read anew then, and temporary tables are gone: whoever keeps some begins again.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from run_builder import RunBuilder, healthy_run

from rankscope.analyzers.clocks import clocks
from rankscope.analyzers.collectives import collectives
from rankscope.analyzers.communication import communication
from rankscope.analyzers.exposure import exposure
from rankscope.analyzers.hang import hang
from rankscope.analyzers.lateness import lateness
from rankscope.analyzers.loading import loading
from rankscope.analyzers.pipeline import pipeline
from rankscope.analyzers.report import report
from rankscope.analyzers.run import Run
from rankscope.analyzers.scaling_run import scaling_run
from rankscope.analyzers.stragglers import stragglers
from rankscope.analyzers.what_if import what_if

Analyzer = Callable[[Run], Any]
ANALYZERS: tuple[Analyzer, ...] = (
    stragglers, collectives, clocks, what_if, pipeline, exposure, hang, communication, report, loading, scaling_run,
)  # fmt: skip


def damage(path: Path, name: str) -> None:
    """Overwrite the pages of one column."""
    group = pq.read_metadata(path).row_group(0)
    [column] = [group.column(i) for i in range(group.num_columns) if group.column(i).path_in_schema == name]
    data = bytearray(path.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    data[start : start + column.total_compressed_size] = b"\x5a" * column.total_compressed_size
    path.write_bytes(bytes(data))


@pytest.fixture(params=[("collective", "issued_ns"), ("step", "end_ns")], ids=["collective", "step"])
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Three files of each table, two steps in each; no key of the second is damaged, so opening does not see it."""
    found, (table, column) = healthy_run(tmp_path / "run", pieces=3), request.param
    damage(sorted((found / table).rglob("*.parquet"))[1], column)
    return found


@pytest.mark.parametrize("analyzer", ANALYZERS, ids=lambda item: item.__name__)
def test_every_analyzer_answers(run: Path, analyzer: Analyzer) -> None:
    with Run.open(str(run)) as opened:
        assert not opened.faults
        analyzer(opened)
        assert len(opened.faults) <= 1


def test_lateness_is_of_the_files_that_are_whole(run: Path) -> None:
    with Run.open(str(run)) as opened:
        found = lateness(opened)
        assert len(opened.faults) == 1 and len(found.steps) == 3


@pytest.mark.parametrize("column", ["dtype", "root", "issued_ns"])
def test_what_a_second_reading_finds_damaged(tmp_path: Path, column: str) -> None:
    build = RunBuilder(tmp_path / "run")
    for seq in range(4):
        for rank in (0, 1):
            build.collective(rank, seq, 10 * seq, None, 10 * seq + 5, root=rank, dtype=f"float{16 << rank}")
    build.seal()
    build.collective(0, 4, 100, None, None, root=1)
    build.step(0, 1, 0, 200_000)
    build.step(1, 1, 0, 200_000)
    build.entities(exit_kind="running")
    path = build.seal()
    damage(sorted((path / "collective").rglob("*.parquet"))[0], column)
    with Run.open(str(path)) as opened:
        found = hang(opened)
        assert found.missing == (1,) and len(opened.faults) == 1
