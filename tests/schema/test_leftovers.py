"""What a reader finds on the machine itself: without an agent, in the middle of a run, and with damage."""

import os
from pathlib import Path

import pytest
from fake_rank import NODE, FakeRank

from rankscope.schema import paths
from rankscope.schema.leftovers import find_leftovers, leftover_runs
from rankscope.schema.process_state import RunRef, read_journal
from rankscope.tracer.seal import seal


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(tmp_path / "local"))
    monkeypatch.setattr(paths, "TMPFS_BASE", tmp_path / "shm")
    return paths.local_base() / "launch"


def test_a_process_is_found_by_its_run_and_reading_changes_nothing(folder: Path, tmp_path: Path) -> None:
    rank = FakeRank(folder, str(tmp_path / "run"))
    rank.done(4)
    rank.open()
    rank.step(0)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    (found,) = find_leftovers(f"{tmp_path}/./run/")
    tables = found.tables()
    assert [row["state"] for row in tables["collective", 0, NODE].to_pylist()] == ["completed"] * 4 + ["issued"]
    assert tables["step", 0, NODE].num_rows == 1
    assert [row["exit_kind"] for row in tables["process", None, NODE].to_pylist()] == ["killed"]
    assert [row["member_counts"] for row in tables["process_group", None, NODE].to_pylist()] == [[1]]
    assert found.problems == [] and find_leftovers(str(tmp_path / "other")) == []
    assert leftover_runs() == [RunRef("run-1", str(tmp_path / "run"))]
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(("error", "kind"), [(None, "clean"), ("RuntimeError", "failed")])
def test_an_exit_line_says_what_ended_the_process(folder: Path, tmp_path: Path, error: str | None, kind: str) -> None:
    rank = FakeRank(folder, str(tmp_path / "run"))
    rank.done(1)
    rank.line("exit", num_records=1, error=error)
    (found,) = find_leftovers(str(tmp_path / "run"))
    assert [row["exit_kind"] for row in found.tables()["process", None, NODE].to_pylist()] == [kind]


def test_two_readings_are_equal(folder: Path, tmp_path: Path) -> None:
    rank = FakeRank(folder, str(tmp_path / "run"))
    rank.done(4)
    rank.count(calls=9)
    first, second = ({key: rows.to_pylist() for key, rows in found.tables().items()}
                     for _ in range(2) for found in find_leftovers(str(tmp_path / "run")))  # fmt: skip
    assert first == second


def test_a_truncated_ring_is_named_and_the_journal_still_read(folder: Path, tmp_path: Path) -> None:
    rank = FakeRank(folder, str(tmp_path / "run"))
    rank.done(4)
    os.truncate(rank.ring.path, 9000)
    (found,) = find_leftovers(str(tmp_path / "run"))
    tables = found.tables()
    assert ("collective", 0, NODE) not in tables and ("process", None, NODE) in tables
    assert len(found.problems) == 1 and "truncated" in found.problems[0]


def test_a_line_cut_off_and_lines_that_make_no_sense_are_counted(folder: Path, tmp_path: Path) -> None:
    rank = FakeRank(folder, str(tmp_path / "run"))
    path = folder / "1000.journal"
    with path.open("ab") as journal:
        journal.write(b'{"k":"name","t":5}\n{"k":"join","t":6,"run_id":1}\n[]\nnonsense\n{"k":"exit","t":7')
    state = read_journal(str(path))
    assert state.num_bad_lines == 4 and state.ended_ns is None and len(state.joins) == 1
    rank.exit()
    assert read_journal(str(path)).ended_ns is None, "the line after a stump without a newline is part of it"


def test_rows_belong_to_the_join_before_them(folder: Path, tmp_path: Path) -> None:
    rank = FakeRank(folder, str(tmp_path / "run"), joins=False)
    rank.done(2)
    rank.join(0)
    rank.done(3)
    rank.join(1)
    rank.line("row", table="checkpoint", row={"action": "save"})
    rank.done(1)
    (found,) = find_leftovers(str(tmp_path / "run"))
    tables = found.tables()
    assert tables["collective", 0, NODE]["record"].to_pylist() == [0, 1, 2, 3, 4]
    assert tables["collective", 1, NODE]["record"].to_pylist() == [5]
    assert ("checkpoint", 1, NODE) in tables and ("checkpoint", 0, NODE) not in tables


def test_rows_for_a_directory_that_holds_another_run_belong_beside_it(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text('{"run_id": "run-0"}')
    FakeRank(folder, str(tmp_path / "run")).done(4)
    beside = f"{tmp_path / 'run'}.run-1"
    assert find_leftovers(str(tmp_path / "run")) == [] and len(find_leftovers(beside)) == 1
    assert leftover_runs() == [RunRef("run-1", beside)]
    assert seal(beside).run_id == "run-1"
    assert (tmp_path / "run" / "run.json").read_text() == '{"run_id": "run-0"}'
