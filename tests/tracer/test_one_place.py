"""Who looks for whose token, when, and what is said."""

from pathlib import Path

import pytest

from rankscope.schema.process_state import Join, ProcessState, RunRef
from rankscope.tracer.one_place import MAX_TOKENS, ORIGIN, PATIENCE_NS, OnePlace
from rankscope.tracer.rundir import RunDir

THEIRS = "/theirs"


def state(run: RunRef, rank: int, token: str, incarnation: int = 0) -> ProcessState:
    body = {"token": token, "origin": THEIRS}
    return ProcessState("/x/5.journal", joins=[Join(run.run_id, run.run_dir, incarnation, 0, rank, body, 0)])


@pytest.fixture
def run(tmp_path: Path) -> RunRef:
    return RunRef("run-1", str(tmp_path / "run"))


def test_one_shared_folder_and_nothing_is_said(run: RunRef) -> None:
    first, other, place = OnePlace(), OnePlace(), RunDir(run.run_dir)
    for incarnation, token in enumerate(["a", "b"]):
        assert first.look(run, place, [state(run, 0, token, incarnation)], 0) is None
        for now_ns in (0, PATIENCE_NS, 2 * PATIENCE_NS):
            assert other.look(run, place, [state(run, 1, token, incarnation)], now_ns) is None


def test_another_folder_is_told_once_and_not_before_its_time(run: RunRef) -> None:
    other, place, states = OnePlace(), RunDir(run.run_dir), [state(run, 3, "a")]
    assert other.look(run, place, states, 5) is None
    assert other.look(run, place, states, 4 + PATIENCE_NS) is None
    text = other.look(run, place, states, 5 + PATIENCE_NS)
    assert text is not None and run.run_dir in text and THEIRS in text
    assert other.look(run, place, states, 9 * PATIENCE_NS) is None
    assert not Path(run.run_dir).exists()  # it only reads


def test_without_a_token_or_in_an_object_store_nothing_is_known(run: RunRef) -> None:
    assert OnePlace().look(run, RunDir(run.run_dir), [ProcessState("/x/5.journal")], 0) is None
    tried, far = OnePlace(), RunRef("run-1", "s3://bucket/run")
    place = RunDir.__new__(RunDir)
    place.address, place._files = far.run_dir, object()
    for now_ns in (0, 2 * PATIENCE_NS):
        assert tried.look(far, place, [state(far, 1, "a")], now_ns) is None


def test_old_tokens_go_and_a_damaged_file_is_written_anew(run: RunRef) -> None:
    place, first = RunDir(run.run_dir), OnePlace()
    place.write(ORIGIN, b"{torn")
    for number in range(MAX_TOKENS + 3):
        first.look(run, place, [state(run, 0, f"t{number}", number)], 0)
    assert place.read(ORIGIN).count(b'"') == 2 * MAX_TOKENS and b'"t0"' not in place.read(ORIGIN)
