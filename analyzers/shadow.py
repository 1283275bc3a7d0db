"""What the capture costs, by the shadow steps that the user asked for (RANKSCOPE_CALIBRATE): a second opinion.

Each shadow step is compared with the mean of its recorded neighbours, up to NEIGHBOURS on each side: (neighbours -
shadow) / shadow. The value is the median of these, its interval that of a circular block bootstrap, for step times are
not independent. Where the interval includes 0, or pairs are few, the answer is "cannot tell": 0.5 % takes over 10,000
steps. The primary figure is `capture.overhead`, from timed hooks. Steps of 10 ms beside shadow steps of 9.9 ms: 0.0101.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from rankscope.schema.measurement import Interval, Measurement

from .evidence import Evidence
from .run import Row, Run
from .statements import statement

ANALYZER: Final = "shadow"
NEIGHBOURS: Final = 2
MIN_PAIRS: Final = 20
LEVEL: Final = 0.95
NUM_RESAMPLES: Final = 2000
_SEED: Final = 20_250
"""The same run gives the same interval."""
_CHUNK: Final = 100
"""Resamples that are in memory at once."""
CAVEATS: Final = (
    "where torch has no native hooks, operations that C++ issues still enter a kernel in shadow steps: a lower bound",
)

Floats = npt.NDArray[np.float64]


def shadow(run: Run, share: float | None) -> Measurement | None:
    """The comparison; None if the run has no shadow steps."""
    sql = statement(ANALYZER, "steps")
    rows = run.rows(sql)
    if not any(row[3] for row in rows):
        return None
    told, found = Evidence(run, ANALYZER, sql, ("step",), share, caveats=CAVEATS), differences(rows)
    if len(found) < MIN_PAIRS:
        reason = f"cannot tell: {len(found)} shadow steps with neighbours, {MIN_PAIRS} are needed at least"
        return told.measurement("capture.shadow_overhead", None, {}, len(found), reason=reason)
    interval = bootstrap(found)
    if interval.low <= 0 <= interval.high:
        reason = "cannot tell: the interval includes 0"
        return told.measurement("capture.shadow_overhead", None, {}, len(found), interval=interval, reason=reason)
    return told.measurement("capture.shadow_overhead", float(np.median(found)), {}, len(found), interval=interval)


def differences(rows: list[Row]) -> Floats:
    """Of each shadow step that has recorded neighbours in its incarnation, in order of steps."""
    recorded = {(incarnation, step): step_ns for incarnation, step, step_ns, is_shadow in rows if not is_shadow}
    found = []
    for incarnation, step, step_ns, is_shadow in rows:
        near = [recorded[incarnation, step + by] for by in range(-NEIGHBOURS, NEIGHBOURS + 1)
                if is_shadow and (incarnation, step + by) in recorded]  # fmt: skip
        if near:
            found.append((sum(near) / len(near) - step_ns) / step_ns)
    return np.array(found, np.float64)


def bootstrap(values: Floats) -> Interval:
    """Percentile interval of the median over circular blocks of about the cube root of the number of values."""
    num, random = len(values), np.random.default_rng(_SEED)
    length = max(1, round(num ** (1 / 3)))
    num_blocks, within = -(-num // length), np.arange(length)
    medians: list[Floats] = []
    for _ in range(NUM_RESAMPLES // _CHUNK):
        starts = random.integers(0, num, (_CHUNK, num_blocks, 1))
        chosen = ((starts + within) % num).reshape(_CHUNK, -1)[:, :num]
        medians.append(np.median(values[chosen], axis=1))
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(np.concatenate(medians), [tail, 1 - tail])
    return Interval(
        float(low), float(high), LEVEL, f"block bootstrap of the median, blocks of {length}, {NUM_RESAMPLES} times"
    )
