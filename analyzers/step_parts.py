"""How much of each counted step went into a part of it: series, from which a comparison has its intervals.

Only parts that a step has by itself: waits for data and for operations. The tail is of all steps together, the bubble
of a pipeline's windows. Sums over the ranks: what counts is how they vary, the level is that of `scaling_run`.
"""

from typing import Final

import numpy as np

from .bootstrap import Floats
from .partials import Pair, Partial
from .run import Row, Run
from .throughput import Steps

ANALYZER: Final = "step_parts"
DATA: Final = Pair(ANALYZER, "data", (Partial(ANALYZER, "data", ("span", "step")),))
COMMUNICATION: Final = Pair.of_parts(ANALYZER, "communication", ("collective", "step"))


def step_parts(run: Run, steps: Steps, *, with_neighbours: bool) -> dict[str, Floats]:
    """By part, ns of each of `steps`; without parts that no step has. with_neighbours: sends and receives count."""
    waits = [(*key, wait_ns) for *key, has_neighbours, wait_ns, _ in COMMUNICATION.rows(run)
             if has_neighbours == with_neighbours]  # fmt: skip
    found = {"data": DATA.rows(run), "communication": waits}
    return {name: _by_step(rows, steps) for name, rows in found.items() if rows}


def group_waits(run: Run) -> tuple[int, int]:
    """Host-visible waits for operations of whole groups in the counted steps, ns, and their number; those for a stage's
    neighbour left out.
    """
    rows = [row for row in COMMUNICATION.rows(run) if not row[2]]
    return sum(row[3] for row in rows), sum(row[4] for row in rows)


def _by_step(rows: list[Row], steps: Steps) -> Floats:
    places = {key: place for place, key in enumerate(steps.keys)}
    values = np.zeros(len(places))
    for incarnation, step, value in rows:
        if (incarnation, step) in places:
            values[places[incarnation, step]] = value
    return values
