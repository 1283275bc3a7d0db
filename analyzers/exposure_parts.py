"""Communication by group kind and operation (`exposure.py`): what the answer consists of, from a run or from its files.

Loads nothing heavy, so that small imported runs can be answered without a database.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rankscope.schema.measurement import Measurement, Verdict

from .groups import Group
from .timeline import Teller

if TYPE_CHECKING:
    from .headline import Headline

ANALYZER: Final = "exposure"
COMMUNICATION: Final = "time.communication_by_kind"
EXPOSED: Final = "time.exposed_communication_by_kind"
WAIT: Final = "time.host_wait_by_kind"
WHOLES: Final = {COMMUNICATION: "time.communication", EXPOSED: "time.exposed_communication", WAIT: "time.host_wait"}
"""What the parts of each rank sum to."""
UNKNOWN: Final = "unknown"
"""Kind and operation of communication that no collective of the run belongs to."""
DEVICE_TABLES: Final = ("kernel", "collective", "process_group")
CAVEAT: Final = "an instant of several operations belongs to the one that began first"


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
    def headlines(self) -> "tuple[Headline, ...]":
        """Which dimension and operation most of the exposed communication is."""
        from .headline import INFO, Headline

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


def device_parts(rows: Iterable[tuple[Any, ...]], groups: dict[str | None, Group]) -> tuple[Part, ...]:
    """The parts of device timelines. rows: incarnation, rank, device, group, operation, communication and its exposed
    part (ns), pieces.
    """
    found = []
    for incarnation, rank, device, group_id, op, communication, exposed, num in rows:
        kind = kind_of(groups, group_id, op)
        for name, ns in ((COMMUNICATION, communication), (EXPOSED, exposed)):
            found.append(Part(name, incarnation, rank, device, group_id, kind, op or UNKNOWN, ns, num))
    return tuple(found)


def kind_of(groups: dict[str | None, Group], group_id: str | None, op: str | None) -> str:
    """The kind of a group; UNKNOWN where there is neither group nor operation."""
    if group_id is None and op is None:
        return UNKNOWN
    return (groups.get(group_id) or Group.unknown(group_id)).kind


def measured(told: Teller, parts: tuple[Part, ...]) -> list[Measurement]:
    """One measurement by rank, device, kind and operation."""
    sums: dict[tuple[str, int, int | None, str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for part in parts:
        key = (part.name, part.incarnation, part.rank, part.device, part.group_kind, part.op)
        sums[key][0] += part.ns
        sums[key][1] += part.num_pieces
    devices: dict[tuple[int, int | None], set[str]] = defaultdict(set)
    for part in parts:
        devices[part.incarnation, part.rank].add(part.device)
    found = []
    for (name, incarnation, rank, device, kind, op), (ns, num) in sums.items():
        scope = {"rank": rank, "group_kind": kind, "op": op}
        scope |= {"incarnation": incarnation} if incarnation else {}
        scope |= {"device": device} if len(devices[incarnation, rank]) > 1 else {}
        found.append(told.measurement(name, ns, scope, num))
    return found
