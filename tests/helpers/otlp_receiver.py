"""A small OTLP/HTTP collector for tests: keeps what it gets, decoded by opentelemetry-proto, and can misbehave.

Runs everywhere, so that what matters never has to be skipped; `rotel` beside it is the collector that others wrote.
"""

import gzip
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

Attributes = dict[str, Any]


@dataclass(frozen=True)
class MetricPoint:
    """One point. value: a number, or (count, sum, bucket counts, bounds)."""

    name: str
    unit: str
    kind: str
    attributes: Attributes
    resource: Attributes
    value: Any
    start_ns: int
    time_ns: int


@dataclass(frozen=True)
class SpanGot:
    """One span, ids as hexadecimal text."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: Attributes
    resource: Attributes
    links: list[tuple[str, str, Attributes]]
    status: int


@dataclass
class Receiver:
    """What came. mode: answer, refuse (503), redirect (308), page (a web page), reject (3 of each request), or
    hang.
    """

    mode: str = "answer"
    metric_requests: list[tuple[float, list[MetricPoint]]] = field(default_factory=list)
    span_requests: list[list[SpanGot]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    num_refused: int = 0
    port: int = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def spans(self) -> list[SpanGot]:
        return [span for request in self.span_requests for span in request]

    def last(self, name: str, **attributes: Any) -> list[MetricPoint]:
        """The last point of each series of a metric that has these attributes (dots written as __)."""
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        found: dict[tuple[Any, ...], MetricPoint] = {}
        for _, points in self.metric_requests:
            for point in points:
                if point.name == name and all(point.attributes.get(key) == value for key, value in wanted.items()):
                    key = (point.resource.get("service.instance.id"), *sorted(point.attributes.items()))
                    found[key] = point
        return list(found.values())

    def take(self, path: str, body: bytes) -> None:
        if path.endswith("/v1/metrics"):
            self.metric_requests.append((time.time(), list(metric_points(body))))
        elif path.endswith("/v1/traces"):
            self.span_requests.append(list(spans(body)))


class Running:
    """A receiver at work: `with Running() as receiver`."""

    def __init__(self, mode: str = "answer") -> None:
        self.receiver = Receiver(mode)
        self._over = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self.receiver, self._over))
        self._server.daemon_threads = True
        self.receiver.port = self._server.server_address[1]

    def __enter__(self) -> Receiver:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self.receiver

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()


def _handler(receiver: Receiver, over: threading.Event) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if receiver.mode == "hang":
                over.wait(60)
                return
            if receiver.mode == "refuse":
                receiver.num_refused += 1
                self.send_response(503)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if receiver.mode in ("redirect", "page"):
                self.send_response(308 if receiver.mode == "redirect" else 200)
                self.send_header("Location", "https://127.0.0.1/")
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            receiver.headers.append(dict(self.headers.items()))
            receiver.take(
                self.path.partition("?")[0],
                gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body,
            )
            answer = b""
            if receiver.mode == "reject":
                answer = ExportTraceServiceResponse(
                    partial_success=ExportTracePartialSuccess(rejected_spans=3, error_message="too old")
                ).SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            return

    return Handler


def metric_points(body: bytes) -> Iterator[MetricPoint]:
    """The points of a request."""
    request: Any = ExportMetricsServiceRequest.FromString(body)
    for of_resource in request.resource_metrics:
        resource = plain(of_resource.resource.attributes)
        for metric in (metric for scope in of_resource.scope_metrics for metric in scope.metrics):
            kind = metric.WhichOneof("data")
            data = getattr(metric, kind)
            label = kind
            if kind == "sum":
                label = "counter" if data.is_monotonic else "updown"
            for point in data.data_points:
                value = (
                    (point.count, point.sum, list(point.bucket_counts), list(point.explicit_bounds))
                    if kind == "histogram" else getattr(point, point.WhichOneof("value"))
                )  # fmt: skip
                yield MetricPoint(metric.name, metric.unit, label, plain(point.attributes), resource, value,
                                  point.start_time_unix_nano, point.time_unix_nano)  # fmt: skip


def spans(body: bytes) -> Iterator[SpanGot]:
    """The spans of a request."""
    request: Any = ExportTraceServiceRequest.FromString(body)
    for of_resource in request.resource_spans:
        resource = plain(of_resource.resource.attributes)
        for span in (span for scope in of_resource.scope_spans for span in scope.spans):
            yield SpanGot(
                span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(),
                span.start_time_unix_nano, span.end_time_unix_nano, plain(span.attributes), resource,
                [(link.trace_id.hex(), link.span_id.hex(), plain(link.attributes)) for link in span.links],
                span.status.code,
            )  # fmt: skip


def plain(attributes: Any) -> Attributes:
    """Attributes as a dict."""
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in attributes}
