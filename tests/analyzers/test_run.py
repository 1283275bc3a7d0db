"""The run reader: what is one run, what wins where rows were written twice, what is said of useless files."""

import json
import os
import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from run_builder import MS, NODE, RunBuilder, healthy_run, proc_of

from rankscope.analyzers import place
from rankscope.analyzers import run as run_module
from rankscope.analyzers.report import report
from rankscope.analyzers.run import Row, Run
from rankscope.schema.arrow import arrow_schema, rows_to_table
from rankscope.schema.errors import EmptyRun, MixedRuns, NewerOntology, NotARun, UnreadableFile
from rankscope.schema.journal import encode
from rankscope.schema.leftovers import Leftover
from rankscope.schema.paths import REPLACES, fact_folder, live_folder
from rankscope.schema.process_state import ProcessState, RunRef, read_journal
from rankscope.schema.tables import TABLES


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return healthy_run(tmp_path / "runs" / "one")


def rows(run_dir: Path | str, sql: str) -> list[Row]:
    with Run.open(str(run_dir)) as run:
        return run.rows(sql)


def collective_file(run_dir: Path) -> Path:
    (path,) = (run_dir / "collective").rglob("*.parquet")
    return path


def test_a_run_is_found_by_path_address_and_id(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(run_dir, run_dir.parent.parent / "rankscope-runs" / "run-1")
    monkeypatch.chdir(run_dir.parent.parent)
    for name in (str(run_dir), "runs/one", run_dir.as_uri(), "run-1"):
        with Run.open(name) as run:
            assert run.run_id == "run-1"
            assert run.rows("SELECT count(*) FROM collective") == [(12,)]


def test_an_object_store_is_read_through_its_file_system(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fs.SubTreeFileSystem(str(run_dir.parent), fs.LocalFileSystem())  # DuckDB cannot open what it names
    known = SimpleNamespace(from_uri=lambda _: (store, "one"))
    monkeypatch.setattr(
        place, "fs", SimpleNamespace(FileSystem=known, FileType=fs.FileType, LocalFileSystem=fs.LocalFileSystem)
    )
    with Run.open("s3://bucket/one") as run, Run.open(str(run_dir)) as here:
        assert not run.place.is_local
        sql = "SELECT * FROM collective ORDER BY proc, record"
        assert run.rows(sql) == here.rows(sql) != []
        assert run.digest == here.digest
        assert [item.value for item in report(run).measurements] == [item.value for item in report(here).measurements]


def test_every_table_is_a_view_with_its_types_and_its_place(run_dir: Path) -> None:
    with Run.open(str(run_dir)) as run:
        for name, table in TABLES.items():
            described = {row[0]: row[1] for row in run.rows(f"DESCRIBE {name}")}
            assert list(described)[: len(table.names)] == list(table.names)
            if table.table_class in ("fact", "reading"):
                assert described["incarnation"] == "BIGINT" and described["node"] == "VARCHAR"
        assert run.rows("SELECT count(*), sum(allocated_bytes) FROM memory") == [(0, None)]
        assert run.rows("SELECT DISTINCT incarnation, node FROM collective") == [(0, NODE)]


def test_a_run_that_is_not_sealed_reads_like_one_that_is(tmp_path: Path) -> None:
    sealed = healthy_run(tmp_path / "sealed")
    live = tmp_path / "live"
    build = RunBuilder(live)
    build.root = live
    for table in TABLES:
        for path in (sealed / table).rglob("*.parquet"):
            for row in pq.ParquetFile(path).read().to_pylist():
                build.add(table, 0 if TABLES[table].table_class != "entity" else None, **row)
    build.stream(batches=3)
    sql = "SELECT * FROM collective ORDER BY proc, record"
    assert rows(live, sql) == rows(sealed, sql)


def test_the_last_row_of_a_record_wins(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.collective(0, 0, 10, None, None, record=0)
    build.collective(0, 1, 20, (20, 30), 30, record=1)
    build.seal()
    build.collective(0, 0, 10, (10, 15), 15, record=0)
    build.collective(1, 0, 12, None, None, record=0)
    build.collective(1, 0, 12, (12, 15), 15, record=0)
    build.entities()
    build.stream()
    sql = "SELECT rank, record, state, completed_ns FROM collective ORDER BY rank, record"
    assert rows(build.root, sql) == [
        (0, 0, "completed", 15 * MS),
        (0, 1, "completed", 30 * MS),
        (1, 0, "completed", 15 * MS),
    ]


def test_a_sealed_file_counts_instead_of_its_stream_and_a_merged_one_instead_of_its_parts(run_dir: Path) -> None:
    path = collective_file(run_dir)
    twin = Path(live_folder(str(run_dir), NODE)) / f"collective.0.{path.stem}.arrows"
    twin.parent.mkdir(parents=True)
    data = pq.ParquetFile(path).read()
    with pa.ipc.new_stream(twin, arrow_schema("collective")) as writer:
        writer.write_table(data.cast(arrow_schema("collective")))
    merged = path.with_name("agent-9.parquet")
    pq.write_table(data.replace_schema_metadata({**data.schema.metadata, REPLACES: path.stem}), merged)
    with Run.open(str(run_dir)) as run:
        assert run.rows("SELECT count(*) FROM collective") == [(12,)]
        assert [Path(item.path).name for item in run.listing.sealed if item.table == "collective"] == [
            "agent-9.parquet"
        ]
        assert run.listing.streams == ()


def test_an_older_minor_version_has_nulls_for_new_columns(run_dir: Path) -> None:
    path = collective_file(run_dir)
    old = pq.ParquetFile(path).read().drop_columns(["role", "device_end_ns"])
    pq.write_table(old, path)
    assert rows(run_dir, "SELECT DISTINCT role, device_end_ns, op FROM collective") == [(None, None, "all_reduce")]


def test_a_newer_major_version_is_refused_by_name(run_dir: Path) -> None:
    path = collective_file(run_dir)
    data = pq.ParquetFile(path).read()
    pq.write_table(data.replace_schema_metadata({**data.schema.metadata, b"rankscope.ontology": b"2.0.0"}), path)
    with pytest.raises(NewerOntology, match=r"agent-1\.parquet: written under ontology 2\.0\.0"):
        Run.open(str(run_dir))


def test_two_runs_in_one_folder_are_refused(run_dir: Path) -> None:
    other = run_dir / "run" / "host-b-22222222.parquet"
    pq.write_table(rows_to_table("run", [{"run_id": "run-2", "world_size": 2}]), other)
    with pytest.raises(MixedRuns, match=r"2 runs in one folder \(run-1, run-2\)"):
        Run.open(str(run_dir))


@pytest.mark.parametrize("kind", ["truncated", "foreign", "empty"])
def test_a_file_that_is_no_use_is_named_and_lowers_the_coverage(run_dir: Path, kind: str) -> None:
    path = collective_file(run_dir)
    if kind == "truncated":
        path.write_bytes(path.read_bytes()[:-100])
    elif kind == "empty":
        path.write_bytes(b"")
    else:
        pq.write_table(pa.table({"a": [1]}), path)
    (run_dir / "notes.txt").write_text("mine")
    with Run.open(str(run_dir)) as run:
        faults = {Path(fault.path).name: fault.reason for fault in run.faults}
        assert set(faults) == {path.name, "notes.txt"}
        assert ("foreign" if kind == "foreign" else "truncated") in faults[path.name]
        quality = report(run).coverage
        # 24 of 36 ring rows are left: spans and steps
        assert quality.coverage.value == pytest.approx(24 / 36)
        assert all(item.provenance.coverage == quality.coverage.value for item in report(run).brief.measurements)


def damage_pages(path: Path) -> None:
    """Everything but the footer, which still tells what ought to be there."""
    data = bytearray(path.read_bytes())
    footer = int.from_bytes(data[-8:-4], "little") + 8
    data[4:-footer] = b"\xff" * len(data[4:-footer])
    path.write_bytes(bytes(data))


def test_damaged_pages_beside_whole_files_are_left_out_when_the_run_is_opened(tmp_path: Path) -> None:
    run_dir = healthy_run(tmp_path / "run", pieces=2)
    path = min((run_dir / "collective").rglob("*.parquet"))
    damage_pages(path)
    with Run.open(str(run_dir)) as run:
        assert run.rows("SELECT count(*) FROM step") == [(12,)]
        assert run.rows("SELECT count(*) > 0 FROM collective") == [(True,)]
        assert [Path(fault.path).name for fault in run.faults] == [path.name]


def test_damaged_pages_are_found_when_read_and_left_out(run_dir: Path) -> None:
    path = collective_file(run_dir)
    damage_pages(path)
    with Run.open(str(run_dir)) as run:
        assert not run.faults
        found = report(run)
        assert [Path(fault.path).name for fault in found.coverage.faults] == [path.name]
        assert found.coverage.faults[0].reason.startswith("damaged")
        assert found.coverage.coverage.value == pytest.approx(24 / 36)
        assert run.rows("SELECT count(*) FROM step") == [(12,)]


def test_damaged_pages_of_a_table_that_is_kept_in_memory(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope.analyzers.run._MANY_FILES", 1)
    [path] = (run_dir / "step").rglob("*.parquet")
    damage_pages(path)
    with Run.open(str(run_dir)) as run:
        found = report(run)
        assert [Path(fault.path).name for fault in found.coverage.faults] == [path.name]
        assert found.brief.longest is None and found.coverage.coverage.value == pytest.approx(24 / 36)


def test_a_file_sealed_away_while_it_is_read_is_looked_for_again(run_dir: Path) -> None:
    path = collective_file(run_dir)
    with Run.open(str(run_dir)) as run:
        path.rename(path.with_name("agent-7.parquet"))
        assert run.rows("SELECT count(*) FROM collective") == [(12,)]
        assert not run.faults


@pytest.mark.parametrize("name", ["runs[1]*?", "it's", "a=b/incarnation=7/node=x", "with space"])
def test_any_folder_name_will_do(tmp_path: Path, name: str) -> None:
    run_dir = healthy_run(tmp_path / name, pieces=2)
    assert rows(run_dir, "SELECT count(*), min(incarnation), min(node) FROM step") == [(12, 0, NODE)]


def test_what_is_no_run_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "a.csv").write_text("1,2")
    (tmp_path / "file").write_text("x")
    (tmp_path / "no-rows").mkdir()
    (tmp_path / "no-rows" / "run.json").write_text(json.dumps({"run_id": "r", "ontology_version": "1.0.0"}))
    (tmp_path / "bad-json").mkdir()
    (tmp_path / "bad-json" / "run.json").write_text("{")
    expected = {
        "missing": (NotARun, "no such run"),
        "empty": (NotARun, "it is empty"),
        "foreign": (NotARun, "not a run directory"),
        "file": (NotARun, "a file"),
        "no-rows": (EmptyRun, "no rows"),
        "bad-json": (UnreadableFile, "run.json"),
    }
    for name, (kind, text) in expected.items():
        with pytest.raises(kind, match=text) as caught:
            Run.open(str(tmp_path / name))
        assert "\n" not in str(caught.value)
    with pytest.raises(NotARun):
        Run.open("")
    with pytest.raises(UnreadableFile):
        Run.open("nonsense://bucket/run")


def test_the_answer_does_not_depend_on_order_files_threads_or_place(tmp_path: Path) -> None:
    def values(run_dir: Path, threads: int) -> list[tuple]:
        with Run.open(str(run_dir), threads=threads) as run:
            return [(item.name, item.scope, item.value, item.n, item.interval) for item in report(run).measurements]

    plain = values(healthy_run(tmp_path / "a"), 1)
    assert plain == values(tmp_path / "a", 2)
    assert plain == values(healthy_run(tmp_path / "b", pieces=3, shuffle=random.Random(5)), 2)
    assert plain == values(healthy_run(tmp_path / "c", pieces=2, shuffle=random.Random(6)), 1)


def test_the_digest_is_of_the_content(run_dir: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(run_dir, copy)
    with Run.open(str(run_dir)) as run, Run.open(str(copy)) as other:
        assert run.digest == other.digest
    path = collective_file(copy)
    pq.write_table(pq.ParquetFile(path).read().slice(0, 11), path)
    with Run.open(str(run_dir)) as run, Run.open(str(copy)) as other:
        assert run.digest != other.digest


def test_reading_writes_nothing(run_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    before = sorted((str(path), path.stat().st_mtime_ns) for path in run_dir.rglob("*"))
    with Run.open(str(run_dir)) as run:
        report(run)
    assert sorted((str(path), path.stat().st_mtime_ns) for path in run_dir.rglob("*")) == before
    assert os.listdir(".") == []


def test_rows_without_a_record_number_all_count(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for _ in range(2):
        for name in ("a", "b"):
            build.add("checkpoint", 0, proc=proc_of(0), rank=0, record=None, action="save", path=name)
        build.seal()
    build.entities()
    build.seal()
    assert rows(build.root, "SELECT path, count(*) FROM checkpoint GROUP BY path ORDER BY path") == [("a", 2), ("b", 2)]


def test_readings_of_several_files_all_count_and_keep_their_node(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for moment in (1, 2):
        build.add("host_sample", 0, node=NODE, time_ns=moment, load_1m=1.0)
        build.seal()
    build.add("host_sample", 0, node=NODE, time_ns=3, load_1m=1.0)
    build.entities()
    build.stream()
    assert rows(build.root, "SELECT time_ns, node, incarnation FROM host_sample ORDER BY 1") == [
        (t, NODE, 0) for t in (1, 2, 3)
    ]


def test_the_last_known_value_of_an_entity_counts(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.collective(0, 0, 1, None, 2)
    build.entities(exit_kind="running")
    build.seal()
    build.add("process", proc=proc_of(1), incarnation=0, exit_kind="killed")
    build.stream()
    assert rows(build.root, "SELECT rank, exit_kind FROM process ORDER BY rank") == [(0, "running"), (1, "killed")]


def test_files_of_a_fact_folder_of_another_table_are_foreign(run_dir: Path) -> None:
    folder = Path(fact_folder(str(run_dir), "span", 0, NODE))
    shutil.copy(collective_file(run_dir), folder / "agent-8.parquet")
    with Run.open(str(run_dir)) as run:
        assert [fault.reason for fault in run.faults] == ["foreign: it does not say that it holds table span"]


def test_what_an_agent_seals_while_it_is_read_is_there_once(
    tmp_path: Path, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process's journal was found, then sealed and deleted: the run is read anew, without a word of it."""
    gone = tmp_path / "7.journal"
    state = read_journal_of(gone, ring_path=str(tmp_path / "7.ring"))
    found = iter([[Leftover(RunRef("run-1", str(run_dir)), str(gone), state, False, (), [])], []])
    gone.unlink()
    monkeypatch.setattr(run_module, "leftovers_of", lambda _: next(found))
    with Run.open(str(run_dir)) as run:
        assert (run.faults, run.unsealed.num_leftovers) == ((), 0)
        assert run.rows("SELECT count(*) FROM collective") == [(12,)]


def read_journal_of(path: Path, ring_path: str) -> ProcessState:
    process = encode("process", 1, {"proc": 7, "rank": 0})
    path.write_bytes(process + encode("ring", 2, {"path": ring_path, "capacity": 1024}))
    return read_journal(str(path))
