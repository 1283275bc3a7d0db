"""The rows of a finished or imported run as spans: one trace per step over all ranks, with the times of then.

Ids are hashes of what a row is, so sending something twice gives the same spans, and an export can go on where it was
broken off. Operations are linked to the same operation on the other ranks; in large groups all to the lowest rank's,
and that one to the first MAX_LINKS.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from . import ids
from .span import (
    MAX_NAME,
    OUTSIDE,
    Link,
    Span,
    StepKey,
    Values,
    child_span,
    phase_name,
    phase_values,
    rank_span,
    root_span,
)

ALL_TO_ALL: Final = 16
"""Up to so many ranks, an operation is linked to that of every other rank."""
MAX_TEXT: Final = 1_000
"""Characters of a kernel's name that are sent: those of templates have thousands."""
MAX_LINKS: Final = 128
"""Links of one span: the specification's default limit."""


class Place(NamedTuple):
    """What a row belongs to. rank: -1 where its process never had one."""

    incarnation: int
    step: int
    rank: int
    proc: int


class Item(NamedTuple):
    """Something that took time, ns since 1970. end_ns None: it was not seen to end."""

    place: Place
    start_ns: int
    end_ns: int | None


class StepItem(NamedTuple):
    """A row of step. is_whole False: made from what was done in it, since the step has no row on that rank."""

    item: Item
    global_step: int | None = None
    left_out: str | None = None
    is_whole: bool = True


class PhaseItem(NamedTuple):
    """A row of span."""

    item: Item
    record: int
    kind: str | None
    name: str | None


class OperationItem(NamedTuple):
    """A row of collective. key: what is the same on all its ranks, None where that is not known."""

    item: Item
    record: int
    key: tuple[object, ...] | None
    op: str | None
    group_id: str | None
    group_kind: str | None
    seq: int | None
    src: int | None
    dst: int | None
    num_bytes: int | None
    dtype: str | None
    state: str | None


class KernelItem(NamedTuple):
    """A row of kernel."""

    item: Item
    record: int
    kernel_class: str | None
    name: str | None
    stream_id: int | None


class Window(NamedTuple):
    """All rows of some whole steps."""

    steps: list[StepItem]
    phases: list[PhaseItem]
    operations: list[OperationItem]
    kernels: list[KernelItem]


def window_spans(run_id: str, window: Window) -> Iterator[Span]:
    """The spans of a window, each step's root and ranks first."""
    steps: dict[StepKey, list[StepItem]] = defaultdict(list)
    for step in window.steps:
        steps[_key(run_id, step.item.place)].append(step)
    for key, ranks in steps.items():
        yield _root(key, ranks)
        for step in ranks:
            yield _rank(key, step)
    for phase in window.phases:
        yield _child(run_id, phase.item, "span", phase.record, phase_name(phase.kind, phase.name),
                     phase_values(phase.kind, phase.name))  # fmt: skip
    for kernel in window.kernels:
        yield _child(run_id, kernel.item, "kernel", kernel.record, (kernel.name or "kernel")[:MAX_NAME],
                     _told({"training.kernel.class": kernel.kernel_class, "training.kernel.stream": kernel.stream_id,
                            "training.kernel.name": kernel.name and kernel.name[:MAX_TEXT]}))  # fmt: skip
    yield from _operations(run_id, window.operations)


def missing_steps(steps: Iterable[StepItem], items: Iterable[Item]) -> list[StepItem]:
    """A step for each rank that did something in one without ending it, from the first to the last moment known."""
    known = {(*step.item.place[:3],) for step in steps}
    spans: dict[Place, list[int]] = {}
    for item in items:
        if item.place[:3] not in known:
            times = spans.setdefault(item.place, [item.start_ns, item.start_ns])
            times[0], times[1] = min(times[0], item.start_ns), max(times[1], item.end_ns or item.start_ns)
    return [StepItem(Item(place, start, end), is_whole=False) for place, (start, end) in spans.items()]


def _key(run_id: str, place: Place) -> StepKey:
    return StepKey(run_id, place.incarnation, place.step)


def _root(key: StepKey, ranks: list[StepItem]) -> Span:
    start = min(step.item.start_ns for step in ranks)
    end = max(step.item.end_ns or step.item.start_ns for step in ranks)
    told = _told({"training.num_ranks": len(ranks), "training.global_step": ranks[0].global_step})
    span = root_span(key, start, end, told, None)
    return span._replace(name="training.outside_steps") if key.step == OUTSIDE else span


def _rank(key: StepKey, step: StepItem) -> Span:
    item = step.item
    told = _told({"training.global_step": step.global_step, "training.left_out": step.left_out,
                  "training.step.is_complete": None if step.is_whole else False})  # fmt: skip
    span = rank_span(key, item.place.rank, item.start_ns, item.end_ns or item.start_ns, told)
    return span._replace(name="training.rank.outside_steps") if key.step == OUTSIDE else span


def _child(run_id: str, item: Item, table: str, record: int, name: str, values: Values) -> Span:
    span_id = ids.row_id(run_id, table, item.place.proc, record)
    end = item.end_ns if item.end_ns is not None else item.start_ns
    return child_span(_key(run_id, item.place), item.place.rank, span_id, name, item.start_ns, end, values)


def _operations(run_id: str, operations: list[OperationItem]) -> Iterator[Span]:
    peers: dict[tuple[object, ...], list[tuple[int, int, int]]] = defaultdict(list)
    for operation in operations:
        if operation.key is not None:
            place = operation.item.place
            peers[(place.incarnation, *operation.key)].append(
                (place.rank, _operation_id(run_id, operation), _key(run_id, place).trace_id)
            )
    for found in peers.values():
        found.sort()
    for operation in operations:
        same = peers[(operation.item.place.incarnation, *operation.key)] if operation.key is not None else []
        yield _operation(run_id, operation, same)


def _operation(run_id: str, operation: OperationItem, same: list[tuple[int, int, int]]) -> Span:
    values = _told({
        "training.collective.operation": operation.op, "training.group": operation.group_kind,
        "training.group.id": operation.group_id, "training.collective.seq": operation.seq,
        "training.collective.source": operation.src, "training.collective.destination": operation.dst,
        "training.collective.bytes": operation.num_bytes, "training.collective.dtype": operation.dtype,
        "training.collective.state": operation.state,
    })  # fmt: skip
    name = f"training.collective.{operation.op or 'other'}"
    span = _child(run_id, operation.item, "collective", operation.record, name, values)
    error = "" if operation.item.end_ns is not None else "not seen to complete"
    return span._replace(links=_links(span.span_id, same), error="failed" if operation.state == "failed" else error)


def _links(own: int, same: list[tuple[int, int, int]]) -> tuple[Link, ...]:
    """same: (rank, span, trace) of the operation on all ranks, own included, by rank."""
    others = [peer for peer in same if peer[1] != own]
    if len(same) > ALL_TO_ALL and same[0][1] != own:
        others = same[:1]
    return tuple(Link(trace, span, (("training.rank", rank),)) for rank, span, trace in others[:MAX_LINKS])


def _operation_id(run_id: str, operation: OperationItem) -> int:
    return ids.row_id(run_id, "collective", operation.item.place.proc, operation.record)


def _told(values: Mapping[str, str | int | None]) -> Values:
    return tuple((key, value) for key, value in values.items() if value is not None)
