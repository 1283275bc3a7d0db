"""How much of each counted step went into a part of it: series, from which a comparison has its intervals.

Only parts that a step has by itself: waits for data and for operations. The tail is of all steps together, the bubble
of a pipeline's windows. Sums over the ranks: what counts is how they vary, the level is that of `scaling_run`.
"""

from typing import Final

import numpy as np

from .bootstrap import Floats
from .run import Row, Run
from .statements import statement
from .throughput import Steps

ANALYZER: Final = "step_parts"


def step_parts(run: Run, steps: Steps, *, with_neighbours: bool) -> dict[str, Floats]:
    """By part, ns of each of `steps`; without parts that no step has. with_neighbours: sends and receives count."""
    waits = run.rows(statement(ANALYZER, "communication"), {"neighbours": with_neighbours})
    found = {"data": run.rows(statement(ANALYZER, "data")), "communication": waits}
    return {name: _by_step(rows, steps) for name, rows in found.items() if rows}


def _by_step(rows: list[Row], steps: Steps) -> Floats:
    places = {key: place for place, key in enumerate(steps.keys)}
    values = np.zeros(len(places))
    for incarnation, step, value in rows:
        if (incarnation, step) in places:
            values[places[incarnation, step]] = value
    return values
