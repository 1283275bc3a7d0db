"""What the network interfaces carried: bytes in all and per step, link, errors, and how it went over time.

Counters are read about once a second, so the bytes of a step are shared out: what an interface counted between two
readings is spread evenly over the time between them, and the parts inside the step are added. Example: readings at 0 s
and 2 s, 100 bytes apart, and a step from 1 s to 2 s: 50 bytes. Only steps that readings surround wholly are counted.
Bytes on the wire, headers and everything else that the node did included: not the job's alone. An interface and the
bond or bridge above it both count, so interfaces are never added up.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from rankscope.schema.measurement import Measurement

from .evidence import Evidence
from .run import Row, Run
from .statements import statement

ANALYZER: Final = "network"
_TABLES: Final = ("nic_sample",)
_STEP_TABLES: Final = ("nic_sample", "step", "process")
_DIRECTIONS: Final = ("received", "sent")
_ONE_READING: Final = "only one reading: a difference needs two"
_NO_STEP: Final = "no counted step lies between two readings"


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface of one node. received, sent: network.bytes; step_bytes: mean, min and max by direction.

    series: bytes a second in equal parts of the sampled time that have a reading. why: what the last reading said of
    missing counters. longest_gap_ns: between two readings.
    """

    node: str
    nic: str
    kind: str
    is_up: bool | None
    speed: int | None
    received: Measurement
    sent: Measurement
    step_bytes: tuple[Measurement, ...]
    errors: Measurement
    num_drops: int
    num_retransmits: int | None
    num_congestions: int | None
    series: tuple[int, ...]
    longest_gap_ns: int | None
    why: str

    @property
    def has_traffic(self) -> bool:
        """Anything was counted."""
        return bool(self.received.value or self.sent.value)

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        return (self.received, self.sent, *self.step_bytes, self.errors)


@dataclass(frozen=True, slots=True)
class Network:
    """The answer, by node and most bytes first. Empty where no interface was sampled.

    is_inside: all ranks were on one node, so what they sent one another went through no interface.
    """

    interfaces: tuple[Interface, ...]
    is_inside: bool = False

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        return tuple(item for interface in self.interfaces for item in interface.measurements)


def network(run: Run, coverage: float | None = None) -> Network:
    """The interfaces of all nodes of `run`."""
    if not run.size("nic_sample").num_rows:
        return Network(())
    told = Evidence(run, ANALYZER, statement(ANALYZER, "nics"), _TABLES, coverage,
                    caveats=("everything that the node sent and received, not the job's alone",))  # fmt: skip
    steps = {row[:2]: row for row in run.rows(statement(ANALYZER, "steps"))}
    by_step = Evidence(run, ANALYZER, statement(ANALYZER, "steps"), _STEP_TABLES, coverage, window="counted steps",
                       caveats=("spread evenly between readings",))  # fmt: skip
    series: dict[tuple[str, str], list[int]] = defaultdict(list)
    for node, nic, _, speed in run.rows(statement(ANALYZER, "series")):
        series[node, nic].append(speed)
    found = [
        _interface(told, row, _step_bytes(by_step, row[:2], steps.get(row[:2])), tuple(series[row[:2]]))
        for row in run.rows(statement(ANALYZER, "nics"))
    ]  # fmt: skip
    found.sort(key=lambda item: (item.node, -int(item.received.value or 0) - int(item.sent.value or 0), item.nic))
    return Network(tuple(found), run.rows(statement(ANALYZER, "places")) == [(1,)])


def _interface(
    told: Evidence, row: Row, step_bytes: tuple[Measurement, ...], series: tuple[int, ...]
) -> Interface:  # fmt: skip
    node, nic, kind, num, rx, tx, num_resets, errors, drops, retransmits, congestions, is_up, speed, gap_ns, why = row
    scope = {"node": node, "nic": nic}
    caveats = (f"its counters fell {num_resets} times, which is not counted",) if num_resets else ()
    reason = why or _ONE_READING
    received, sent = (
        told.measurement("network.bytes", value, {**scope, "direction": direction}, num, caveats=caveats,
                         reason="" if value is not None else reason)
        for direction, value in zip(_DIRECTIONS, (rx, tx), strict=True)
    )  # fmt: skip
    has_two = rx is not None
    counted = told.measurement("network.errors", errors if has_two else None, scope, num,
                               reason="" if has_two else reason)  # fmt: skip
    return Interface(node, nic, kind or "", is_up, speed, received, sent, step_bytes, counted, drops or 0, retransmits,
                     congestions, series, gap_ns, why or "")  # fmt: skip


def _step_bytes(told: Evidence, key: Row, row: Row | None) -> tuple[Measurement, ...]:
    node, nic = key
    num_steps = int(row[2]) if row else 0
    values = row[3:] if row else (None,) * 6
    scopes = [{"node": node, "nic": nic, "direction": direction, "statistic": statistic}
              for direction in _DIRECTIONS for statistic in ("mean", "min", "max")]  # fmt: skip
    return tuple(
        told.measurement("network.step_bytes", value, scope, num_steps, reason="" if value is not None else _NO_STEP)
        for scope, value in zip(scopes, values, strict=True)
    )
