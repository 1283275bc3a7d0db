"""`rankscope clocks RUN`: how the hosts' clocks differ, how well that is known, and what causality allows at most."""

from typing import TYPE_CHECKING

from rankscope.schema.errors import NoEvidence

from .arguments import JsonOption, RunArgument
from .opening import opened
from .printing import print_drawn

if TYPE_CHECKING:
    from rankscope.analyzers.clocks import Clocks


def command(run: RunArgument, json: JsonOption = False) -> None:
    """Print each host's clock against that of rank 0's host: offset, drift, error, and the hard bound.

    The offset is the median difference of the ends of operations that end for all members at once; its error is their
    dispersion. No operation ends before those it depends on have begun: that is the hard bound, and it holds whoever
    was late. Times of two hosts are compared up to the sum of their errors; --json has every window of time.

    Example: rankscope clocks rankscope-runs/my-run
    """
    from rankscope.analyzers.clocks import clocks

    with opened(run) as at:
        found = clocks(at.run, at.share)
        if found is None:
            raise NoEvidence(f"{run}: no process told which host it ran on")
        if json:
            at.print_json(found.measurements, found.verdicts, windows=_windows(found))
            return
    from .clocks_view import clocks_section

    print_drawn(clocks_section(found))
    at.print_gap()


def _windows(found: "Clocks") -> list[dict[str, object]]:
    """Every window of every host: what an aligned time is made of."""
    return [
        {"node": item.clock.host.node, "boot_id": item.clock.host.boot_id, "from_ns": window.from_ns,
         "until_ns": window.until_ns, "offset_ns": window.offset_ns, "drift_ppb": window.drift_ppb,
         "error_ns": window.error_ns}
        for item in found.hosts for window in item.clock.windows
    ]  # fmt: skip
