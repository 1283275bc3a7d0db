"""The recorder: what hooks write is what a reader finds: from threads, across a wrap, a fork and a switch-off."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankscope.schema import decode, ring
from rankscope.tracer import ring_file
from rankscope.tracer.journal import Journal
from rankscope.tracer.recorder import RingRecorder

SPAN = ring.layout_of("span")
STEP = ring.layout_of("step")
CAPACITY = 64


class Place:
    """A coordinator that makes a small ring below a test's folder."""

    def __init__(self, folder: Path, works: bool = True) -> None:
        self.folder, self.works, self.num_awake, self.journal = folder, works, 0, Journal()
        self.calls: list[object] = []

    def awake(self):
        self.num_awake += 1
        if not self.works:
            return None
        ring_file.private_folder(self.folder)
        self.journal.start(self.folder / f"{self.num_awake}.journal")
        return ring_file.create(f"{self.num_awake}.ring", 7, self.folder, None, CAPACITY)

    def joined(self, *args: object) -> None:
        self.calls.append(args)

    def left(self) -> None:
        self.calls.append("left")

    def boundary(self) -> None:
        self.calls.append("boundary")


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "base" / "launch")


@pytest.fixture
def recorder(place):
    return RingRecorder(place, place.journal)


def span(recorder: RingRecorder, name: int = 0, start_ns: int = 1) -> int:
    return recorder.open(SPAN, start_ns, 3, name, -1, -1, -1, 1)


def read(recorder: RingRecorder) -> tuple[decode.Records, decode.Numbers, Any]:
    assert recorder.ring is not None
    header, view = decode.open_ring(str(recorder.ring.path))
    return *decode.snapshot(view, header), decode.counters(view)


def rows(recorder: RingRecorder, kind: int = SPAN.kind) -> list[dict[str, Any]]:
    records, numbers, _ = read(recorder)
    found: list[dict[str, Any]] = decode.to_arrow(records, numbers, kind, 7, None, decode.Names()).to_pylist()
    return found


def lines(place: Place) -> list[dict[str, Any]]:
    assert place.journal.path is not None
    return [json.loads(line) for line in place.journal.path.read_text().splitlines()]


def test_nothing_is_made_before_the_first_row(place, recorder):
    recorder.intern("a")
    recorder.counters("h")[4] += 1
    recorder.journal("note", text="x")
    assert not place.folder.exists() and recorder.num_records() == 0
    span(recorder)
    assert place.num_awake == 1
    assert [line["k"] for line in lines(place)] == ["name", "hook", "note", "thread"]
    assert read(recorder)[2][0][4] == 1  # counted before there was a ring


def test_a_row_is_open_then_closed_in_place(recorder):
    record = span(recorder, start_ns=1000)
    assert [(row["start_ns"], row["end_ns"]) for row in rows(recorder)] == [(1000, None)]
    recorder.close(SPAN, record, ring.COMPLETED, 0, 2000)
    recorder.poke(SPAN, record, "device_start_ns", 5)
    (row,) = rows(recorder)
    assert (row["record"], row["end_ns"], row["device_start_ns"], row["step"]) == (0, 2000, 1500, 3)


def test_a_value_that_does_not_fit_is_left_out(recorder):
    record = span(recorder)
    recorder.poke(SPAN, record, "device_start_ns", 1 << 32)
    recorder.poke(SPAN, record, "device_end_ns", -1)
    (row,) = rows(recorder)
    assert row["device_start_ns"] is None and row["device_end_ns"] is None


def test_after_a_wrap_the_last_records_are_there_with_their_numbers(recorder):
    for number in range(3 * CAPACITY + 5):
        assert span(recorder, start_ns=number + 1) == number
    found = rows(recorder)
    assert [row["record"] for row in found] == list(range(2 * CAPACITY + 5, 3 * CAPACITY + 5))
    assert [row["start_ns"] for row in found] == [row["record"] + 1 for row in found]
    assert recorder.num_records() == 3 * CAPACITY + 5


def test_a_completion_that_finds_its_slot_overwritten_is_a_record_of_its_own(recorder):
    first = span(recorder)
    for _ in range(CAPACITY):
        other = span(recorder)
    recorder.poke(SPAN, first, "device_start_ns", 9)
    recorder.close(SPAN, first, ring.COMPLETED, 2, 2000)
    records, _, _ = read(recorder)
    (late,) = decode.late_closes(records)
    assert (late.record, late.kind, late.state, late.timing) == (first, SPAN.kind, ring.COMPLETED, 2)
    assert late.values == {"end_ns": 2000}
    assert all(row["end_ns"] is None and row["device_start_ns"] is None for row in rows(recorder))
    assert other == CAPACITY


def test_threads_share_the_ring_without_losing_a_record(place, recorder):
    def work() -> None:
        for number in range(10):
            record = span(recorder, start_ns=number + 1)
            recorder.close(SPAN, record, ring.COMPLETED, 0, number + 2)

    threads = [threading.Thread(target=work, name=f"worker-{n}") for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(read(recorder)[1]) == list(range(50))
    named = {line["id"]: line["name"] for line in lines(place) if line["k"] == "thread"}
    assert sorted(named.values()) == [f"worker-{n}" for n in range(5)]
    assert all(row["end_ns"] == row["start_ns"] + 1 for row in rows(recorder))


def test_names_are_journalled_once_and_numbered_from_one(place, recorder):
    assert [recorder.intern(text) for text in ("a", "b", "a")] == [1, 2, 1]
    span(recorder)
    assert [(line["id"], line["value"]) for line in lines(place) if line["k"] == "name"] == [(1, "a"), (2, "b")]


def test_without_a_ring_hooks_pass_through(tmp_path):
    place = Place(tmp_path / "x", works=False)
    recorder = RingRecorder(place, place.journal)
    record = span(recorder)
    recorder.close(SPAN, record, ring.COMPLETED, 0, 1)
    recorder.poke(SPAN, record, "device_end_ns", 1)
    assert not recorder.is_on and place.num_awake == 1


def test_a_place_that_fails_switches_off(place, monkeypatch):
    def fail():
        raise OSError("no")

    monkeypatch.setattr(place, "awake", fail)
    recorder = RingRecorder(place, place.journal)
    with pytest.raises(OSError, match="no"):  # the guard of the hook that wrote takes note
        span(recorder)
    assert not recorder.is_on
    span(recorder)


def test_wrong_values_reach_the_guard_and_leave_a_gap(recorder):
    span(recorder)
    with pytest.raises(Exception, match="pack"):
        recorder.open(SPAN, 1)
    assert span(recorder) == 2
    assert [row["record"] for row in rows(recorder)] == [0, 2]


def in_child(work: Callable[[], int]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_child_writes_nothing_to_its_parents_ring(place, recorder):
    record = span(recorder)
    counters = recorder.counters("h")
    counters[4] = 5
    open_ = recorder.open
    size = place.journal.path.stat().st_size

    def work() -> int:
        if recorder.is_on:
            return 2
        for _ in range(3):
            open_(SPAN, 99, 3, 0, -1, -1, -1, 1)
        recorder.close(SPAN, record, ring.COMPLETED, 0, 2000)
        counters[4] = 77
        recorder.intern("child")
        return 0

    assert in_child(work) == 0
    assert [(row["start_ns"], row["end_ns"]) for row in rows(recorder)] == [(1, None)]
    assert read(recorder)[2][0][4] == 5
    assert place.journal.path.stat().st_size == size


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_child_that_is_a_rank_records_by_itself(place, recorder):
    recorder.intern("a")
    recorder.counters("h")
    span(recorder)

    def work() -> int:
        recorder.reborn()
        span(recorder, start_ns=50)
        return 0 if recorder.num_records() == 1 and recorder.is_on else 3

    assert in_child(work) == 0
    assert [row["start_ns"] for row in rows(recorder)] == [1]
    header, view = decode.open_ring(str(place.folder / "2.ring"))
    records, numbers = decode.snapshot(view, header)
    (row,) = decode.to_arrow(records, numbers, SPAN.kind, 7, None, decode.Names()).to_pylist()
    assert row["start_ns"] == 50
    told = [json.loads(line) for line in (place.folder / "2.journal").read_text().splitlines()]
    assert [(line["k"], line.get("value") or line.get("hook")) for line in told[:2]] == [("name", "a"), ("hook", "h")]


def test_rare_moments_are_passed_on(place, recorder):
    recorder.joined(1, 2, "store")
    recorder.boundary()
    recorder.left()
    assert place.calls == [(1, 2, "store"), "boundary", "left"]


def test_too_many_hooks_are_refused(recorder):
    for number in range(ring.MAX_HOOKS):
        recorder.counters(f"h{number}")
    with pytest.raises(RuntimeError, match="hooks"):
        recorder.counters("one more")


def test_a_complete_row_needs_one_call(recorder):
    recorder.write(STEP, 5, 1, 2, 8, 16, 0, 1, 0, 0)
    (row,) = rows(recorder, STEP.kind)
    assert (row["global_step"], row["start_ns"], row["end_ns"], row["samples"], row["boundary"]) == (
        5,
        1,
        2,
        8,
        "explicit",
    )


def test_what_rows_notes_and_reasons_say_is_redacted(recorder, place):
    recorder.write(STEP, -1, 1, 2, -1, -1, 0, 0, 0, 0)
    recorder.journal("row", table="artifact", row={"kind": "dataset", "name": "s3://k:hunter2@b/x"})
    recorder.journal("note", text="log(x): https://u:hunter2@host/a")
    recorder.intern("ftp://u:hunter2@host/name")
    recorder.journal("hook", hook="x", is_on=False, why="OSError: /data/token=hunter2/x")
    text = (place.folder / "1.journal").read_text()
    assert "hunter2" not in text and "s3://b/x" in text and "https://host/a" in text
