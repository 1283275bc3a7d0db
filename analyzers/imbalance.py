"""Do ranks take turns being late because their shares of the work differ? Then there is nobody to name.

Each rank's own lateness beyond the median rank's is set against its tokens (else samples) beyond the median rank's,
over all steps and ranks: a correlation of at least `EXPLAINS` says that who has more is late. Sequences of different
lengths are the usual reason (Lin et al., arXiv 2505.05713, section 5.3). Without tokens and samples it is the
computation of the latest rank of each step that has to explain its lateness, and more time has to be lost to it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from .late_ranks import Floats, excess
from .lateness import Lateness
from .run import Run
from .statements import statement

MIN_COST: Final = 0.05
"""Share of the time lost to lateness from which uneven work is worth a verdict."""
MIN_COST_UNTOLD: Final = 0.20
"""The same where the job tells neither tokens nor samples, and a busy host looks alike."""
EXPLAINS: Final = 0.5
"""Correlation between lateness and work."""
TOKENS, SAMPLES, COMPUTATION = "tokens", "samples", "computation"


@dataclass(frozen=True, slots=True)
class Imbalance:
    """The ranks' work differs. by: TOKENS, SAMPLES or COMPUTATION. strength: correlation, or share explained.

    cost_ns: time lost to each step's latest rank; share: of the time of the steps.
    """

    by: str
    strength: float
    cost_ns: int
    share: float


def lost(found: Lateness) -> tuple[int, float]:
    """Time lost to each step's latest rank, in ns, and its share of the time of the steps."""
    cost = int(excess(found).max(axis=1, initial=0.0).sum())
    total = int(found.duration_ns.sum())
    return cost, cost / total if total else 0.0


def imbalance(run: Run, found: Lateness) -> Imbalance | None:
    """Uneven work by what the job told of it; None if that does not explain who is late, or nothing is told."""
    cost, share = lost(found)
    if share < MIN_COST:
        return None
    rows = run.rows(statement("stragglers", "work"))
    for by, column in ((TOKENS, 3), (SAMPLES, 4)):
        strength = _correlation(found, excess(found), ((*row[:3], row[column]) for row in rows))
        if strength is not None and strength >= EXPLAINS:
            return Imbalance(by, strength, cost, share)
    return None


def _correlation(found: Lateness, late: Floats, rows: Iterable[tuple[Any, ...]]) -> float | None:
    """Pearson's, over all steps and ranks of which the work is known; None where the work does not differ."""
    work = np.full(late.shape, np.nan)
    step_at = {tuple(step): row for row, step in enumerate(found.steps)}
    rank_at = {rank: column for column, rank in enumerate(found.ranks)}
    for incarnation, step, rank, amount in rows:
        if (incarnation, step) in step_at and rank in rank_at and amount is not None:
            work[step_at[incarnation, step], rank_at[rank]] = amount
    known = found.is_known & ~np.isnan(work)
    known &= known.all(axis=1)[:, None]
    if not known.any():
        return None
    beyond = work - np.median(np.where(known, work, 0.0), axis=1)[:, None]
    x, y = beyond[known], late[known]
    return float(np.corrcoef(x, y)[0, 1]) if x.std() > 0 and y.std() > 0 else None
