"""Communication by group kind and operation: which mesh dimension's collectives the time goes into.

Of an imported trace communication on the device and its exposed part (while the device computes nothing), of a live run
the time between issue and completion, the host-visible waits, and on CUDA the stalls of the stream where device times
were taken, inside the counted steps. Where several operations run at once an instant belongs to the one that began
first, so the parts of a rank sum to its time.communication, time.exposed_communication and time.host_wait exactly.
Of very many operations those of some steps are taken (`sampled`).

Example: an all_reduce of data groups [0, 10) and an all_gather of tensor groups [6, 14), compute [0, 4): 10 and 4 of
communication, 6 and 4 of it exposed.
"""

from typing import Final

from .evidence import Evidence
from .exposure_parts import (
    ANALYZER,
    CAVEAT,
    COMMUNICATION,
    DEVICE_TABLES,
    EXPOSED,
    UNKNOWN,
    WAIT,
    Exposure,
    Part,
    device_parts,
    kind_of,
    measured,
)
from .groups import Group, read_groups
from .partials import Pair
from .run import Row, Run
from .sampled import Sample, few_sampled
from .statements import statement
from .timeline import DEVICE_WINDOW

DEVICE: Final = Pair.of_parts(ANALYZER, "device", ("kernel", "collective"))
_LIVE: Final = {"operation": COMMUNICATION, "wait": WAIT, "device": COMMUNICATION, "stall": EXPOSED}
_SEEN: Final = {
    "operation": ("c.issued_ns", "c.completed_ns"), "wait": ("c.wait_begin_ns", "c.wait_end_ns"),
    "device": ("c.device_start_ns", "c.device_end_ns"), "stall": ("c.wait_device_start_ns", "c.wait_device_end_ns"),
}  # fmt: skip
"""Begin and end of each kind of interval."""
_LIVE_TABLES: Final = ("collective", "step", "process_group")


def exposure(run: Run, coverage: float | None = None) -> Exposure:
    """Communication of every rank by group kind and operation. A run has device timelines or live ones, never both.

    Computed once for each reading of the run.
    """
    known = run.kept.get(ANALYZER)
    return known if isinstance(known, Exposure) else run.anew(lambda: _exposure(run, coverage))


def _exposure(run: Run, coverage: float | None) -> Exposure:
    is_live = bool(run.rows(statement("time", "is_live"))[0][0])
    sample = few_sampled(run) if is_live else None
    sql = DEVICE.definition if sample is None else _live_statement(run, sample)
    groups, rows = read_groups(run), DEVICE.rows(run) if sample is None else run.rows(sql)
    parts = _live(rows, groups) if is_live else device_parts(rows, groups)
    some = f", {sample.window}, and what was issued in them" if sample and sample.window else ""
    told = Evidence(
        run, ANALYZER, sql, _LIVE_TABLES if is_live else DEVICE_TABLES, coverage,
        window=f"counted steps{some}" if is_live else DEVICE_WINDOW,
        timing_source="host" if is_live else "trace",
        caveats=(CAVEAT,),
    )  # fmt: skip
    found = Exposure(parts, tuple(measured(told, parts)))
    run.kept[ANALYZER] = found
    return found


def _live_statement(run: Run, sample: Sample) -> str:
    steps = sample.of_steps
    [[has_device]] = run.rows(statement(ANALYZER, "device_times").format(table=sample.source))
    seen = _SEEN if has_device else {kind: _SEEN[kind] for kind in ("operation", "wait")}
    begins, ends = zip(*seen.values(), strict=True)
    return statement(ANALYZER, "live").format(
        table=sample.source, is_chosen=f"{steps.chosen} AND {steps.is_told}",
        kinds=", ".join(f"'{kind}'" for kind in seen), begins=", ".join(begins), ends=", ".join(ends),
    )  # fmt: skip


def _live(rows: list[Row], groups: dict[str | None, Group]) -> tuple[Part, ...]:
    on_device = {row[:2] for row in rows if row[2] in ("device", "stall")}
    return tuple(_live_part(row, groups) for row in rows if row[2] != "operation" or row[:2] not in on_device)


def _live_part(row: Row, groups: dict[str | None, Group]) -> Part:
    incarnation, rank, seen, group_id, op, ns, num = row
    return Part(_LIVE[seen], incarnation, rank, "", group_id, kind_of(groups, group_id, op), op or UNKNOWN, ns, num)
