"""`rankscope collectives RUN`: collectives taken apart over all ranks: waiting, transfer, bandwidth, network, links."""

from typing import Annotated, Final

from .arguments import BadUsage, JsonOption, Option, RunArgument
from .opening import opened
from .printing import print_drawn

ALL: Final = "all"


def command(
    run: RunArgument,
    json: JsonOption = False,
    operations: Annotated[
        str, Option("--operations", metavar="N", help="List the N operations with most waiting, or all.")
    ] = "",
) -> None:
    """Print how long ranks waited for the last one, how long transfers took, and at which bandwidth.

    Operations are matched over the ranks; the wait ends when the last rank arrives, the transfer begins there. The
    last rank is named only where the ends of an operation coincide closely enough. Bandwidths are those of nccl-tests.

    Example: rankscope collectives rankscope-runs/my-run --operations 5
    """
    limit = _limit(operations)
    from rankscope.analyzers.collectives import collectives
    from rankscope.analyzers.listed import listed
    from rankscope.analyzers.matched import matched

    with opened(run) as at:
        found = collectives(at.run, at.share)
        single = listed(matched(at.run), limit) if limit else ()
        if json:
            more = {"operations": [item.as_json() for item in single]} if operations else {}
            unmatched = [{"group_kind": item.group_kind, "op": item.op, "reason": item.reason,
                          "num_operations": item.num_operations} for item in found.unmatched]  # fmt: skip
            at.print_json(found.measurements, found.verdicts, unmatched=unmatched, **more)
            return
    from .collectives_view import collectives_section

    print_drawn(collectives_section(found, single))
    at.print_gap()


def _limit(operations: str) -> int:
    """How many operations to list; 0 for none. Raises BadUsage."""
    if operations in ("", ALL):
        return 1 << 62 if operations else 0
    if not operations.isdecimal() or not int(operations):
        raise BadUsage(f"--operations is a number from 1 on, or {ALL}: not {operations!r}")
    return int(operations)
