"""Where the time of each rank's devices went, straight from the activities of traces: no run is written or opened.

The same division as `time.sql` makes, in whole nanoseconds, by lengths of unions (K, C, M: compute, communication,
copies; all: everything): overlap = K + C - (K u C), exposed communication = (K u C) - K, exposed copies =
(K u C u M) - (K u C), other = all - (K u C u M), idle = span - all. Cost: a sort and one pass; 22,000 activities take
15 ms, which is why nothing is loaded for it. The numbers are equal to those of the imported run, which a test compares.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress, islice
from typing import Any, Final

from rankscope.schema.catalogue import CATALOGUE
from rankscope.schema.measurement import Measurement, Provenance
from rankscope.schema.version import ONTOLOGY_VERSION

from .own_version import own_version
from .timeline import ANALYZER, DEVICE_WINDOW, NameTime, Times, device_timelines, suspects_of

COMPUTE, COMMUNICATION, COPY, OTHER = range(4)
CLASSES: Final = {"compute": COMPUTE, "communication": COMMUNICATION, "copy": COPY}
"""The classes of kernels that have a part of their own; all others are `OTHER`."""
_Columns = tuple[Sequence[int], Sequence[int], Sequence[int]]
"""Begins, ends and classes."""
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
    by_device: dict[int, list[_Columns]] = defaultdict(list)
    for item in pieces:
        classes = [CLASSES.get(kernel_class, OTHER) for kernel_class, _ in item.names]
        columns = item.start, item.end, [classes[kind] for kind in item.kind]
        for device in set(item.device):
            by_device[device].append(_of(columns, [number == device for number in item.device]))
    labels = {number: f"device {number}" if number >= 0 else "" for number in by_device}
    for number, label in sorted(labels.items(), key=lambda pair: pair[1]):
        start, end, kind = (list(chain(*column)) for column in zip(*by_device[number], strict=True))
        yield 0, rank, label, *_parts(start, end, kind), len(start)


def _of(columns: _Columns, chosen: list[bool]) -> _Columns:
    if all(chosen):
        return columns
    start, end, kind = (list(compress(column, chosen)) for column in columns)
    return start, end, kind


def _parts(start: list[int], end: list[int], kind: list[int]) -> tuple[int, ...]:
    """Span, compute, communication, copy, overlap, exposed communication, copies and other, idle."""
    sides = [
        tuple(sorted([time for time, one in zip(side, kind, strict=True) if one == which]) for side in (start, end))
        for which in (COMPUTE, COMMUNICATION, COPY, OTHER)
    ]
    compute, communication, copy, _ = (_length(*side) for side in sides)
    unions, begins, ends = [compute], *sides[COMPUTE]
    for more in sides[COMMUNICATION:]:
        if more[0]:
            begins, ends = sorted([*begins, *more[0]]), sorted([*ends, *more[1]])
        unions.append(_length(begins, ends) if more[0] else unions[-1])
    either, told, everything = unions[COMMUNICATION:]
    span = max(end) - min(start)
    return (span, compute, communication, copy, compute + communication - either, either - compute, told - either,
            everything - told, span - everything)  # fmt: skip


def _length(begins: list[int], ends: list[int]) -> int:
    """Of the union. begins, ends: each sorted by itself. A gap is where as many have ended as begun."""
    if not begins:
        return 0
    gaps = [begin - end for begin, end in zip(islice(begins, 1, None), ends, strict=False) if begin > end]
    return ends[-1] - begins[0] - sum(gaps)


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
