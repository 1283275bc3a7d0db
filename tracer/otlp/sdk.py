"""Our values and spans as the SDK's own data, and the SDK's exporters: the only file that imports OpenTelemetry.

Built by hand and given straight to an exporter: no provider, no global, no processor, no thread of the SDK's. Points of
the past and spans of the past keep their times. opentelemetry-sdk 1.25 or later.
"""

import logging
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from .instruments import Instrument
from .meter import Snapshot
from .reasons import REJECTED
from .resources import SCHEMA_URL
from .series import HistogramValue, Point
from .span import Span
from .wanted import GRPC

_rejected = logging.getLogger(REJECTED)
Sent = tuple[Mapping[str, Any], Span]


_Exporter = TypeVar("_Exporter")


class Export(Protocol):
    """Sends what it was made for. True: it arrived."""

    def __call__(self, data: Any, /) -> bool: ...


def metrics_export(kind: str, protocol: str, is_delta: bool, ready: Callable[[], None]) -> Export:
    """For `Snapshot`s. kind: otlp or console. Raises ImportError where the protocol's package is missing.

    ready: called between the imports and the making of an exporter.
    """
    exporter = _metric_exporter(kind, protocol, ready)
    temporality = AggregationTemporality.DELTA if is_delta else AggregationTemporality.CUMULATIVE

    def export(snapshot: Snapshot) -> bool:
        return exporter.export(metrics_data(snapshot, temporality)) is MetricExportResult.SUCCESS

    return export


def spans_export(kind: str, protocol: str, endpoint: str, ready: Callable[[], None]) -> Export:
    """For lists of spans, each with its resource. endpoint: "" as the variables say. ready: as for metrics."""
    exporter = _span_exporter(kind, protocol, endpoint, ready)

    def export(spans: Sequence[Sent]) -> bool:
        return exporter.export(readable_spans(spans)) is SpanExportResult.SUCCESS

    return export


def metrics_data(snapshot: Snapshot, temporality: AggregationTemporality) -> MetricsData:
    """A snapshot as the SDK has it."""
    return MetricsData([
        ResourceMetrics(
            Resource(dict(run.resource), SCHEMA_URL),
            [ScopeMetrics(_scope(), _metrics(run.points, snapshot.time_ns, temporality), SCHEMA_URL)],
            SCHEMA_URL,
        )
        for run in snapshot.runs
    ])  # fmt: skip


def readable_spans(spans: Iterable[Sent]) -> list[ReadableSpan]:
    """Spans as the SDK has them."""
    scope = _scope()
    resources: dict[int, Resource] = {}
    made = []
    for resource, span in spans:
        held = resources.get(id(resource))
        if held is None:
            held = resources[id(resource)] = Resource(dict(resource), SCHEMA_URL)
        made.append(ReadableSpan(
            span.name, _context(span.trace_id, span.span_id),
            _context(span.trace_id, span.parent_id) if span.parent_id else None, held, dict(span.attributes),
            links=[Link(_context(link.trace_id, link.span_id), dict(link.attributes)) for link in span.links],
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(), start_time=span.start_ns,
            end_time=span.end_ns, instrumentation_scope=scope,
        ))  # fmt: skip
    return made


def _metric_exporter(kind: str, protocol: str, ready: Callable[[], None]) -> MetricExporter:
    if kind == "console":
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter

        ready()
        return ConsoleMetricExporter(out=sys.stdout)
    if protocol == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter

        ready()
        return GrpcExporter(compression=_grpc_compression("METRICS"))
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    ready()
    return _strict(OTLPMetricExporter())


def _span_exporter(kind: str, protocol: str, endpoint: str, ready: Callable[[], None]) -> SpanExporter:
    if kind == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        ready()
        return ConsoleSpanExporter(out=sys.stdout)
    if protocol == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

        ready()
        return GrpcExporter(endpoint=endpoint or None, compression=_grpc_compression("TRACES"))
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    ready()
    return _strict(OTLPSpanExporter(endpoint=endpoint or None))


def _strict(exporter: _Exporter) -> _Exporter:
    """The SDK (1.45) takes a redirect, which it does not follow, and a web page for success: nothing arrived there.

    Its session is private, and one of ours would switch off the user's credential provider; where none is found the SDK
    is left as it is.
    """
    held = getattr(exporter, "_client", exporter)
    session = getattr(getattr(held, "_transport", held), "_session", None)
    hooks = getattr(session, "hooks", None)
    if isinstance(hooks, dict):
        hooks.setdefault("response", []).append(_refuse_what_is_no_answer)
    return exporter


def _refuse_what_is_no_answer(response: Any, *_: Any, **__: Any) -> None:
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if 300 <= response.status_code < 400:
        response.close()
        raise OSError(f"the answer is a redirect ({response.status_code}), which is not followed")
    if response.status_code < 300 and kind == "text/html":
        response.close()
        raise OSError("the answer is a web page: this is no collector")
    if response.status_code < 300 and kind == "application/x-protobuf":
        _tell_what_was_rejected(response.content)


def _tell_what_was_rejected(answer: bytes) -> None:
    """OTLP's partial success, which the SDK (1.45) does not look at. Answers for metrics and spans have one form."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        told = ExportTraceServiceResponse.FromString(answer).partial_success
    except Exception:  # noqa: BLE001 (protobuf's: the answer is of another form)
        return
    if told.rejected_spans > 0:
        _rejected.warning("%d were rejected: %s", told.rejected_spans, told.error_message or "it does not say why")


def _grpc_compression(signal: str) -> Any:
    """None: as the SDK reads the variables; its gRPC exporters (1.45) refuse the specification's word `none`."""
    own, common = (f"OTEL_EXPORTER_OTLP_{signal}_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION")
    if (os.environ.get(own) or os.environ.get(common) or "").strip().lower() != "none":
        return None
    import grpc  # type: ignore[import-untyped, unused-ignore]

    return grpc.Compression.NoCompression


def _metrics(points: Iterable[Point], now_ns: int, temporality: AggregationTemporality) -> list[Metric]:
    by_instrument: dict[Instrument, list[Point]] = defaultdict(list)
    for point in points:
        by_instrument[point.instrument].append(point)
    return [Metric(instrument.name, instrument.doc, instrument.unit, _data(instrument, found, now_ns, temporality))
            for instrument, found in by_instrument.items()]  # fmt: skip


def _data(
    instrument: Instrument, points: list[Point], now_ns: int, temporality: AggregationTemporality
) -> Gauge | Sum | Histogram:
    if instrument.kind == "histogram":
        return Histogram([_histogram(point, now_ns) for point in points], temporality)
    numbers = [NumberDataPoint(dict(point.attributes), point.start_ns, now_ns, _number(point)) for point in points]
    if instrument.kind == "gauge":
        return Gauge(numbers)
    is_counter = instrument.kind == "counter"
    return Sum(numbers, temporality if is_counter else AggregationTemporality.CUMULATIVE, is_counter)


def _number(point: Point) -> int | float:
    assert not isinstance(point.value, HistogramValue)
    return point.value


def _histogram(point: Point, now_ns: int) -> HistogramDataPoint:
    value = point.value
    assert isinstance(value, HistogramValue)
    return HistogramDataPoint(
        dict(point.attributes), point.start_ns, now_ns, value.num, value.total, value.counts, point.instrument.bounds,
        value.least, value.most,
    )  # fmt: skip


def _scope() -> InstrumentationScope:
    from importlib.metadata import version

    return InstrumentationScope("rankscope", version("rankscope"), SCHEMA_URL)


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
