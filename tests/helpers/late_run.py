"""A run whose ranks are late as planned: every step is data, forward and backward, then one operation of all ranks."""

from collections.abc import Callable, Mapping
from pathlib import Path

from run_builder import MS, WORLD, RunBuilder

Delays = Callable[[int, int], Mapping[str, int]]
"""(rank, step) -> kind of span -> ms that it takes longer."""
BASE_MS = {"data": 5, "forward": 20, "backward": 20}
TRANSFER_MS = 5


def late_run(
    build: RunBuilder, delays: Delays, num_steps: int = 30, tokens: Callable[[int, int], int] | None = None
) -> Path:
    """Write the run with `build` (all its ranks share a clock) and seal it.

    Without delays a step takes 50 ms: 45 of work and 5 of transfer. Spans of other kinds than BASE_MS come before the
    forward pass, inside of which `gc` and user spans (any other name) lie.
    """
    starts, clock = dict.fromkeys(range(build.world_size), 0), 0
    for step in range(num_steps):
        arrivals = {}
        for rank in range(build.world_size):
            arrivals[rank] = _work(build, rank, step, starts[rank], delays(rank, step))
        clock = max(arrivals.values()) + TRANSFER_MS
        for rank, arrival in arrivals.items():
            build.collective(rank, step, arrival, (arrival, clock), clock, step=step, group_id=WORLD)
            more = {} if tokens is None else {"tokens": tokens(rank, step)}
            build.step(rank, step, starts[rank], clock, **more)
            starts[rank] = clock
    build.entities()
    return build.seal()


def _work(build: RunBuilder, rank: int, step: int, at: int, delays: Mapping[str, int]) -> int:
    inside = {kind: length for kind, length in delays.items() if kind not in BASE_MS}
    for kind, length in BASE_MS.items():
        end = at + length + delays.get(kind, 0)
        if kind == "forward":
            begin = at
            for name, extra in inside.items():
                if name == "nothing":
                    at, end = at + extra, end + extra
                    begin = at
                    continue
                is_kind = name in ("gc", "checkpoint", "compile")
                build.span(rank, step, name if is_kind else "user", end, end + extra, name=name)
                end += extra
            build.fact("span", rank, step=step, kind=kind, start_ns=begin * MS, end_ns=end * MS)
        else:
            build.span(rank, step, kind, at, end)
        at = end
    return at


__all__ = ["BASE_MS", "TRANSFER_MS", "Delays", "late_run"]
