"""What the node agent's samplers would read here: each is made and read once, and what is null is said with its reason.

Device libraries are asked without the lock that an agent at work may hold. A driver that does not answer is given up
after a few seconds; its thread ends with the process.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from rankscope.hooks.device_library import DeviceLibrary, DeviceLibraryError
from rankscope.hooks.registry import SAMPLERS, SamplerSpec
from rankscope.hooks.sampling import Row, Rows, Surroundings
from rankscope.hooks.watched_call import WatchedCall
from rankscope.schema.errors import HookUnavailable

from . import identity
from .check import FINE, LIMITED, MISSING, NOTE, Check
from .settings import Settings

PATIENCE_SECONDS: Final = 10.0
MAX_REASONS: Final = 3
_Read = Callable[[], Rows]


def check_samplers(settings: Settings) -> Iterator[Check]:
    """One check per sampler."""
    me = identity.identify()
    around = Surroundings(me.node, Path(settings.sysfs), Path(settings.proc), lambda: ())
    for spec in SAMPLERS:
        if spec.name not in settings.hooks:
            yield Check(
                spec.name, MISSING, f"{spec.what}: switched off by RANKSCOPE_HOOKS", "leave it in RANKSCOPE_HOOKS"
            )
        elif spec.name == "processes":
            yield _processes(around, me.pid)
        else:
            yield _check(spec, around)


def _check(spec: SamplerSpec, around: Surroundings) -> Check:
    try:
        module, _, function = spec.target.partition(":")
        sampler = getattr(import_module(f"rankscope.hooks.{module}"), function)(around)
        read = (
            _devices(spec, around) if "device_sample" in spec.tables else partial(sampler.sample, time.monotonic_ns())
        )
        call = WatchedCall[Rows](read, f"rankscope-doctor-{spec.name}")
        call.ask()
        return _told(spec, call.answer(PATIENCE_SECONDS))
    except HookUnavailable as error:
        return Check(spec.name, NOTE if "device_sample" in spec.tables else MISSING, str(error))
    except (TimeoutError, DeviceLibraryError) as error:
        return Check(spec.name, MISSING, f"{spec.what}: {error}", "see whether the vendor's own tool answers")


def _devices(spec: SamplerSpec, around: Surroundings) -> _Read:
    library: DeviceLibrary
    if spec.name == "nvml":
        from rankscope.hooks.nvml import NvmlLibrary

        library = NvmlLibrary(around.sysfs)
    else:
        from rankscope.hooks.amd_smi import AmdLibrary

        library = AmdLibrary(import_module("amdsmi"))
    return partial(_read_devices, library)


def _read_devices(library: DeviceLibrary) -> Rows:
    listing = library.open()
    rows: list[Row] = []
    for device in listing.devices:
        reading = device.read()
        rows.append({**reading.columns, "reason": dict(reading.reasons)})
    rows += [{"reason": {"device": problem}} for problem in listing.problems]
    return {"device_sample": rows}


def _told(spec: SamplerSpec, rows: Rows) -> Check:
    readings = [row for table, found in rows.items() if table.endswith("_sample") for row in found]
    if not readings:
        return Check(spec.name, NOTE, f"{spec.what}: none here")
    what = f"{spec.what}: {len(readings)} {'readings' if len(readings) > 1 else 'reading'} at a time"
    missing = _reasons(readings)
    if not missing:
        return Check(spec.name, FINE, what)
    return Check(spec.name, LIMITED, f"{what}; null: {missing}")


def _reasons(readings: list[dict[str, Any]]) -> str:
    """Columns that are null in some reading, by reason; what only a second reading can tell is left out."""
    columns: dict[str, set[str]] = defaultdict(set)
    for row in readings:
        for column, why in (row.get("reason") or {}).items():
            if "two readings" not in why:
                columns[why].add(column)
    parts = [
        f"{', '.join(sorted(names))} ({why})" for why, names in sorted(columns.items(), key=lambda item: -len(item[1]))
    ]
    more = f"; and {len(parts) - MAX_REASONS} reasons more" if len(parts) > MAX_REASONS else ""
    return "; ".join(parts[:MAX_REASONS]) + more


def _processes(around: Surroundings, pid: int) -> Check:
    """The agent reads other processes of its own user: what this one may see of itself stands for them."""
    closed = [name for name in ("stat", "status", "schedstat", "io") if not _can_read(around.proc / str(pid) / name)]
    if closed:
        return Check("processes", LIMITED, f"CPU, waits and I/O of each rank: /proc/<pid>/{', '.join(closed)} cannot "
                     "be read", "run the agent as the ranks' user, in their PID namespace")  # fmt: skip
    return Check("processes", FINE, "CPU, run-queue wait, faults and I/O of each rank")


def _can_read(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True
