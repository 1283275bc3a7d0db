"""Communication by group kind and operation: which mesh dimension's collectives the time goes into.

Of an imported trace communication on the device and its exposed part (while the device computes nothing), of a live run
the time between issue and completion, the host-visible waits, and on CUDA the stalls of the stream where device times
were taken, inside the counted steps. Where several operations run at once an instant belongs to the one that began
first, so the parts of a rank sum to its time.communication, time.exposed_communication and time.host_wait exactly.
Of more than MAX_ROWS operations one counted step in so many is taken.

Example: an all_reduce of data groups [0, 10) and an all_gather of tensor groups [6, 14), compute [0, 4): 10 and 4 of
communication, 6 and 4 of it exposed.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from rankscope.schema.measurement import Measurement, Verdict

from .evidence import Evidence
from .groups import Group, read_groups
from .headline import INFO, Headline
from .run import Row, Run
from .statements import statement

ANALYZER: Final = "exposure"
COMMUNICATION: Final = "time.communication_by_kind"
EXPOSED: Final = "time.exposed_communication_by_kind"
WAIT: Final = "time.host_wait_by_kind"
WHOLES: Final = {COMMUNICATION: "time.communication", EXPOSED: "time.exposed_communication", WAIT: "time.host_wait"}
"""What the parts of each rank sum to."""
MAX_ROWS: Final = 2_000_000
"""Collectives of a live run that are divided one by one: about six seconds of CPU time."""
UNKNOWN: Final = "unknown"
"""Kind and operation of communication that no collective of the run belongs to."""
_LIVE: Final = {"operation": COMMUNICATION, "wait": WAIT, "device": COMMUNICATION, "stall": EXPOSED}
_DEVICE_TABLES: Final = ("kernel", "collective", "process_group")
_LIVE_TABLES: Final = ("collective", "step", "process_group")


@dataclass(frozen=True, slots=True)
class Part:
    """Time of one rank in operations of one group. name: COMMUNICATION, EXPOSED or WAIT."""

    name: str
    incarnation: int
    rank: int | None
    device: str
    group_id: str | None
    group_kind: str
    op: str
    ns: int
    num_pieces: int


@dataclass(frozen=True, slots=True)
class Exposure:
    """The answer. parts: by rank, group and operation. measurements: by rank, group kind and operation."""

    parts: tuple[Part, ...]
    measurements: tuple[Measurement, ...]

    def by_kind(self, name: str) -> dict[tuple[str, str], int]:
        """Time over all ranks, ns, by group kind and operation; most first."""
        found: dict[tuple[str, str], int] = defaultdict(int)
        for part in self.parts:
            if part.name == name:
                found[part.group_kind, part.op] += part.ns
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """None: a division of time blames nobody."""
        return ()

    @property
    def headlines(self) -> tuple[Headline, ...]:
        """Which dimension and operation most of the exposed communication is."""
        what = "exposed communication" if any(part.name == EXPOSED for part in self.parts) else "host-visible waits"
        found = self.by_kind(EXPOSED) or self.by_kind(WAIT)
        total = sum(found.values())
        if not total or len(found) < 2:
            return ()
        (kind, op), most = next(iter(found.items()))
        return (Headline(INFO, f"Of the {what} {100 * most / total:.0f} % is {op} of {kind} groups.", "time"),)

    @property
    def exposed_by_group(self) -> dict[str | None, int]:
        """What is exposed over all ranks, ns: on the device where that is known, else the host-visible waits."""
        name = EXPOSED if any(part.name == EXPOSED for part in self.parts) else WAIT
        found: dict[str | None, int] = defaultdict(int)
        for part in self.parts:
            if part.name == name:
                found[part.group_id] += part.ns
        return found


def exposure(run: Run, coverage: float | None = None) -> Exposure:
    """Communication of every rank by group kind and operation. A run has device timelines or live ones, never both.

    Computed once for each reading of the run.
    """
    known = run.kept.get(ANALYZER)
    if isinstance(known, Exposure):
        return known
    is_live = bool(run.rows(statement("time", "is_live"))[0][0])
    every = max(1, -(-run.size("collective").num_rows // MAX_ROWS)) if is_live else 1
    sql = _live_statement(every) if is_live else statement(ANALYZER, "device")
    groups, rows = read_groups(run), run.rows(sql)
    parts = _live(rows, groups) if is_live else _device(rows, groups)
    some = "" if every == 1 else f", one in {every}, and what was issued in it"
    told = Evidence(
        run, ANALYZER, sql, _LIVE_TABLES if is_live else _DEVICE_TABLES, coverage,
        window=f"counted steps{some}" if is_live else "first to last device activity",
        timing_source="host" if is_live else "trace",
        caveats=("an instant of several operations belongs to the one that began first",),
    )  # fmt: skip
    found = Exposure(parts, tuple(_measured(told, parts)))
    run.kept[ANALYZER] = found
    return found


def _live_statement(every: int) -> str:
    sql = statement(ANALYZER, "live").format(every=every)
    return sql if every == 1 else sql.replace("WHERE true", f"WHERE c.step % {every} = 0")


def _device(rows: list[Row], groups: dict[str | None, Group]) -> tuple[Part, ...]:
    found = []
    for incarnation, rank, device, group_id, op, communication, exposed, num in rows:
        kind = _kind(groups, group_id, op)
        for name, ns in ((COMMUNICATION, communication), (EXPOSED, exposed)):
            found.append(Part(name, incarnation, rank, device, group_id, kind, op or UNKNOWN, ns, num))
    return tuple(found)


def _live(rows: list[Row], groups: dict[str | None, Group]) -> tuple[Part, ...]:
    on_device = {row[:2] for row in rows if row[2] in ("device", "stall")}
    return tuple(_live_part(row, groups) for row in rows if row[2] != "operation" or row[:2] not in on_device)


def _live_part(row: Row, groups: dict[str | None, Group]) -> Part:
    incarnation, rank, seen, group_id, op, ns, num = row
    return Part(_LIVE[seen], incarnation, rank, "", group_id, _kind(groups, group_id, op), op or UNKNOWN, ns, num)


def _kind(groups: dict[str | None, Group], group_id: str | None, op: str | None) -> str:
    if group_id is None and op is None:
        return UNKNOWN
    return (groups.get(group_id) or Group.unknown(group_id)).kind


def _measured(told: Evidence, parts: tuple[Part, ...]) -> list[Measurement]:
    """One measurement by rank, device, kind and operation."""
    sums: dict[tuple[str, int, int | None, str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for part in parts:
        key = (part.name, part.incarnation, part.rank, part.device, part.group_kind, part.op)
        sums[key][0] += part.ns
        sums[key][1] += part.num_pieces
    several = {key[:2] for key in {(part.incarnation, part.rank, part.device) for part in parts}
               if len({part.device for part in parts if (part.incarnation, part.rank) == key[:2]}) > 1}  # fmt: skip
    found = []
    for (name, incarnation, rank, device, kind, op), (ns, num) in sums.items():
        scope = {"rank": rank, "group_kind": kind, "op": op}
        scope |= {"incarnation": incarnation} if incarnation else {}
        scope |= {"device": device} if (incarnation, rank) in several else {}
        found.append(told.measurement(name, ns, scope, num))
    return found
