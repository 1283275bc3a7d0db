"""Which ranks see the same samples: those of one tensor, pipeline and context group work on one data coordinate.

Samples and tokens are added up over data coordinates; over ranks they would be tp x pp x cp times too many. Ranks are
joined along the groups whose mesh dimension is tp, pp or cp. Where a group between one rank and the world has no known
dimension, or ranks send to each other without a pipeline group, nobody can say, unless the run declares its layout. Nor
where ranks left no row at all: a sum over the others would pass for that of the job.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from .groups import unfold
from .run import Run
from .statements import statement

_SHARING: Final = frozenset({"tp", "pp", "cp"})
_SEPARATE: Final = frozenset({"dp", "ep", "world"})


@dataclass(frozen=True, slots=True)
class DataCoordinates:
    """of: data coordinate (its lowest rank) by rank; None with a reason where that is not known."""

    of: dict[int, int] | None
    reason: str = ""
    caveat: str = ""

    @property
    def num(self) -> int | None:
        """How many there are."""
        return None if self.of is None else len(set(self.of.values()))


def data_coordinates(run: Run) -> DataCoordinates:
    """The data coordinates of `run`. Costs a row per group, and a look for P2P operations."""
    ranks = sorted({row[1] for row in run.rows(statement("brief", "processes")) if row[1] is not None})
    groups = [(row[2], row[4] or 0, unfold(*row[5:8])) for row in run.rows(statement("communication", "groups"))]
    declared = run.rows(statement("throughput", "layout"))
    sharing = _declared(declared[0] if declared else (None,) * 4, len(ranks))
    world = max((size for _, size, _ in groups), default=len(ranks))
    unknown = [size for dimension, size, _ in groups
               if dimension not in _SHARING | _SEPARATE and 1 < size < world]  # fmt: skip
    missing = world_size(run, len(ranks)) - len(ranks)
    if missing:
        return DataCoordinates(
            None, f"{missing} of {len(ranks) + missing} ranks left no row: nobody knows what they worked through"
        )
    joined = _joined(ranks, (members for dimension, _, members in groups if dimension in _SHARING))
    if sharing == 1:
        return DataCoordinates(
            {rank: rank for rank in ranks}, caveat="layout as declared: every rank has its own samples"
        )
    if unknown:
        return DataCoordinates(None, f"{len(unknown)} process groups have no known mesh dimension: declare it with "
                                     "attach(layout=...) or a DeviceMesh")  # fmt: skip
    if all(dimension != "pp" for dimension, _, _ in groups) and run.rows(statement("throughput", "transfers")):
        return DataCoordinates(None, "ranks send to each other and no group is known as a pipeline: declare the layout")
    is_told = any(dimension in _SHARING | {"dp"} for dimension, _, _ in groups)
    caveat = (
        "" if is_told or len(ranks) == 1 else "no group but the world's: every rank is taken to have its own samples"
    )
    return DataCoordinates(joined, caveat=caveat)


def world_size(run: Run, num_seen: int) -> int:
    """Ranks of the run: as many as it says, or as were seen if those are more."""
    ((told,),) = run.rows(statement("throughput", "world"))
    return max(told or 0, num_seen)


def _declared(layout: tuple[int | None, ...], num_ranks: int) -> int | None:
    """Ranks that share a data coordinate, as the layout says; None where it says nothing."""
    dp, *sharing = layout
    if dp is None and all(size is None for size in sharing):
        return None
    product = 1
    for size in sharing:
        product *= size or 1
    return product if dp in (None, num_ranks // product) else None


def _joined(ranks: Iterable[int], groups: Iterable[tuple[int, ...]]) -> dict[int, int]:
    """The lowest rank that each rank is joined with."""
    lowest = {rank: rank for rank in ranks}

    def root(rank: int) -> int:
        while lowest.get(rank, rank) != rank:
            rank = lowest[rank]
        return rank

    for members in groups:
        roots = sorted({root(member) for member in members})
        lowest.update(dict.fromkeys(roots, roots[0]))
    return {rank: root(rank) for rank in ranks}
