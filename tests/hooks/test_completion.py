"""The last look at what is open: closes what succeeded, leaves what failed or is on its way, once, without waiting."""

from typing import Any

import pytest

from rankscope.hooks.base import Guard
from rankscope.hooks.completion import LAYOUT, Completion
from rankscope.schema.ring import COMPLETED, ISSUED


class Future:
    def __init__(self, is_done, error):
        self.is_done, self.error = is_done, error

    def done(self):
        return self.is_done

    def value(self):
        if self.error:
            raise self.error


class Work:
    """Never says itself that it is complete, as gloo's does not right after DDP's own wait."""

    def __init__(self, is_done=True, error=None):
        self.future = Future(is_done, error)

    def is_completed(self):
        return False

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


@pytest.mark.parametrize("work", [Work(is_done=False), Work(error=RuntimeError("Connection closed by peer"))])
def test_what_is_on_its_way_or_failed_stays_issued(issue, work):
    row = issue(work)
    issue.completion.last_look()
    assert row.state == ISSUED and not issue.completion.polls
