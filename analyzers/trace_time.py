"""Where the time of each rank's devices went, straight from the activities of traces: no run is written or opened.

The same division as `time.sql` makes, in whole nanoseconds, by lengths of unions (K, C, M: compute, communication,
copies; all: everything): overlap = K + C - (K u C), exposed communication = (K u C) - K, exposed copies =
(K u C u M) - (K u C), other = all - (K u C u M), idle = span - all. Cost: a sort and one pass; 22,000 activities take
15 ms, which is why nothing is loaded for it. The numbers are equal to those of the imported run, which a test compares.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rankscope.schema.catalogue import CATALOGUE
from rankscope.schema.measurement import Measurement, Provenance
from rankscope.schema.version import ONTOLOGY_VERSION

from .own_version import own_version
from .timeline import ANALYZER, DEVICE_WINDOW, NameTime, Times, device_timelines, suspects_of

COMPUTE, COMMUNICATION, COPY, OTHER = range(4)
CLASSES: Final = {"compute": COMPUTE, "communication": COMMUNICATION, "copy": COPY}
"""The classes of kernels that have a part of their own; all others are `OTHER`."""
_NOTHING: Final = "the traces hold no device activity"


@dataclass(frozen=True, slots=True)
class DeviceActivities:
    """Activities of one rank's devices. start, end: ns. device: its number, -1 where it is not told.

    kind: position in `names`, which holds each (class, name) once.
    """

    rank: int
    start: Sequence[int]
    end: Sequence[int]
    device: Sequence[int]
    kind: Sequence[int]
    names: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class TraceEvidence:
    """Turns values into measurements. digest: of the files' bytes; coverage: activities kept / seen."""

    digest: str
    num_files: int
    num_rows: int
    coverage: float | None

    def measurement(
        self, name: str, value: float | int | str | None, scope: dict[str, Any], n: int, *, reason: str = ""
    ) -> Measurement:
        """The measurement `name`. Raises KeyError if the catalogue does not know it."""
        entry = CATALOGUE[name]
        return Measurement(name, value, entry.unit, scope, n, Provenance(
            analyzer=ANALYZER, definition=entry.definition, statement=f"{__name__}.trace_times",
            dataset_digest=self.digest, num_files=self.num_files, num_rows=self.num_rows, window=DEVICE_WINDOW,
            coverage=self.coverage, timing_source="trace", rankscope_version=own_version(),
            ontology_version=ONTOLOGY_VERSION,
        ), None, reason)  # fmt: skip


def trace_times(told: TraceEvidence, found: Iterable[DeviceActivities]) -> Times:
    """The answer of `time` for traces; several pieces of one rank are one timeline."""
    by_rank: dict[int, list[DeviceActivities]] = defaultdict(list)
    for item in found:
        by_rank[item.rank].append(item)
    rows = [row for rank in sorted(by_rank) for row in _rows(rank, by_rank[rank])]
    names = names_of(item for pieces in by_rank.values() for item in pieces)
    return Times(device_timelines(told, rows), names, suspects_of(names), "" if rows else _NOTHING)


def _rows(rank: int, pieces: list[DeviceActivities]) -> Iterator[tuple[Any, ...]]:
    by_device: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for item in pieces:
        classes = [CLASSES.get(kernel_class, OTHER) for kernel_class, _ in item.names]
        activities = zip(item.start, item.end, map(classes.__getitem__, item.kind), strict=True)
        if len(devices := set(item.device)) == 1:
            by_device[devices.pop()] += activities
            continue
        for device, activity in zip(item.device, activities, strict=True):
            by_device[device].append(activity)
    labels = {number: f"device {number}" if number >= 0 else "" for number in by_device}
    for number, label in sorted(labels.items(), key=lambda pair: pair[1]):
        yield 0, rank, label, *parts_of(by_device[number]), len(by_device[number])


def parts_of(activities: list[tuple[int, int, int]]) -> tuple[int, ...]:
    """Span, compute, communication, copy, overlap, exposed communication, copies and other, idle.

    activities: of one device, begin, end (ns) and class; are sorted.
    """
    activities.sort()
    k, c, m = ([item for item in activities if item[2] == kind] for kind in (COMPUTE, COMMUNICATION, COPY))
    talking = [item for item in activities if item[2] <= COMMUNICATION] if c else k
    known = [item for item in activities if item[2] <= COPY] if m else talking
    span = max(end for _, end, _ in activities) - activities[0][0]
    compute, communication, copy, either, told = map(_union, (k, c, m, talking, known))
    everything = told if len(known) == len(activities) else _union(activities)
    return (span, compute, communication, copy, compute + communication - either, either - compute, told - either,
            everything - told, span - everything)  # fmt: skip


def _union(activities: list[tuple[int, int, int]]) -> int:
    """Length of the union; in the order of begins."""
    length, reach = 0, activities[0][0] if activities else 0
    for start, end, _ in activities:
        if end > reach:
            length += end - (start if start > reach else reach)
            reach = end
    return length


def names_of(found: Iterable[DeviceActivities]) -> tuple[NameTime, ...]:
    """How much time each name took, longest first."""
    nums: dict[tuple[str, str], int] = defaultdict(int)
    totals: dict[tuple[str, str], int] = defaultdict(int)
    for item in found:
        for num, total, name in zip(*_sums(item), item.names, strict=True):
            nums[name] += num
            totals[name] += total
    return tuple(_sorted(nums, totals))


def _sums(item: DeviceActivities) -> tuple[list[int], list[int]]:
    num, total = [0] * len(item.names), [0] * len(item.names)
    for start, end, kind in zip(item.start, item.end, item.kind, strict=True):
        num[kind] += 1
        total[kind] += end - start
    return num, total


def _sorted(nums: Mapping[tuple[str, str], int], totals: Mapping[tuple[str, str], int]) -> list[NameTime]:
    found = [NameTime(*name, num, totals[name]) for name, num in nums.items() if num]
    return sorted(found, key=lambda item: (-item.total_ns, item.name, item.kernel_class))
