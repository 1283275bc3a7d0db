"""What a launch that was killed as a whole left: the next agent seals it; nothing young and unsealed is deleted."""

import os
import threading
import time
from pathlib import Path

import pytest
from node import Node, make_node

from rankscope.schema import paths
from rankscope.tracer import agent, tidying
from rankscope.tracer.launch import take_lock
from rankscope.tracer.tidying import EVIDENCE_SECONDS, QUIET_SECONDS, tidy


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(paths, "TMPFS_BASE", tmp_path / "shm")
    return make_node(tmp_path, monkeypatch)


def killed_launch(node: Node, age_seconds: float) -> None:
    """Two ranks whose agent never came."""
    for number in range(2):
        rank = node.rank(number, world_size=2)
        rank.done(20)
        rank.drop()
    for path in node.folder.iterdir():
        os.utime(path, (time.time() - age_seconds,) * 2)


def drain(folder: Path, over: threading.Event) -> None:
    agent.NodeAgent(folder).run(over)


def test_a_killed_launch_is_sealed_and_its_files_are_deleted(node: Node) -> None:
    killed_launch(node, 2 * QUIET_SECONDS)
    tidy(paths.local_base() / "own", drain)
    assert len(node.sealed("collective")) == 40 and node.local_files() == []
    assert {row["exit_kind"] for row in node.sealed("process")} == {"killed"}
    node.check_intact()


def test_the_agent_of_another_launch_does_it(node: Node) -> None:
    killed_launch(node, 2 * QUIET_SECONDS)
    own = paths.local_base() / "own"
    own.mkdir()
    assert agent.main(["--folder", str(own)]) == 0
    assert len(node.sealed("collective")) == 40 and node.local_files() == []


def test_what_is_own_young_or_in_use_is_left_alone(node: Node) -> None:
    killed_launch(node, QUIET_SECONDS / 2)
    left = node.local_files()
    tidy(paths.local_base() / "own", drain)
    for path in node.folder.iterdir():
        os.utime(path, (0, 0))
    tidy(node.folder, drain)
    lock = take_lock(node.folder)
    assert lock is not None
    tidy(paths.local_base() / "own", drain)
    os.close(lock)
    assert node.local_files() == left and not node.run_dir.exists()


@pytest.mark.parametrize(("age_seconds", "stays"), [(EVIDENCE_SECONDS - 3600, True), (EVIDENCE_SECONDS + 3600, False)])
def test_evidence_that_cannot_be_sealed_stays_seven_days(
    node: Node, age_seconds: float, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_launch(node, age_seconds)
    left = node.local_files()
    monkeypatch.setattr(tidying, "_can_be_there", lambda run_dir: False)
    tidy(paths.local_base() / "own", drain)
    assert node.local_files() == (left if stays else [])


def test_a_place_that_is_gone_does_not_come_back(tmp_path: Path) -> None:
    assert tidying._can_be_there(str(tmp_path / "rankscope-runs" / "run"))
    assert not tidying._can_be_there(str(tmp_path / "gone" / "rankscope-runs" / "run"))


def test_a_ring_is_as_old_as_its_last_record(node: Node) -> None:
    rank = node.rank(now=time.monotonic_ns)
    rank.done(1)
    rank.drop()
    for path in node.folder.iterdir():
        os.utime(path, (0, 0))
    assert tidying._age_seconds(tidying._files(node.folder)) < QUIET_SECONDS
