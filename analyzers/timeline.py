"""A timeline and its parts: what `time` says of a rank, from a run (`time`) or straight from traces (`trace_time`).

Loads nothing heavy, so that traces can be answered without a database.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from rankscope.schema.kernel_classes import looks_like_communication
from rankscope.schema.measurement import Measurement, Verdict

if TYPE_CHECKING:
    from .headline import Headline

ANALYZER: Final = "time"
DEVICE, HOST, CUDA_HOST = "device", "host", "cuda_host"
PARTS: Final = ("time.compute", "time.exposed_communication", "time.exposed_copy", "time.exposed_other", "time.idle")
"""The partition of a device's span."""
DEVICE_WINDOW: Final = "first to last device activity"


class Teller(Protocol):
    """Turns values into measurements with their evidence."""

    def measurement(
        self, name: str, value: float | int | str | None, scope: dict[str, Any], n: int, *, reason: str = ""
    ) -> Measurement:
        """The measurement `name`; a value of None needs a reason."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """One rank (and device) in one incarnation. kind: `DEVICE`, `HOST` (gloo) or `CUDA_HOST`.

    measurements: by name. num_intervals: activities or operations they are made of.
    """

    rank: int | None
    incarnation: int
    device: str
    kind: str
    num_intervals: int
    measurements: dict[str, Measurement]

    def value(self, name: str) -> int | float | None:
        """The value of a measurement; None where there is none."""
        found = self.measurements.get(name)
        return None if found is None or found.value is None else found.value  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class NameTime:
    """The activities of one name. total_ns is a sum over activities, not a union."""

    kernel_class: str
    name: str
    num: int
    total_ns: int


@dataclass(frozen=True, slots=True)
class Times:
    """The answer. names: every name of a device activity, longest first; suspects: those that count as compute though
    their names speak of communication. reason: why there is no timeline, if there is none."""

    timelines: tuple[Timeline, ...]
    names: tuple[NameTime, ...]
    suspects: tuple[NameTime, ...]
    reason: str = ""

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, by rank."""
        return tuple(item for timeline in self.timelines for item in timeline.measurements.values())

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """None: a division of time blames nobody."""
        return ()

    @property
    def headlines(self) -> "tuple[Headline, ...]":
        """How much is exposed and idle, where devices tell it."""
        from .time_headlines import time_headlines

        return tuple(time_headlines(self))


def suspects_of(names: tuple[NameTime, ...]) -> tuple[NameTime, ...]:
    """Those that count as compute though their names speak of communication."""
    return tuple(item for item in names if item.kernel_class == "compute" and looks_like_communication(item.name))


def device_timelines(told: Teller, rows: Sequence[tuple[Any, ...]]) -> tuple[Timeline, ...]:
    """One timeline a row: incarnation, rank, device, span, compute, communication, copy, overlap, exposed
    communication, copies and other, idle (ns), number of activities."""
    several = {(row[0], row[1]) for row in rows if sum(other[:2] == row[:2] for other in rows) > 1}
    return tuple(_device(told, row, is_one=(row[0], row[1]) not in several) for row in rows)


def _device(told: Teller, row: tuple[Any, ...], is_one: bool) -> Timeline:
    incarnation, rank, device = row[:3]
    span, compute, communication, copy, overlap, exposed, exposed_copy, other, idle, num = row[3:]
    assert compute + exposed + exposed_copy + other + idle == span, "the parts of the span do not sum to it"
    scope = scope_of(rank, incarnation) | ({} if is_one else {"device": device})
    values: dict[str, Any] = {
        "time.span": span, "time.compute": compute, "time.communication": communication, "time.copy": copy,
        "time.overlap": overlap, "time.exposed_communication": exposed, "time.exposed_copy": exposed_copy,
        "time.exposed_other": other, "time.idle": idle,
    }  # fmt: skip
    found = {name: told.measurement(name, value, scope, num) for name, value in values.items()}
    found |= ratios(told, scope, num, compute, communication, overlap)
    found["ratio.exposed"] = told.measurement(
        "ratio.exposed", exposed / span if span else None, scope, num, reason="" if span else "its span is empty"
    )
    return Timeline(rank, incarnation, device, DEVICE, num, found)


def ratios(
    told: Teller, scope: dict[str, Any], n: int, compute: int | None, communication: int, overlap: int | None,
    why: str = "",
) -> dict[str, Measurement]:  # fmt: skip
    """The ratios of one timeline. why: the reason where compute is not known."""
    none_computed, silent = why or "it computed nothing", why or "it did not communicate"
    return {
        "ratio.communication_computation": told.measurement(
            "ratio.communication_computation", communication / compute if compute else None, scope, n,
            reason="" if compute else none_computed,
        ),
        "ratio.overlap": told.measurement(
            "ratio.overlap", overlap / communication if communication and overlap is not None else None, scope, n,
            reason="" if communication and overlap is not None else silent,
        ),
    }  # fmt: skip


def scope_of(rank: int | None, incarnation: int) -> dict[str, Any]:
    """What the measurements of a timeline are about."""
    return {"rank": rank} | ({"incarnation": incarnation} if incarnation else {})
