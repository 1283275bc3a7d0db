"""Looks at what is open: they close what is over, as completed or as failed, once, and never wait."""

from typing import Any

import pytest

from rankscope.hooks import completion
from rankscope.hooks.base import Guard
from rankscope.hooks.completion import LAYOUT, SLOW_NS, Completion
from rankscope.schema.ring import COMPLETED, FAILED, ISSUED

GONE = RuntimeError("Connection closed by peer")


class Future:
    def __init__(self, is_done, error):
        self.is_done, self.error = is_done, error

    def done(self):
        return self.is_done

    def value(self):
        if self.error:
            raise self.error


class Work:
    """Unless told so, never says itself that it is complete, as gloo's does not right after DDP's own wait."""

    def __init__(self, is_done=True, error=None, is_completed=False):
        self.future, self.is_over = Future(is_done, error), is_completed

    def is_completed(self):
        return self.is_over

    def get_future(self):
        return self.future


@pytest.fixture
def issue(recorder):
    made = Completion(recorder, Guard(recorder, "x"))

    def act(work):
        record = recorder.open(LAYOUT, *[0] * len(LAYOUT.open_columns))
        made.issued_in_cpp(work, ((record, 1, 2),), True, True, ())
        return recorder.rows[record]

    issue: Any = act  # a function with an attribute
    issue.completion = made
    return issue


def test_a_late_one_is_closed_with_an_upper_bound(issue):
    row = issue(Work())
    issue.completion.poll_all()
    assert row.state == ISSUED
    issue.completion.last_look()
    assert row.state == COMPLETED and row.values["completed_ns"] > 2 and not row.values["wait_end_ns"]
    issue.completion.last_look()  # a second close would fail in the recorder


def test_what_is_on_its_way_stays_issued(issue):
    row = issue(Work(is_done=False))
    issue.completion.last_look()
    assert row.state == ISSUED and not issue.completion.polls


def test_what_an_error_ended_has_failed(issue):
    row = issue(Work(error=GONE))
    issue.completion.last_look()
    assert row.state == FAILED and row.values["completed_ns"] > 2


@pytest.mark.parametrize(("error", "state"), [(GONE, FAILED), (None, COMPLETED)])
@pytest.mark.parametrize(("after_ns", "is_doubtful"), [(SLOW_NS + 1, False), (5, True)])
def test_complete_is_asked_for_an_error_where_it_took_long_or_backward_failed(
    issue, monkeypatch, error, state, after_ns, is_doubtful
):
    row = issue(Work(error=error, is_completed=True))
    monkeypatch.setattr(completion, "now_ns", lambda: 1 + after_ns)  # issued at 1
    issue.completion.poll_all(is_doubtful=is_doubtful)
    assert row.state == state and row.values["completed_ns"] == 1 + after_ns


def test_what_was_quick_is_not_asked_for_an_error(issue, monkeypatch):
    work = Work(is_completed=True)
    monkeypatch.setattr(work, "get_future", None)
    row = issue(work)
    monkeypatch.setattr(completion, "now_ns", lambda: 3)
    issue.completion.poll_all()
    assert row.state == COMPLETED
