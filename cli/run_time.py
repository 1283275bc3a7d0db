"""`rankscope time RUN`: a small imported run is answered from its files, any other from a database over them."""

import os
from typing import TYPE_CHECKING, Any

from .printing import print_drawn, print_json

if TYPE_CHECKING:
    from rankscope.analyzers.exposure_parts import Exposure
    from rankscope.analyzers.timeline import Times

    from .opening import Opened

    _Answer = tuple[dict[str, Any], Times, Exposure | None, Opened | None]


def run_time_command(run: str, json: bool) -> None:
    """Print where the time went in the run called `run`. Raises InputError."""
    about, found, shared, asked = _small(run) or _any(run)
    if json:
        names = [{"class": item.kernel_class, "name": item.name, "num": item.num, "total_ns": item.total_ns}
                 for item in found.names]  # fmt: skip
        measurements = (*found.measurements, *(shared.measurements if shared else ()))
        print_json({
            "run": about, "measurements": [item.as_json() for item in measurements], "verdicts": [], "names": names,
            "reason": found.reason,
        })  # fmt: skip
        return
    from .time_view import time_section

    print_drawn(time_section(found, shared))
    if asked is not None:
        asked.print_gap()


def _small(run: str) -> "_Answer | None":
    if not os.path.isdir(f"{run}/kernel") or os.path.isdir(f"{run}/capture"):
        return None
    from rankscope.analyzers.small_time import small_times

    found = small_times(run)
    if found is None:
        return None
    about = {"run_id": found.run.run_id, "address": found.run.place.address, "dataset_digest": found.run.digest}
    return about, found.times, found.exposure, None  # a damaged file is left to the database


def _any(run: str) -> "_Answer":
    from rankscope.analyzers.exposure import exposure
    from rankscope.analyzers.time import times

    from .opening import opened

    with opened(run) as asked:
        found = times(asked.run, asked.share)
        shared = exposure(asked.run, asked.share) if asked.run.size("collective").num_rows else None
    return asked.about, found, shared, asked
