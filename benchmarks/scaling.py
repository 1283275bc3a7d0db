"""How far off the forecast of a larger size is, on public series: the largest size predicted from the others.

The points are facts compiled from public results (MLPerf Training v2.1 to v5.1 logs, llm-foundry and MaxText tables,
Megatron-LM figures, the ultra-scale playbook, GNMT and DeepSpeed BERT tables); MLPerf throughputs are derived from run
times, evaluation included, and not verified by MLCommons.

    RANKSCOPE_TEST_DATA=<data> python benchmarks/scaling.py [points.csv]
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rankscope.analyzers.forecast import PUBLIC, calibrate
from rankscope.analyzers.holdout import MODELS, HeldOut, coverage, errors, held_out
from rankscope.analyzers.scaling_points import read_points

KINDS = {"all": ("strong", "weak", "unknown"), "strong and weak": ("strong", "weak"), "co-tuned": ("unknown",)}


def main(path: str) -> None:
    """Print the table."""
    series = read_points(path).series
    tested = held_out(series)
    console = Console(width=120)
    console.print(_table(tested))
    console.print(
        f"{sum(item.is_refused for item in tested)} of {len(tested)} would have been refused, and count all the same"
    )
    console.print(f"constants from all series: {calibrate(item.curve for item in series)}; in the code: {PUBLIC}")


def _table(tested: Sequence[HeldOut]) -> Table:
    table = Table(title=f"largest size held out, {len(tested)} series: absolute error, median / 90th percentile, %")
    for header in ("series", "number", *MODELS, "80 % bracket covers"):
        table.add_column(header, justify="left" if header == "series" else "right")
    for name, modes in KINDS.items():
        some = [item for item in tested if item.series.mode in modes]
        found = [errors(some, model) for model in MODELS]
        table.add_row(name, str(len(some)), *(f"{100 * item.median:.1f} / {100 * item.p90:.1f}" for item in found),
                      f"{coverage(some):.0%}")  # fmt: skip
    return table


if __name__ == "__main__":
    data = Path(os.environ.get("RANKSCOPE_TEST_DATA", ""))
    main(sys.argv[1] if len(sys.argv) > 1 else str(data / "scaling/points.csv"))
