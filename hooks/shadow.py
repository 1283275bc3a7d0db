"""Shadow steps (RANKSCOPE_CALIBRATE=n): one step in n in which the hooks of the hot path write nothing.

The others are the comparison: what the capture costs is the difference. By step ordinal, so that all ranks leave out
the same steps (one that still recorded would make the others wait for it). Sequence numbers are counted all the same,
and the step's own row says `shadow`. Collectives, phases, optimizer spans and memory readings are left out; what is
rare or evidence of the job itself (checkpoints, seeds, digests of samples, `rankscope.log`) goes on.

Cannot leave out: that a dispatcher kernel is entered at all (about 20 us for an operation that C++ issues).
"""

import os
from typing import Final

VARIABLE: Final = "RANKSCOPE_CALIBRATE"
FIRST: Final = 2
"""Steps before this one are never shadow steps: warm-up, and the boundary's source may still change."""


def one_in() -> int:
    """One step in so many is a shadow step; 0 none. A wrong setting counts as none (the tracer has said so)."""
    text = os.environ.get(VARIABLE, "").strip()
    number = int(text) if text.isdecimal() else 0
    return number if number > 1 else 0


def is_shadow(step: int, every: int) -> bool:
    """Whether step ordinal `step` is a shadow step. The last of each n, since device times take the first."""
    return every > 0 and step >= FIRST and step % every == every - 1
