"""Curves on a terminal: one column a point, in blocks of an eighth of a line, with the scale at the left."""

import math
from collections.abc import Sequence
from typing import Final

_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
PER_LINE: Final = 8


def curve(values: Sequence[float], height: int = 6) -> list[str]:
    """Lines of the plot, from the top: a label of the scale, an axis, and the filled curve. Empty for no values.

    values: finite, in order. The scale runs from the least to the largest; equal values are drawn in the middle.
    """
    if not values:
        return []
    low, high = min(values), max(values)
    span = high - low
    levels = [round((value - low) / span * (height * PER_LINE - 1)) + 1 if span > 0 else height * PER_LINE // 2
              for value in values]  # fmt: skip
    labels = [f"{low + span * (line + 0.5) / height:.4g}" if span > 0 else "" for line in range(height)]
    labels[0], labels[-1] = f"{low:.4g}", f"{high:.4g}"
    width = max(map(len, labels))
    return [
        f"{labels[line]:>{width}} ┤" + "".join(_EIGHTHS[_filled(level, line)] for level in levels)
        for line in reversed(range(height))
    ]


def _filled(level: int, line: int) -> int:
    """Eighths of a line that are filled up to `level`, itself in eighths."""
    return max(0, min(PER_LINE, math.floor(level) - line * PER_LINE))
