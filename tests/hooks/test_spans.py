"""The user's spans: kinds and names, nesting, exceptions, and a process without torch."""

import subprocess
import sys

import pytest

from rankscope.hooks import spans
from rankscope.hooks.spans import SpanLog
from rankscope.schema.enums import code
from rankscope.schema.ring import COMPLETED, FAILED


def test_a_kind_of_the_vocabulary_sets_the_phase_and_a_name_does_not(recorder):
    log = SpanLog(recorder)
    with log.span("eval"):
        assert recorder.phase == code("phase", "eval")
        with log.span("my own"):
            assert recorder.phase == code("phase", "eval")
        with log.span("checkpoint"):
            assert recorder.phase == code("phase", "checkpoint")
        assert recorder.phase == code("phase", "eval")
    assert recorder.phase == 0
    assert recorder.spans() == ["eval", "user:my own", "checkpoint"]
    assert all(row.state == COMPLETED and row.values["end_ns"] >= row.values["start_ns"] for row in recorder.of("span"))


@pytest.mark.parametrize("error", [KeyError("mine"), KeyboardInterrupt(), SystemExit(3)])
def test_every_exception_passes_and_ends_the_span(recorder, error):
    with pytest.raises(type(error)) as seen, SpanLog(recorder).span("data"):
        raise error
    assert seen.value is error and recorder.of("span")[0].state == FAILED and recorder.phase == 0


def test_nothing_is_written_while_the_recorder_is_off(recorder):
    recorder.is_on = False
    with SpanLog(recorder).span("eval"):
        assert recorder.phase == 0
    assert recorder.rows == []


def test_names_are_bounded(recorder, monkeypatch):
    monkeypatch.setattr(spans, "MAX_NAMES", 2)
    log = SpanLog(recorder)
    for n in range(4):
        with log.span(f"step {n}"):
            pass
    assert recorder.spans() == ["user:step 0", "user:step 1", "user:(other)", "user:(other)"]


@pytest.mark.parametrize("call", ["open", "close", "intern"])
def test_a_failing_recorder_harms_nothing(recorder, swallowed, call):
    def fail(*_):
        raise OSError("full")

    log = SpanLog(recorder)
    setattr(log.writer if call != "intern" else recorder, f"_{call}" if call != "intern" else call, fail)
    for _ in range(2):
        with log.span("mine"):
            pass
    assert log.guard.is_off and len(swallowed) == 1
    swallowed.clear()


def test_spans_need_no_torch():
    source = "from rankscope.hooks import metrics, spans, steps; import sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"
