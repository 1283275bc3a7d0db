"""Pauses of the collector: which become rows, which are counted, and what a callback must not do."""

import gc
from contextlib import ExitStack

import pytest

from rankscope.hooks import gc_pauses
from rankscope.hooks.gc_pauses import MAX_PENDING, TOTALS_EVERY, PauseLog
from rankscope.hooks.steps import clock_for

MS = 1_000_000


@pytest.fixture
def clock(monkeypatch):
    """The hook's clock, set by `clock(ns)`."""
    now = [0]
    monkeypatch.setattr(gc_pauses, "now_ns", lambda: now[0])
    return lambda ns: now.__setitem__(0, ns)


def _collect(log, clock, start, end, generation=2):
    clock(start)
    log.callback("start", {"generation": generation})
    clock(end)
    log.callback("stop", {"generation": generation})


def _totals(recorder):
    texts = {number: text for text, number in recorder.names.items()}
    return {texts[row.values["name"]]: row.values["value"] for row in recorder.of("metric")}


def test_long_pauses_are_rows_short_ones_a_total(recorder, clock):
    log = PauseLog(recorder)
    recorder.step = 4
    _collect(log, clock, 10 * MS, 12 * MS)
    _collect(log, clock, 20 * MS, 20 * MS + MS // 4, generation=0)
    _collect(log, clock, 30 * MS, 31 * MS, generation=1)
    assert recorder.rows == []
    recorder.step = 5
    log.boundary()
    assert recorder.spans() == ["gc:generation 2", "gc:generation 1"]
    found = [(row.values["start_ns"], row.values["end_ns"], row.values["step"]) for row in recorder.of("span")]
    assert found == [(10 * MS, 12 * MS, 4), (30 * MS, 31 * MS, 4)] and _totals(recorder) == {}
    log.finish()
    assert _totals(recorder) == {"gc.collections": 3.0, "gc.short_pauses_ns": MS / 4}


def test_totals_come_now_and_then(recorder, clock):
    log = PauseLog(recorder)
    _collect(log, clock, 0 + 1, 11, generation=0)
    for _ in range(TOTALS_EVERY):
        log.boundary()
    assert _totals(recorder) == {"gc.collections": 1.0, "gc.short_pauses_ns": 10.0}


def test_no_collection_is_no_row(recorder):
    PauseLog(recorder).finish()
    assert recorder.rows == []


def test_what_waits_is_bounded_and_counted(recorder, clock):
    log = PauseLog(recorder, threshold_ns=0)
    for n in range(MAX_PENDING + 3):
        _collect(log, clock, 10 * n + 1, 10 * n + 2)
    log.finish()
    assert len(recorder.of("span")) == MAX_PENDING and recorder.hooks["gc_pauses"][5] == 3


def test_the_callback_touches_no_recorder(recorder, clock, monkeypatch):
    log = PauseLog(recorder, threshold_ns=0)
    for name in ("open", "close", "write", "intern", "journal", "counters"):
        monkeypatch.setattr(recorder, name, lambda *_, name=name: pytest.fail(f"{name} in a callback"))
    _collect(log, clock, 1, 5)


def test_a_collection_that_began_before_the_attach_is_left_out(recorder, clock):
    log = PauseLog(recorder, threshold_ns=0)
    clock(5)
    log.callback("stop", {"generation": 2})
    log.finish()
    assert recorder.rows == []


def test_an_error_in_a_callback_is_told_at_the_next_boundary(recorder, swallowed):
    log = PauseLog(recorder)
    log.callback("start", {})
    log.callback("stop", {})
    assert log.guard.is_off and not swallowed and recorder.hooks["gc_pauses"][6] == 0
    log.boundary()
    assert len(swallowed) == 1 and recorder.hooks["gc_pauses"][6:] == [1, 1]
    swallowed.clear()


def test_real_collections(recorder, monkeypatch):
    monkeypatch.setattr(gc_pauses, "THRESHOLD_NS", 0)
    before = list(gc.callbacks)
    with ExitStack() as undo:
        gc_pauses.install(recorder, undo)
        gc_pauses.install(recorder, undo)
        assert len(gc.callbacks) == len(before) + 1
        gc.collect()
        clock_for(recorder).boundary("explicit")
        assert "gc:generation 2" in recorder.spans()
    assert gc.callbacks == before and clock_for(recorder).listeners == []


def test_a_list_that_somebody_emptied_is_left_alone(recorder):
    before = list(gc.callbacks)
    try:
        with ExitStack() as undo:
            gc_pauses.install(recorder, undo)
            gc.callbacks.clear()
    finally:
        gc.callbacks[:] = before
