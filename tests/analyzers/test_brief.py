"""The run in brief against answers worked out by hand (see `healthy_run`)."""

from pathlib import Path

import pytest
from run_builder import MS, NODE, RunBuilder, healthy_run

from rankscope.analyzers.brief import Brief, brief
from rankscope.analyzers.run import Run


def brief_of(run_dir: Path) -> Brief:
    with Run.open(str(run_dir)) as run:
        return brief(run, 1.0)


def test_steps_and_their_distribution(tmp_path: Path) -> None:
    found = brief_of(healthy_run(tmp_path / "run"))
    assert found.num_steps.value == 6
    assert found.duration_ns("max") == 300 * MS
    assert found.duration_ns("p50") == pytest.approx(100 * MS, rel=0.01)
    assert found.duration_ns("p99") == pytest.approx(300 * MS, rel=0.01)
    assert found.tail_ratio.value == pytest.approx(3, rel=0.02)
    assert [item.n for item in found.durations] == [10] * 4
    assert found.longest == (300 * MS, 0, 5, 0)
    assert [(point.first_step, point.longest_ns // MS) for point in found.series] == [
        (1, 100),
        (2, 100),
        (3, 100),
        (4, 100),
        (5, 300),
    ]


def test_a_hang_is_part_of_how_long_the_run_took(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for rank in (0, 1):
        build.step(rank, 0, 0, 100)
    build.collective(0, 0, 150, None, None)
    for at in (50, 9000, 12_000):
        build.add("host_sample", 0, node=NODE, time_ns=at * MS)
    build.entities(exit_kind="killed", ends={1: {"ended_ns": 10_000 * MS}})
    assert brief_of(build.seal()).about.span_ns == 12_000 * MS


def test_about_and_ranks(tmp_path: Path) -> None:
    found = brief_of(healthy_run(tmp_path / "run"))
    assert (found.about.run_id, found.about.world_size, found.about.num_nodes, found.about.num_processes) == (
        "run-1",
        2,
        1,
        2,
    )
    assert found.about.span_ns == 1100 * MS and not found.about.is_running
    assert [(line.rank, line.num_steps, line.num_counted, line.longest_ns) for line in found.ranks] == [
        (0, 6, 5, 300 * MS),
        (1, 6, 5, 300 * MS),
    ]


def test_what_is_left_out_does_not_count(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run", world_size=1)
    for step, (start, end) in enumerate([(0, 500), (500, 600), (600, 1600), (1600, 1700)]):
        build.step(0, step, start, end, left_out="checkpoint" if step == 2 else None, is_skipped=step == 3)
    build.entities()
    found = brief_of(build.seal())
    assert found.duration_ns("max") == 100 * MS and found.durations[0].n == 2
    assert found.skipped.value == 1
    assert "first step" in found.durations[0].provenance.left_out


def test_restarts_add_up_and_each_leaves_its_first_step_out(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run", world_size=1)
    for incarnation in (0, 1000):
        for step in range(3):
            build.step(0, step, 100 * step, 100 * step + 100, incarnation=incarnation)
        build.entities(incarnation=incarnation)
    found = brief_of(build.seal())
    assert found.num_steps.value == 6 and found.durations[0].n == 4
    assert found.about.incarnations == (0, 1000)


def test_one_step_is_no_distribution(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run", world_size=1)
    build.step(0, 0, 0, 100)
    build.entities()
    found = brief_of(build.seal())
    assert found.num_steps.value == 1
    assert [item.value for item in found.durations] == [None] * 4
    assert all(item.reason for item in found.durations) and found.tail_ratio.value is None


def test_no_step_rows_are_not_zero_steps(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.collective(0, 0, 0, (0, 1), 1)
    build.entities()
    found = brief_of(build.seal())
    assert found.num_steps.value is None and "no step row" in found.num_steps.reason
    assert found.skipped.value is None


def test_shifting_all_clocks_changes_no_duration(tmp_path: Path) -> None:
    def durations(shift: int) -> list[object]:
        build = RunBuilder(tmp_path / f"run{shift}")
        for rank in (0, 1):
            for step in range(8):
                build.step(rank, step, shift + 10 * step, shift + 10 * step + 10 + step)
        build.entities()
        return [item.value for item in brief_of(build.seal()).measurements]

    assert durations(0) == durations(987_654)


def test_every_number_carries_its_evidence(tmp_path: Path) -> None:
    with Run.open(str(healthy_run(tmp_path / "run"))) as run:
        for item in brief(run, 0.5).measurements:
            evidence = item.provenance
            assert evidence.dataset_digest == run.digest and evidence.coverage == 0.5
            assert evidence.definition and evidence.tables and evidence.num_files >= 1 and evidence.num_rows >= 1
            assert evidence.ontology_version and evidence.duckdb_version and evidence.rankscope_version
        (p50, *_) = brief(run).durations
        assert sum(row[3] for row in run.rows(p50.provenance.statement)) == p50.n
