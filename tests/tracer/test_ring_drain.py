"""What a ring's reader finds: final and provisional rows, late completions, and an exact count of the overwritten."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from fake_rank import FakeRank
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.schema import decode, ring
from rankscope.tracer import ring_drain
from rankscope.tracer.ring_drain import RingDrain

LATER = 10_000_000_000
"""Long after the fake rank's clock: nothing is young, nothing is about to return."""


def drain_of(rank: FakeRank) -> RingDrain:
    header, view = decode.open_ring(str(rank.ring.path))
    return RingDrain(header, view, lambda raw: np.ones(len(raw), np.bool_))


def numbers(drain: RingDrain, now_ns: int, is_last: bool = False) -> tuple[list[int], list[int]]:
    found = drain.read(now_ns, is_last)
    return found.final.numbers.tolist(), found.provisional.numbers.tolist()


@pytest.fixture
def rank(tmp_path: Path) -> FakeRank:
    return FakeRank(tmp_path / "launch", str(tmp_path / "run"), capacity=16)


def test_completed_rows_are_final_once(rank: FakeRank) -> None:
    drain = drain_of(rank)
    rank.done(5)
    assert numbers(drain, rank.now() + LATER) == ([0, 1, 2, 3, 4], [])
    assert numbers(drain, rank.now() + LATER) == ([], [])
    rank.done(1)
    assert numbers(drain, rank.now() + LATER) == ([5], [])
    assert drain.num_dropped == 0


def test_young_records_wait_for_the_next_pass(rank: FakeRank) -> None:
    drain = drain_of(rank)
    rank.done(3)
    assert numbers(drain, rank.now()) == ([], [])
    assert numbers(drain, rank.now() + LATER) == ([0, 1, 2], [])


def test_a_row_closed_just_now_is_looked_at_again(rank: FakeRank) -> None:
    drain = drain_of(rank)
    rank.done(1)
    assert numbers(drain, rank.now() + 5 * ring.YOUNG_NS) == ([], [])
    assert numbers(drain, rank.now() + LATER) == ([0], [])


def test_an_open_row_is_provisional_after_two_seconds_and_final_when_waited_for(rank: FakeRank) -> None:
    drain = drain_of(rank)
    record = rank.open()
    assert numbers(drain, rank.now() + ring_drain.OPEN_NS // 2) == ([], [])
    assert numbers(drain, rank.now() + ring_drain.OPEN_NS + 1) == ([], [record])
    assert numbers(drain, rank.now() + LATER) == ([], []), "once is enough"
    rank.close(record)
    assert numbers(drain, rank.now() + LATER) == ([record], [])


def test_a_polled_completion_is_provisional_until_its_slot_is_overwritten(rank: FakeRank) -> None:
    drain = drain_of(rank)
    record = rank.open()
    rank.close(record, waited=False)
    assert numbers(drain, rank.now() + LATER) == ([], [record])
    rank.done(16)
    final, provisional = numbers(drain, rank.now() + LATER)
    assert (final, provisional) == ([0, *range(1, 17)], [])
    assert drain.num_dropped == 0


def test_a_wait_after_a_polled_completion_is_still_seen(rank: FakeRank) -> None:
    drain = drain_of(rank)
    record = rank.open()
    rank.close(record, waited=False)
    numbers(drain, rank.now() + LATER)
    rank.close(record)
    found = drain.read(rank.now() + LATER, False).final
    row = decode.to_arrow(found.raw, found.numbers, 1, 7, 0, decode.Names()).to_pylist()[0]
    assert row["record"] == record and row["wait_end_ns"] is not None


def test_an_open_row_survives_the_wrap_and_takes_its_late_completion(rank: FakeRank) -> None:
    drain = drain_of(rank)
    record = rank.open()
    drain.read(rank.now() + LATER, False)
    for _ in range(3):
        rank.done(10)
        drain.read(rank.now() + LATER, False)
    assert drain.num_pending == 1
    rank.close(record)
    found = drain.read(rank.now() + LATER, False).final
    assert found.numbers.tolist() == [record]
    row = decode.to_arrow(found.raw, found.numbers, 1, 7, 0, decode.Names()).to_pylist()[0]
    assert row["state"] == "completed" and row["timing_source"] == "wait" and row["completed_ns"] > row["issued_ns"]
    assert drain.num_dropped == 0


def test_death_makes_everything_final_also_what_is_young(rank: FakeRank) -> None:
    drain = drain_of(rank)
    rank.done(2)
    flying = rank.open()
    found = drain.read(rank.now(), True)
    assert found.final.numbers.tolist() == [0, 1, flying] and not len(found.provisional.numbers)
    states = decode.to_arrow(found.final.raw, found.final.numbers, 1, 7, 0, decode.Names()).column("state").to_pylist()
    assert states == ["completed", "completed", "issued"]


def test_what_was_overwritten_is_counted_exactly(rank: FakeRank) -> None:
    drain = drain_of(rank)
    rank.done(3)
    drain.read(rank.now() + LATER, False)
    rank.done(50)
    final, _ = numbers(drain, rank.now() + LATER)
    assert final == list(range(37, 53))
    assert drain.num_dropped == 50 - 16


def test_a_claimed_number_that_is_not_written_yet_is_no_loss(rank: FakeRank) -> None:
    drain = drain_of(rank)
    rank.done(2)
    slot = ring.DATA_OFFSET + 1 * ring.RECORD_BYTES
    kept = bytes(rank.ring.view[slot : slot + ring.RECORD_BYTES])
    rank.ring.view[slot : slot + ring.RECORD_BYTES] = bytes(ring.RECORD_BYTES)
    rank.done(2)
    assert numbers(drain, rank.now() + LATER) == ([0, 2, 3], [])
    assert drain.num_dropped == 0
    rank.ring.view[slot : slot + ring.RECORD_BYTES] = kept
    assert numbers(drain, rank.now() + LATER) == ([1], [])
    assert drain.num_dropped == 0


def test_a_torn_record_is_no_record(rank: FakeRank) -> None:
    drain = drain_of(rank)
    rank.done(2)
    end = ring.DATA_OFFSET + 1 * ring.RECORD_BYTES + ring.END_OFFSET
    rank.ring.view[end : end + 4] = bytes(4)
    assert numbers(drain, rank.now() + LATER, is_last=True) == ([0], [])


def test_stranded_rows_are_bounded(rank: FakeRank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_drain, "MAX_STRANDED", 5)
    drain = drain_of(rank)
    given_up: list[int] = []
    for _ in range(8):
        for _ in range(4):
            rank.open()
        given_up += numbers(drain, rank.now() + LATER)[0]
    assert given_up == list(range(32 - 16 - 5)), "the oldest ones, in order"
    assert drain.num_pending == 21


def test_rows_whose_names_are_unknown_wait(rank: FakeRank) -> None:
    header, view = decode.open_ring(str(rank.ring.path))
    known = [False]
    drain = RingDrain(header, view, lambda raw: np.full(len(raw), known[0]))
    rank.done(2)
    assert numbers(drain, rank.now() + LATER) == ([], [])
    known[0] = True
    assert numbers(drain, rank.now() + LATER) == ([0, 1], [])


class Oracle:
    """Which record numbers a reader can have seen, by the rules of the ring alone."""

    def __init__(self, rank: FakeRank) -> None:
        self.rank, self.seen, self.num_read_to, self.num_dropped = rank, set[int](), 0, 0
        self.late = set[int]()

    def close(self, record: int, waited: bool) -> None:
        claimed = self.rank.writer.num_claimed()
        self.rank.close(record, waited=waited)
        if record < claimed - self.rank.capacity:
            self.late.add(claimed)

    def drain(self) -> None:
        claimed = self.rank.writer.num_claimed()
        there = range(max(self.num_read_to, claimed - self.rank.capacity), claimed)
        self.num_dropped += claimed - self.num_read_to - len(there)
        self.seen |= set(there)
        self.num_read_to = claimed


@settings(max_examples=60, deadline=None)
@given(actions=st.lists(st.sampled_from(["open", "close", "poll", "done", "drain"]), max_size=120))
def test_every_record_is_final_exactly_once_or_counted(actions: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rank = FakeRank(Path(folder) / "launch", "run", capacity=8)
        drain, oracle = drain_of(rank), Oracle(rank)
        flying, final = list[int](), list[int]()
        for action in [*actions, "drain", "die"]:
            if action == "open":
                flying.append(rank.open())
            elif action == "done":
                rank.done(1)
            elif action in ("drain", "die"):
                oracle.drain()
                final += numbers(drain, rank.now() + LATER, is_last=action == "die")[0]
            elif flying:
                oracle.close(flying.pop(0), waited=action == "close")
        assert sorted(final) == sorted(oracle.seen - oracle.late)
        assert drain.num_dropped == oracle.num_dropped
        drain.close()
        rank.drop()
