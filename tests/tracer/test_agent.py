"""The agent on ranks that have ended: what reaches the run directory, what stays, what is deleted."""

import os
import stat
from pathlib import Path

import pytest
from node import NODE, Node, make_node

from rankscope.schema import paths
from rankscope.tracer import compact, run_writer, segments
from rankscope.tracer.rundir import RunDir


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return make_node(tmp_path, monkeypatch)


def test_everything_is_sealed_once_and_nothing_is_left(node: Node) -> None:
    for number in range(2):
        rank = node.rank(number, world_size=2)
        rank.done(30)
        rank.step(0)
        rank.open()
        rank.exit() if number == 0 else None
        rank.drop()
    node.agent()
    rows = node.sealed("collective")
    assert [(row["proc"], row["record"], row["state"]) for row in rows] == [
        (proc, record, "completed" if record < 30 else "issued") for proc in (1000, 1001) for record in [*range(30), 31]
    ]
    ends = [(row["proc"], row["exit_kind"], row["num_records"], row["num_dropped"]) for row in node.sealed("process")]
    assert ends == [(1000, "clean", 32, 0), (1001, "killed", 32, 0)]
    assert [row["member_counts"] for row in node.sealed("process_group")] == [[2]]
    assert {row["group_id"] for row in rows} == {"g"} and {row["thread_id"] for row in rows} == {77}
    assert node.local_files() == []
    assert not (node.run_dir / paths.LIVE).exists()
    node.check_intact()


def test_files_are_private(node: Node) -> None:
    node.rank().done(3)
    node.agent()
    for path in node.run_dir.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert stat.S_IMODE(node.run_dir.stat().st_mode) == 0o700


def test_incarnations_go_to_their_own_folders(node: Node) -> None:
    rank = node.rank()
    rank.done(5)
    rank.join(1)
    rank.done(7)
    rank.drop()
    node.agent()
    counts = {path.parent.parent.name: 0 for path in node.run_dir.glob("collective/*/*/*.parquet")}
    assert counts.keys() == {"incarnation=0", "incarnation=1"}
    processes = node.sealed("process")
    assert [(row["incarnation"], row["from_record"], row["exit_kind"]) for row in processes] == [
        (0, 0, "clean"), (1, 5, "killed")]  # fmt: skip


def test_a_process_that_never_joined_adopts_the_run_of_its_folder(node: Node) -> None:
    node.rank(0).done(2)
    node.rank(1, joins=False).done(3)
    node.agent()
    assert sorted(row["proc"] for row in node.sealed("collective")) == [1000, 1000, 1001, 1001, 1001]


def test_a_process_nobody_can_place_is_left_alone(node: Node) -> None:
    node.rank(0, joins=False).done(2)
    node.agent()
    assert not node.run_dir.exists()
    assert node.local_files() == ["1000.journal", "1000.ring"]


def test_two_runs_of_one_launch_are_kept_apart(node: Node) -> None:
    node.rank(0).done(2)
    other = node.rank(1, run_id="run-2")
    other.run_dir = str(node.base / "other")
    other.join(0)
    other.done(3)
    node.agent()
    assert RunDir(str(node.base / "other")).run_id() == "run-2"
    assert {row["proc"] for row in node.sealed("collective")} == {1000}


def test_a_directory_that_holds_another_run_is_not_mixed(node: Node) -> None:
    node.rank(0, run_id="run-1").done(2)
    node.agent()
    node.rank(1, run_id="run-2").done(3)
    node.agent()
    assert {row["proc"] for row in node.sealed("collective")} == {1000}
    assert RunDir(f"{node.run_dir}.run-2").run_id() == "run-2"
    node.check_intact()


def test_a_second_agent_of_the_node_adds_to_the_same_files(node: Node) -> None:
    for number in range(3):
        rank = node.rank(number)
        rank.done(4)
        rank.drop()
        node.agent()
    assert len(list(node.run_dir.glob("collective/*/*/*.parquet"))) == 1
    assert len(node.sealed("collective")) == 12 and len(node.sealed("process")) == 3
    node.check_intact()


def test_dropped_rows_are_counted(node: Node) -> None:
    rank = node.rank(capacity=16)
    rank.done(50)
    node.agent()
    assert len(node.sealed("collective")) == 16
    assert [(row["num_records"], row["num_dropped"]) for row in node.sealed("process")] == [(50, 34)]


def test_counters_notes_and_journal_rows(node: Node) -> None:
    rank = node.rank()
    rank.done(1)
    rank.count(calls=640, timed_calls=10, timed_ns=5000, rows=1, errors=2)
    rank.line("note", text="a word")
    rank.line("row", table="checkpoint", row={"action": "save", "outcome": "ok", "bytes": 5})
    rank.line("row", table="nonsense", row={"x": 1})
    rank.line("clock", wall_ns=5, boot_id="b")
    node.agent()
    captures = {(row["hook"], row["num_calls"], row["why"]) for row in node.sealed("capture")}
    assert captures == {("process_groups", None, None), ("process_groups", 640, None), ("note", None, "a word")}
    assert [(row["action"], row["bytes"], row["proc"]) for row in node.sealed("checkpoint")] == [("save", 5, 1000)]
    assert [row["wall_ns"] for row in node.sealed("clock")] == [5]


def test_a_damaged_ring_costs_its_rows_only(node: Node) -> None:
    node.rank(0).done(2)
    broken = node.rank(1)
    os.truncate(broken.ring.path, 5000)
    node.agent()
    assert {row["proc"] for row in node.sealed("collective")} == {1000}
    assert {row["proc"] for row in node.sealed("process")} == {1000, 1001}


def test_an_unwritable_run_directory_keeps_everything_until_it_can_be_written(node: Node) -> None:
    node.run_dir.write_text("in the way")
    node.rank(0).done(20)
    node.rank(1).done(20)
    node.agent()
    assert [name for name in node.local_files() if name.endswith(("journal", "ring"))] == [
        "1000.journal", "1000.ring", "1001.journal", "1001.ring"]  # fmt: skip
    assert node.run_dir.read_text() == "in the way"
    node.run_dir.unlink()
    node.agent()
    assert len(node.sealed("collective")) == 40
    assert node.local_files() == []
    node.check_intact()


def test_a_disk_that_fills_in_the_middle_loses_nothing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    real, broken = os.write, [False]

    def write(descriptor: int, data: bytes) -> int:
        if broken[0] and str(node.run_dir) in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(28, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    broken[0] = True
    node.rank(0).done(25)
    node.agent()
    assert sorted(row["record"] for row in node.everything("collective")) == list(range(25))
    broken[0] = False
    node.agent()
    assert sorted(row["record"] for row in node.sealed("collective")) == list(range(25))
    assert node.local_files() == []
    node.check_intact()


def test_many_segments_become_one_file(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "ROW_GROUP_ROWS", 8)
    monkeypatch.setattr(compact, "SORTED_ROWS", 20)
    for number in range(3):
        rank = node.rank(number)
        rank.done(21)
        rank.drop()
        node.agent()
    (path,) = node.run_dir.glob("collective/*/*/*.parquet")
    assert sorted((row["proc"], row["record"]) for row in node.sealed("collective")) == [
        (1000 + number, record) for number in range(3) for record in range(21)
    ]
    assert path.parent.name == f"node={NODE}"
    node.check_intact()


def test_an_object_store_gets_whole_files_only(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.fs as pafs

    store = pafs.SubTreeFileSystem(str(node.base), pafs.LocalFileSystem())
    store.create_dir("bucket")
    monkeypatch.setattr(run_writer, "RunDir", lambda address: (
        RunDir("bucket/run", store) if address.startswith("s3://") else RunDir(address)))  # fmt: skip
    rank = node.rank()
    rank.run_dir = "s3://bucket/run"
    rank.join(0)
    rank.done(9)
    node.agent()
    names = sorted(path.parent.parent.parent.name for path in (node.base / "bucket/run").rglob("*-*.parquet"))
    assert "collective" in names
    assert not list((node.base / "bucket").rglob("*.arrows")) and not list((node.base / "bucket").rglob("*.staged"))
    assert node.local_files() == []
