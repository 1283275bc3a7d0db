"""The forecast of a larger size: by hand, on textbook curves with known truth, and on public series held out."""

import os
from pathlib import Path

import pytest
from scaling_series import SIZES, series, truth

from rankscope.analyzers.forecast import PUBLIC, Calibration, Refusal, back_test, calibrate, forecast, refusal
from rankscope.analyzers.holdout import HeldOut, coverage, errors, held_out
from rankscope.analyzers.scaling_points import Series, read_points
from rankscope.schema.errors import NoEvidence, UnreadableFile


@pytest.fixture(scope="module")
def public() -> tuple[Series, ...]:
    folder = os.environ.get("RANKSCOPE_TEST_DATA")
    if not folder:
        pytest.skip("RANKSCOPE_TEST_DATA is not set")
    return read_points(str(Path(folder) / "scaling/points.csv")).series


@pytest.fixture(scope="module")
def tested(public: tuple[Series, ...]) -> tuple[HeldOut, ...]:
    return held_out(public)


def test_the_worked_example() -> None:
    told = forecast(((8, 100.0), (16, 180.0)), 32, calibration=Calibration(0.6, 0.9))
    assert told.value == pytest.approx(338.0, abs=0.2)
    assert told.carried == 360
    assert told.linear == 400
    assert told.low < told.value < told.high


def test_nothing_is_added_where_the_last_step_gained() -> None:
    told = forecast(((1, 10.0), (2, 22.0)), 4)
    assert told.value == told.carried == 44


def test_a_step_out_of_a_node_is_said_and_widens_the_bracket() -> None:
    curve = ((4, 40.0), (8, 78.0), (16, 140.0))
    inside = forecast(curve, 32, node_size=2)
    outside = forecast(curve, 32, node_size=8)
    assert outside.notes
    assert not inside.notes
    assert outside.high / outside.low > inside.high / inside.low
    assert "assumed" in forecast(curve, 32).notes[0]


@pytest.mark.parametrize(
    ("curve", "at", "says"),
    [
        (((1, 1.0), (2, 1.9)), 4, "needs 3 sizes"),
        (((1, 1.0), (2, 1.9), (4, 3.6)), 17, "more than 4 times"),
        (((1, 1.0), (2, 1.9), (4, 3.6)), 4, "not larger"),
    ],
)
def test_refusals_say_why(curve: tuple[tuple[int, float], ...], at: int, says: str) -> None:
    told = refusal(curve, at)
    assert isinstance(told, Refusal)
    assert says in told.reason


def test_brackets_hold_on_textbook_curves_with_noise() -> None:
    held = 0
    for seed in range(200):
        curve, node = series(seed)
        told = back_test(curve, node)
        assert told is not None
        assert told.at == SIZES[-1]
        held += told.holds(truth(seed))
    assert 150 <= held <= 170, f"{held} of 200"


def test_the_constants_are_those_of_the_public_series(public: tuple[Series, ...]) -> None:
    assert calibrate(item.curve for item in public) == PUBLIC


def test_errors_on_public_series(tested: tuple[HeldOut, ...]) -> None:
    some = [item for item in tested if item.series.mode in ("strong", "weak")]
    assert len(tested) >= 40
    assert errors(tested).median <= 0.04
    assert errors(tested).p90 <= 0.30
    assert errors(some).median <= 0.025
    assert errors(some).p90 <= 0.16
    for baseline in ("last efficiency carried", "linear from the first"):
        assert errors(tested).median < errors(tested, baseline).median
    assert 0.75 <= coverage(tested) <= 0.85
    assert sum(item.is_refused for item in tested) <= 0.1 * len(tested)


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("", UnreadableFile, "no column"),
        ("series,metric,value\na,tokens_per_s,1\n", UnreadableFile, "n_accelerators"),
        ("series,n_accelerators,metric,value\n", NoEvidence, "no row"),
        ("series,n_accelerators,metric,value\na,8,tokens_per_s,fast\n", UnreadableFile, "line 2"),
        ("series,n_accelerators,metric,value\na,8,tokens_per_s,-1\n", UnreadableFile, "positive"),
        ("series,n_accelerators,metric,value\na,8,colour,1\n", UnreadableFile, "none of the metrics"),
        ("series,n_accelerators,metric,value\na,0.5,mfu,1\n", UnreadableFile, "0.5, not a whole number"),
        ("series,n_accelerators,metric,value\na,1e300,mfu,1\n", UnreadableFile, "line 2"),
        ("series,n_accelerators,metric,value\na,8,step_time_s,1e-320\n", UnreadableFile, "line 2"),
        ("series,n_accelerators,metric,value\na,8,tokens_per_s,1e308\n", UnreadableFile, "line 2"),
        ("series,n_accelerators,metric,value\na,8,tokens_per_s,nan\n", UnreadableFile, "positive"),
        ("series,n_accelerators,metric,value\n,8,tokens_per_s,1\n", UnreadableFile, "line 2: it names no series"),
        ("series,n_accelerators,metric,value\na,8\n", UnreadableFile, "value is None"),
    ],
)
def test_bad_points_are_named(tmp_path: Path, text: str, error: type[Exception], says: str) -> None:
    (tmp_path / "points.csv").write_text(text)
    with pytest.raises(error, match=says):
        read_points(str(tmp_path / "points.csv"))
    with pytest.raises(UnreadableFile):
        read_points(str(tmp_path / "missing.csv"))


def test_metrics_become_throughput(tmp_path: Path) -> None:
    rows = ("a,8,mfu,0.5", "a,16,mfu,0.4", "b,1,step_time_s,2", "b,1,step_time_s,4", "b,2,step_time_s,1")
    (tmp_path / "points.csv").write_text("\n".join(("series,n_accelerators,metric,value", *rows)))
    first, second = read_points(str(tmp_path / "points.csv")).series
    assert first.curve == ((8, 4.0), (16, 6.4))
    assert [size for size, _ in second.curve] == [1, 2]
    assert [value for _, value in second.curve] == pytest.approx([1 / 3, 1.0])
