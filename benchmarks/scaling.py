"""How far off the forecast of a larger size is, on public series: the largest size predicted from the others.

Every series is tested with constants learnt from the other series only. Series of fewer than 4 sizes teach, but are not
tested. Beyond 4 times the largest size rankscope refuses; what it would have said counts here all the same. The points
are facts compiled from public results (MLPerf Training v2.1 to v5.1 logs, llm-foundry and MaxText tables, Megatron-LM
figures, the ultra-scale playbook, GNMT and DeepSpeed BERT tables); MLPerf throughputs are derived from run times,
evaluation included, and not verified by MLCommons.

    RANKSCOPE_TEST_DATA=<data> python benchmarks/scaling.py [points.csv]
"""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from rankscope.analyzers.forecast import PUBLIC, Calibration, Forecast, back_test, calibrate, refusal
from rankscope.analyzers.scaling_points import Series, read_points

MIN_SIZES = 4
Tested = tuple[Series, Forecast, float]


def held_out(series: Sequence[Series]) -> list[Tested]:
    """(series, forecast of its largest size, what was measured), constants from the other series."""
    found = []
    for item in series:
        if len(item.curve) >= MIN_SIZES:
            others = calibrate(other.curve for other in series if other is not item)
            forecast = back_test(item.curve, calibration=others)
            assert forecast is not None
            found.append((item, forecast, item.curve[-1][1]))
    return found


def errors(tested: Sequence[Tested], value: Callable[[Forecast], float]) -> tuple[float, float]:
    """Median and 90th percentile of the absolute relative error, in percent."""
    found = [abs(value(forecast) / truth - 1) * 100 for _, forecast, truth in tested]
    return float(np.median(found)), float(np.percentile(found, 90))


def coverage(tested: Sequence[Tested]) -> float:
    """Share of the brackets that contain what was measured."""
    return sum(forecast.holds(truth) for _, forecast, truth in tested) / len(tested)


def num_refused(tested: Sequence[Tested]) -> int:
    """Series of which the largest size is too far from the others for a forecast."""
    return sum(refusal(item.curve[:-1], item.curve[-1][0]) is not None for item, _, _ in tested)


def main(path: str) -> None:
    """Print the table."""
    series = read_points(path)
    tested = held_out(series)
    known: Calibration = calibrate(item.curve for item in series)
    table = Table(title=f"largest size held out, {len(tested)} series: absolute error, median / 90th percentile, %")
    for header in ("series", "number", "rankscope", "last efficiency carried", "linear", "80 % bracket covers"):
        table.add_column(header, justify="left" if header == "series" else "right")
    for name, modes in (("all", ("strong", "weak", "unknown")), ("strong and weak", ("strong", "weak")),
                        ("co-tuned", ("unknown",))):  # fmt: skip
        some = [item for item in tested if item[0].mode in modes]
        cells = [errors(some, value) for value in (lambda f: f.value, lambda f: f.carried, lambda f: f.linear)]
        table.add_row(name, str(len(some)), *(f"{middle:.1f} / {high:.0f}" for middle, high in cells),
                      f"{coverage(some):.0%}")  # fmt: skip
    console = Console()
    console.print(table)
    console.print(f"{num_refused(tested)} of {len(tested)} would have been refused (counted above all the same)")
    console.print(f"constants from all series: {known}; in the code: {PUBLIC}")


if __name__ == "__main__":
    data = Path(os.environ.get("RANKSCOPE_TEST_DATA", ""))
    main(sys.argv[1] if len(sys.argv) > 1 else str(data / "scaling/points.csv"))
