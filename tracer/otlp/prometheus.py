"""The pull endpoint: the same values in Prometheus's text format, for who scrapes rather than receives.

Off unless OTEL_METRICS_EXPORTER names `prometheus`; on localhost:9464 unless OTEL_EXPORTER_PROMETHEUS_HOST and _PORT
say otherwise. Names are translated as the OpenTelemetry specification has it (prometheus_and_openmetrics): units
become suffixes, counters end in `_total`, ratios of gauges in `_ratio`. Resource attributes stand in `target_info`;
rank and run are labels of every series.
"""

import logging
import socket
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from .instruments import Instrument
from .meter import Snapshot
from .series import Attributes, HistogramValue, Point

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PATH: Final = "/metrics"
_log = logging.getLogger(__name__)
_UNITS: Final = {
    "s": "seconds", "By": "bytes", "By/s": "bytes_per_second", "W": "watts", "J": "joules", "Cel": "celsius",
    "Hz": "hertz",
}  # fmt: skip
_TYPES: Final = {"counter": "counter", "updown": "gauge", "gauge": "gauge", "histogram": "histogram"}


class PullEndpoint:
    """Answers GET /metrics. read: gives the values; called in the server's threads. Raises OSError (port taken)."""

    def __init__(self, host: str, port: int, read: Callable[[], Snapshot]) -> None:
        self._server = _Server((host, port), _handler(read))
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.2},
                                        name="rankscope-otlp-pull", daemon=True)  # fmt: skip

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """No more answers; waits for the accept loop only."""
        self._server.shutdown()
        self._server.server_close()


def prometheus_name(instrument: Instrument) -> str:
    """The name under which Prometheus stores a metric, without the suffixes of a histogram's series."""
    name = instrument.name.replace(".", "_")
    unit = _UNITS.get(instrument.unit, "")
    if instrument.unit == "1" and instrument.kind == "gauge":
        unit = "ratio"
    if unit and not name.endswith(unit):
        name += f"_{unit}"
    return name + "_total" if instrument.kind == "counter" else name


def exposition(snapshot: Snapshot) -> str:
    """A snapshot in the text format 0.0.4."""
    found: dict[Instrument, list[Point]] = defaultdict(list)
    for run in snapshot.runs:
        for point in run.points:
            found[point.instrument].append(point)
    lines = ["# HELP target_info What the series are about.", "# TYPE target_info gauge"]
    lines += [_line("target_info", _labels(run.resource.items()), 1) for run in snapshot.runs]
    for instrument, points in found.items():
        name = prometheus_name(instrument)
        lines += [f"# HELP {name} {instrument.doc}", f"# TYPE {name} {_TYPES[instrument.kind]}"]
        for point in points:
            lines += _point_lines(name, point)
    return "\n".join(lines) + "\n"


def _point_lines(name: str, point: Point) -> Iterable[str]:
    labels = _labels(point.attributes)
    value = point.value
    if not isinstance(value, HistogramValue):
        return [_line(name, labels, value)]
    lines, running = [], 0
    for bound, count in zip((*point.instrument.bounds, None), value.counts, strict=True):
        running += count
        edge = "+Inf" if bound is None else _number(bound)
        lines.append(_line(f"{name}_bucket", [*labels, f'le="{edge}"'], running))
    return [*lines, _line(f"{name}_sum", labels, value.total), _line(f"{name}_count", labels, value.num)]


def _labels(attributes: Attributes | Iterable[tuple[str, Any]]) -> list[str]:
    """Keys that become the same label share it, as the specification has it: twice the same breaks the whole scrape."""
    found: dict[str, str] = {}
    for key, value in attributes:
        label, text = _label(key), _escaped(value)
        found[label] = f"{found[label]};{text}" if label in found else text
    return [f'{label}="{text}"' for label, text in found.items()]


def _label(key: str) -> str:
    name = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in key)
    return f"key_{name}" if name[:1].isdigit() else name


def _escaped(value: Any) -> str:
    return str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _line(name: str, labels: Iterable[str], value: int | float) -> str:
    text = ",".join(labels)
    return f"{name}{{{text}}} {_number(value)}" if text else f"{name} {_number(value)}"


def _number(value: int | float) -> str:
    if isinstance(value, float) and value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """One line and no traceback in the agent's log; none at all where who asked has gone."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            _log.warning("otlp: a scrape failed: %s: %s", type(error).__name__, error)


def _handler(read: Callable[[], Snapshot]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0  # of a client that connects and says nothing
        server_version, sys_version = "rankscope", ""

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != PATH:
                self.send_error(404)
                return
            body = exposition(read()).encode(errors="replace")  # what is no UTF-8 must not cost the whole scrape
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            return

    return Handler
