"""A span as we have it before any SDK: plain data, and how the rows of a step become spans.

One trace per step over all ranks. Its root, `training.step`, is the lowest rank's; each rank's own `training.rank.step`
hangs below it, and the rank's phases, operations and other spans below that. Times are ns since 1970, to the ns.
"""

from typing import Any, Final, NamedTuple

from . import ids
from .wanted import Parent

Values = tuple[tuple[str, Any], ...]
MAX_NAME: Final = 200
OUTSIDE: Final = -1
"""In the place of a step: what belongs to none."""


class Link(NamedTuple):
    """Another span. attributes: what it is to this one."""

    trace_id: int
    span_id: int
    attributes: Values = ()


class Span(NamedTuple):
    """One span. parent_id 0: a root. error: its status, "" for none."""

    name: str
    trace_id: int
    span_id: int
    parent_id: int
    start_ns: int
    end_ns: int
    attributes: Values
    links: tuple[Link, ...] = ()
    error: str = ""


class StepKey(NamedTuple):
    """A step of a run."""

    run_id: str
    incarnation: int
    step: int

    @property
    def trace_id(self) -> int:
        """See `ids`."""
        return ids.trace_id(*self)

    @property
    def root_id(self) -> int:
        """See `ids`."""
        return ids.root_id(*self)


def root_span(key: StepKey, start_ns: int, end_ns: int, attributes: Values, parent: Parent | None) -> Span:
    """The root of a step's trace. parent: what started the job, linked to."""
    links = (Link(parent.trace_id, parent.span_id),) if parent else ()
    own = (("training.run.id", key.run_id), ("training.step", key.step), ("training.incarnation", key.incarnation))
    return Span("training.step", key.trace_id, key.root_id, 0, start_ns, end_ns, own + attributes, links)


def rank_span(key: StepKey, rank: int, start_ns: int, end_ns: int, attributes: Values) -> Span:
    """One rank's step."""
    own = (("training.rank", rank), ("training.run.id", key.run_id), ("training.step", key.step))
    return Span("training.rank.step", key.trace_id, ids.step_id(*key, rank), key.root_id, start_ns, end_ns,
                own + attributes)  # fmt: skip


def child_span(
    key: StepKey, rank: int, span_id: int, name: str, start_ns: int, end_ns: int, attributes: Values,
    links: tuple[Link, ...] = (),
) -> Span:  # fmt: skip
    """Something that a rank did in a step."""
    own = (("training.rank", rank), ("training.run.id", key.run_id), ("training.step", key.step))
    return Span(name, key.trace_id, span_id, ids.step_id(*key, rank), start_ns, end_ns, own + attributes, links)


def phase_name(kind: str | None, name: str | None) -> str:
    """A row of table span: by its kind, and what the job named itself by that name."""
    return name[:MAX_NAME] if name and kind in (None, "user") else f"training.{kind or 'other'}"


def phase_values(kind: str | None, name: str | None) -> Values:
    """Its attributes."""
    told: Values = (("training.phase", kind or "other"),)
    return told + ((("training.span.name", name[:MAX_NAME]),) if name else ())
