"""Counts, sums and extremes of each process's rows: the partials that most questions over the large tables share."""

from typing import TYPE_CHECKING, Final

from .partials import Partial, gather

if TYPE_CHECKING:
    from .run import Run

_ANALYZER: Final = "profile"
COLLECTIVES: Final = Partial(_ANALYZER, "collectives_partial", relations=("part_profile",))
"""partial_profile_collectives: by incarnation, process, rank, group, operation and tier."""
SPANS: Final = Partial(_ANALYZER, "spans_partial", tables=("span",), relations=("part_spans",))
"""partial_profile_spans: by incarnation, process and kind."""
STEPS: Final = Partial(_ANALYZER, "steps_partial", ("step",), ("part_steps",))
"""partial_profile_steps: the counted steps of each incarnation and process."""


def has_any(run: "Run", partial: Partial, condition: str) -> bool:
    """A row of the partial's table fulfils `condition`: asked before a large table is read. Raises UnreadableFile."""
    gather(run, (partial,))
    return bool(run.rows(f"SELECT EXISTS (FROM {partial.table} WHERE {condition})")[0][0])
