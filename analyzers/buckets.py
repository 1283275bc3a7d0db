"""Quantiles from fixed logarithmic buckets, 1 % relative: the same for any order of rows, number of threads and split.

Bucket i holds the values in (GAMMA^(i-1), GAMMA^i]; it is represented by 2 GAMMA^i / (GAMMA + 1), which is at most
RELATIVE away from each of them (DDSketch, Masson et al. 2019). 0 and less have bucket ZERO and are represented by 0.
"""

import math
from collections.abc import Iterable
from typing import Final

RELATIVE: Final = 0.01
GAMMA: Final = (1 + RELATIVE) / (1 - RELATIVE)
ZERO: Final = -1

BUCKET_MACRO: Final = (
    f"CREATE OR REPLACE TEMP MACRO log_bucket(x) AS "
    f"CASE WHEN x > 0 THEN CAST(ceil(ln(x) / {math.log(GAMMA)!r}) AS INTEGER) WHEN x <= 0 THEN {ZERO} END"
)
"""The SQL function log_bucket(x) that the analyzers' statements use; null for null."""

Histogram = list[tuple[int, int]]
"""(bucket, count), in any order."""


def representative(bucket: int) -> int:
    """The value that stands for a bucket, rounded to a whole number: within 1 % of every value in it."""
    return 0 if bucket == ZERO else round(2 * GAMMA**bucket / (GAMMA + 1))


def quantile(histogram: Iterable[tuple[int, int]], share: float, most: int | None = None) -> int | None:
    """The value below or at which `share` of the observations lie (lower of two candidates); None without any.

    most: the exact maximum, which no quantile may exceed by the width of a bucket.
    """
    ordered = sorted(histogram)
    total = sum(count for _, count in ordered)
    seen, target = 0, max(1, math.ceil(share * total))
    for bucket, count in ordered:
        seen += count
        if seen >= target:
            return representative(bucket) if most is None else min(representative(bucket), most)
    return None


def merged(histogram: Iterable[tuple[int, int]], columns: int) -> list[tuple[int, int, int]]:
    """At most `columns` neighbouring ranges with their counts: (lowest value, highest value, count), for drawing."""
    ordered = sorted(histogram)
    if not ordered:
        return []
    low, high = ordered[0][0], ordered[-1][0]
    width = max(1, math.ceil((high - low + 1) / columns))
    counts: dict[int, int] = {}
    for bucket, count in ordered:
        counts[(bucket - low) // width] = counts.get((bucket - low) // width, 0) + count
    num_bins = (high - low) // width + 1
    return [
        (representative(low + i * width), representative(min(high, low + (i + 1) * width - 1)), counts.get(i, 0))
        for i in range(num_bins)
    ]
