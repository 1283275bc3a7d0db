"""Is a rank that left no row the one that makes the others wait? By what its peers inherit, as far as that goes.

Who shares operations with it waits there, and so comes late to others (`lateness`: operations of which a member is
missing). Where that is more than MIN_COST of the time beyond what the median rank inherits, in CHRONIC of the steps,
the silent rank is named with half a confidence: slow transfers between them would look the same. Of several silent
members of a group the lowest stands for all.
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from rankscope.schema.measurement import Verdict

from .groups import named_ranks
from .headline import UNDECIDED
from .late_ranks import CHRONIC, MIN_COST, wilson
from .lateness import Lateness


def silent_ranks(late: Lateness, kind: str, cause: str, coverage: float | None) -> Iterator[Verdict]:
    """A verdict of `kind` for each of them."""
    beyond = late.inherited_ns - np.median(late.inherited_ns, axis=1, keepdims=True)
    is_late = beyond > MIN_COST * late.duration_ns[:, None]
    num_steps = len(late.steps)
    for silent, ranks in sorted(_heirs(late).items()):
        columns = [late.ranks.index(rank) for rank in ranks]
        heirs = [at for at in columns if wilson(float(is_late[:, at].mean()), num_steps) >= CHRONIC]
        if not heirs:
            continue
        own = np.median(beyond[:, heirs], axis=1)
        named = tuple(late.ranks[at] for at in heirs)
        they = f"{named_ranks(named)} wait{'s' if len(named) == 1 else ''}"
        who = f"rank {silent}, which left no row," if len(late.silent) == 1 else f"rank {silent} or another silent one"
        text = (
            f"{who} seems to make the others wait: {they} for it and so "
            f"{'comes' if len(named) == 1 else 'come'} {np.median(own) / 1e6:.3g} ms late elsewhere, in "
            f"{int(is_late[:, heirs].all(axis=1).sum())} of {num_steps} counted steps; slow transfers between them "
            "would look the same"
        )
        evidence = ({"table": "collective", "predicate": f"rank IN ({', '.join(map(str, named))})"},)
        sure = round(UNDECIDED * (1.0 if coverage is None else coverage), 3)
        yield Verdict(kind, (silent,), text, sure, cause, cost_ns=float(np.maximum(own, 0).sum()), evidence=evidence)


def _heirs(late: Lateness) -> dict[int, list[int]]:
    """By silent rank: who has most of its inheritance from it."""
    handed: dict[int, int] = defaultdict(int)
    for item in late.inheritance:
        handed[item.heir] += item.amount_ns
    found: dict[int, list[int]] = defaultdict(list)
    for item in sorted(late.inheritance):
        if item.source not in late.ranks and item.heir in late.ranks and 2 * item.amount_ns > handed[item.heir]:
            found[item.source].append(item.heir)
    return found
