"""An incident as a span of a trace of its own: from when it began to when it was judged, with an error status."""

from ..watchdog import Incident
from . import ids
from .span import Span, Values
from .wall import WallClock


def incident_span(incident: Incident, clock: WallClock) -> Span:
    """The span. clock: of this host."""
    proc = incident.procs[0] if incident.procs else 0
    key = f"incident.{incident.kind}.{incident.incarnation}.{incident.group}"
    trace_id = ids.row_id(incident.run.run_id, f"{key}.trace", proc, incident.since_ns)
    values: Values = (
        ("training.run.id", incident.run.run_id), ("training.incident.kind", incident.kind),
        ("training.ranks", list(incident.ranks)), ("training.incident.text", incident.text),
    )  # fmt: skip
    if incident.ranks:
        values = (("training.rank", incident.ranks[0]), *values)
    if incident.op:
        values += (("training.collective.operation", incident.op), ("training.group.id", incident.group),
                   ("training.collective.seq", incident.seq))  # fmt: skip
    span_id = ids.row_id(incident.run.run_id, key, proc, incident.since_ns)
    start_ns, end_ns = clock.wall_ns(incident.since_ns), clock.wall_ns(incident.time_ns)
    return Span("training.incident", trace_id, span_id, 0, start_ns, end_ns, values, (), incident.text)
