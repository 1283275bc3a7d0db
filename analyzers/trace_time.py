"""Where the time of each rank's devices went, straight from the activities of traces: no run is written or opened.

The same division as `time.sql` makes, in whole nanoseconds, by the same sweep: edges in order, running counts of each
class, each piece between two edges given to the classes active in it. Cost: a sort of the edges; 26,000 activities take
10 ms. The numbers are equal to those of the imported run, which a test compares.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rankscope.schema.catalogue import CATALOGUE
from rankscope.schema.measurement import Measurement, Provenance
from rankscope.schema.version import ONTOLOGY_VERSION

from .own_version import own_version
from .timeline import ANALYZER, DEVICE_WINDOW, NameTime, Times, device_timelines, suspects_of

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
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
    start: Numbers
    end: Numbers
    device: Numbers
    kind: Numbers
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
    names = _names(item for pieces in by_rank.values() for item in pieces)
    return Times(device_timelines(told, rows), names, suspects_of(names), "" if rows else _NOTHING)


def _rows(rank: int, pieces: list[DeviceActivities]) -> Iterable[tuple[Any, ...]]:
    start, end, device = (
        np.concatenate([getattr(item, name) for item in pieces]) for name in ("start", "end", "device")
    )
    classes = np.concatenate([_classes(item) for item in pieces])
    labels = {number: f"device {number}" if number >= 0 else "" for number in set(device.tolist())}
    for number, label in sorted(labels.items(), key=lambda pair: pair[1]):
        mine = device == number
        yield 0, rank, label, *_parts(start[mine], end[mine], classes[mine]), int(mine.sum())


def _classes(item: DeviceActivities) -> Numbers:
    numbers = np.array([CLASSES.get(kernel_class, OTHER) for kernel_class, _ in item.names], np.int64)
    return numbers[item.kind] if len(numbers) else item.kind


def _parts(start: Numbers, end: Numbers, classes: Numbers) -> tuple[int, ...]:
    """Span, compute, communication, copy, overlap, exposed communication, copies and other, idle."""
    edges = np.concatenate([start, end])
    order = np.argsort(edges, kind="stable")
    length = np.diff(edges[order])
    sign = np.concatenate([np.ones(len(start), np.int64), np.full(len(end), -1, np.int64)])[order]
    kinds = np.concatenate([classes, classes])[order]
    k, c, m, o = (np.cumsum(np.where(kinds == kind, sign, 0))[:-1] > 0 for kind in range(4))

    def total(chosen: Mask) -> int:
        return int(length[chosen].sum())

    return (
        int(length.sum()), total(k), total(c), total(m), total(k & c), total(c & ~k), total(m & ~k & ~c),
        total(o & ~k & ~c & ~m), total(~k & ~c & ~m & ~o),
    )  # fmt: skip


def _names(found: Iterable[DeviceActivities]) -> tuple[NameTime, ...]:
    nums: dict[tuple[str, str], int] = defaultdict(int)
    totals: dict[tuple[str, str], int] = defaultdict(int)
    for item in found:
        for num, total, name in zip(*_sums(item), item.names, strict=True):
            nums[name] += num
            totals[name] += total
    return tuple(_sorted(nums, totals))


def _sums(item: DeviceActivities) -> tuple[list[int], list[int]]:
    num: Numbers = np.bincount(item.kind, minlength=len(item.names))
    total = np.zeros(len(item.names), np.int64)
    np.add.at(total, item.kind, item.end - item.start)
    return num.tolist(), total.tolist()


def _sorted(nums: Mapping[tuple[str, str], int], totals: Mapping[tuple[str, str], int]) -> list[NameTime]:
    found = [NameTime(*name, num, totals[name]) for name, num in nums.items() if num]
    return sorted(found, key=lambda item: (-item.total_ns, item.name, item.kernel_class))
