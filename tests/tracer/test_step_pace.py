"""How long steps take, from the rows of several processes and passes."""

from typing import Any

import numpy as np
import pytest

from rankscope.schema import decode, ring
from rankscope.schema.ring_rows import Names, Part
from rankscope.tracer.step_pace import STEP, StepPace


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch) -> StepPace:
    monkeypatch.setattr(decode, "base_times", lambda records: records)
    return StepPace()


def _part(proc: int, *starts_s: float) -> Part:
    times: Any = np.array([start * 1e9 for start in starts_s], np.int64)
    return Part(times, np.arange(len(times)), proc, 0, Names())


def test_over_passes_and_the_slowest_of_those_who_live(pace: StepPace) -> None:
    pace.saw(STEP, _part(1, 10.0))
    assert pace.slowest_s([1]) == 0  # one start tells no length
    pace.saw(STEP, _part(1, 12.0))
    pace.saw(STEP, _part(2, 10.0, 10.5, 11.0))
    assert (pace.slowest_s([1, 2]), pace.slowest_s([2]), pace.slowest_s([])) == (2.0, 0.5, 0.0)
    pace.saw(STEP, _part(1, 12.1, 12.2))
    assert pace.slowest_s([1]) == pytest.approx(0.1)


def test_other_records_say_nothing(pace: StepPace) -> None:
    pace.saw(ring.layout_of("collective").kind, _part(1, 1.0, 9.0))
    pace.saw(STEP, _part(1))
    assert pace.slowest_s([1]) == 0
