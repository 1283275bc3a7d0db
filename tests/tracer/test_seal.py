"""Sealing what dead agents left: streams, spools, journals and rings; twice is once, and the living are left alone."""

import json
import subprocess
import sys
import time
from pathlib import Path

import fake_rank
import pytest
from node import NODE, Node, make_node

from rankscope.schema import paths
from rankscope.schema.errors import NotARun
from rankscope.schema.process_rows import this_boot
from rankscope.schema.process_state import RunRef
from rankscope.tracer import agent, launch
from rankscope.tracer.orphans import is_agent_alive, write_beat
from rankscope.tracer.rundir import RunDir
from rankscope.tracer.seal import seal
from rankscope.tracer.stream_file import StreamFile
from rankscope.tracer.verify import verify


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return make_node(tmp_path, monkeypatch)


def killed_agent(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that drained and flushed once, and then was killed."""
    with monkeypatch.context() as patched:
        patched.setattr(agent.NodeAgent, "_leave", lambda self: True)
        node.agent()


def test_processes_without_an_agent_are_sealed(node: Node) -> None:
    rank = node.rank()
    rank.done(12)
    rank.open()
    rank.drop()
    found = seal(str(node.run_dir))
    assert (found.run_id, found.nodes, found.left_alone) == ("run-1", (NODE,), ())
    assert [row["state"] for row in node.sealed("collective")] == ["completed"] * 12 + ["issued"]
    assert [row["exit_kind"] for row in node.sealed("process")] == ["killed"]
    assert node.local_files() == []
    node.check_intact()


def test_sealing_again_changes_nothing(node: Node) -> None:
    node.rank().done(12)
    seal(str(node.run_dir))
    before = {path: path.read_bytes() for path in node.run_dir.rglob("*.parquet")}
    again = seal(str(node.run_dir))
    assert again.num_rows == 0
    assert {path: path.read_bytes() for path in node.run_dir.rglob("*.parquet")} == before


def test_streams_and_rings_of_a_killed_agent_give_each_row_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.rank(0).done(30)
    node.rank(1).done(30)
    killed_agent(node, monkeypatch)
    assert list(node.run_dir.glob("live/*/collective.0.*.arrows"))
    assert len(node.everything("collective")) == 60
    seal(str(node.run_dir))
    assert len(node.sealed("collective")) == 60
    assert node.local_files() == [] and not (node.run_dir / paths.LIVE).exists()
    node.check_intact()


def test_streams_alone_are_enough(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.rank().done(30)
    killed_agent(node, monkeypatch)
    for path in node.folder.iterdir():
        path.unlink()
    for beat in node.run_dir.glob("live/*/*.beat"):
        document = json.loads(beat.read_text())
        beat.write_text(json.dumps({**document, "boot_id": "another"}))
    assert seal(str(node.run_dir)).num_rows == 0, "an agent on another host may be at work: its beat is young"
    monkeypatch.setattr("rankscope.tracer.orphans.SILENT_SECONDS", -1.0)
    seal(str(node.run_dir))
    assert len(node.sealed("collective")) == 30
    node.check_intact()


def test_the_next_agent_takes_over_from_a_killed_one(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = node.rank(capacity=64)
    rank.done(30)
    killed_agent(node, monkeypatch)
    later = node.rank(1)
    later.done(5)
    node.agent()
    assert sorted((row["proc"], row["record"]) for row in node.sealed("collective")) == [
        *((1000, record) for record in range(30)), *((1001, record) for record in range(5))]  # fmt: skip
    assert node.local_files() == []
    node.check_intact()


def test_a_stream_cut_off_in_the_middle_gives_its_whole_batches(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.rank().done(30)
    killed_agent(node, monkeypatch)
    (path,) = node.run_dir.glob("live/*/collective.0.*.arrows")
    whole = path.read_bytes()
    for size in (0, 3, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert len(node.everything("collective")) == 30
    seal(str(node.run_dir))
    assert len(node.sealed("collective")) == 30


def test_a_foreign_file_among_the_streams_is_named(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.rank().done(3)
    killed_agent(node, monkeypatch)
    (node.run_dir / f"live/node={NODE}/step.0.deadbeef-0001.arrows").write_bytes(b"something else")
    found = seal(str(node.run_dir))
    assert any("deadbeef" in note for note in found.left_alone)
    assert len(node.sealed("collective")) == 3


def test_a_folder_whose_agent_is_at_work_is_left_alone(node: Node) -> None:
    node.rank().done(3)
    lock = launch.take_lock(node.folder)
    assert lock is not None
    RunDir(str(node.run_dir)).prepare(RunRef("run-1", str(node.run_dir)))
    found = seal(str(node.run_dir))
    assert found.num_rows == 0 and "still at work" in found.left_alone[0]
    assert node.local_files() == ["1000.journal", "1000.ring"]


def test_a_living_process_is_left_alone_with_its_streams(node: Node) -> None:
    witness = node.base / "witness"
    settings = {"folder": str(node.folder), "run_dir": str(node.run_dir), "rank": 0, "boot_id": fake_rank.BOOT_ID,
                "witness": str(witness), "seconds": 60, "rate": 50, "capacity": 1024}  # fmt: skip
    process = subprocess.Popen([sys.executable, fake_rank.__file__, json.dumps(settings)])
    try:
        while not witness.exists() or len(witness.read_bytes().splitlines()) < 5:
            time.sleep(0.02)
        RunDir(str(node.run_dir)).prepare(RunRef("run-1", str(node.run_dir)))
        stream = StreamFile(RunDir(str(node.run_dir)).local_path(f"live/node={NODE}/step.0.aa-0001.arrows"), "step")
        stream.close()
        found = seal(str(node.run_dir))
        assert "still runs" in found.left_alone[0] and found.num_rows == 0
        assert Path(stream.path).exists()
    finally:
        process.kill()
        process.wait()


def test_what_is_no_run_is_said(tmp_path: Path, node: Node) -> None:
    with pytest.raises(NotARun):
        seal(str(tmp_path))
    with pytest.raises(NotARun):
        verify(str(tmp_path / "missing"))


def test_an_agent_of_this_boot_is_judged_by_its_lock(node: Node, tmp_path: Path) -> None:
    place = RunDir(str(tmp_path / "run"))
    lock = tmp_path / "agent.lock"
    lock.touch()
    write_beat(place, NODE, "aa", this_boot(), str(lock))
    assert not is_agent_alive(place, NODE, "aa", this_boot()), "nobody holds it"
    assert is_agent_alive(place, NODE, "aa", "another boot"), "its beat is young"
    lock.unlink()
    assert is_agent_alive(place, NODE, "aa", this_boot()), "its lock may lie in another container"
    assert not is_agent_alive(place, NODE, "bb", this_boot()), "no beat"


@pytest.mark.parametrize("damage", ["missing", "changed", "unreadable", "not in the index"])
def test_verify_names_what_is_wrong(node: Node, damage: str) -> None:
    node.rank().done(5)
    node.agent()
    (path,) = node.run_dir.glob("collective/*/*/*.parquet")
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "changed":
        path.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    elif damage == "unreadable":
        (path.parent / "other.parquet").write_bytes(b"PAR1 but no more")
    else:
        (path.parent / "other.parquet").write_bytes(whole)
    found = verify(str(node.run_dir))
    assert [problem.kind for problem in found.problems] == [damage] and not found.is_intact
    assert found.num_files == len(list(node.run_dir.rglob("*.parquet"))) - 1 + (damage in ("missing", "changed")) * (
        damage == "missing") - (damage in ("unreadable", "not in the index"))  # fmt: skip
