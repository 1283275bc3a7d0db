"""What the user's OTEL_* variables ask for, the ones included that the SDK leaves to its callers.

On is only what somebody asked for: an exporter by name, or an OTLP endpoint. Source: OpenTelemetry specification 1.44,
environment variables; OTLP exporter configuration. Endpoint, headers, compression, timeout and certificates are read by
the SDK's exporters themselves. Standard library only: the agent loads it always.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import unquote

from .secrets import without_secrets

SIGNALS: Final = ("metrics", "traces")
HTTP, GRPC = "http/protobuf", "grpc"
EXPORTERS: Final = {"metrics": ("otlp", "console", "prometheus"), "traces": ("otlp", "console")}
EXPORT_MS: Final = 60_000
"""Between two exports of metrics: the specification's default."""
SPANS_MS: Final = 5_000
LEAST_S: Final = 0.01
"""No interval is shorter: one of 0 would be a loop that never rests."""
PULL_HOST, PULL_PORT = "localhost", 9464
ONE_STEP_IN: Final = 20
"""Steps that become spans where OTEL_TRACES_SAMPLER is not set."""
SERVICE: Final = "rankscope"
_PARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2}).*")
_MOST: Final = 1 << 64
_MOST_PORT: Final = 65_535
_TEMPORALITIES: Final = ("", "cumulative", "delta", "lowmemory")


class Parent(NamedTuple):
    """TRACEPARENT: the span that started the job."""

    trace_id: int
    span_id: int
    flags: int


@dataclass(frozen=True, slots=True)
class Sampler:
    """Which steps become spans: every one_step_in-th, or (ratio not None) the share of traces by their ids."""

    one_step_in: int = ONE_STEP_IN
    ratio: float | None = None

    def takes(self, step: int, trace_id: int) -> bool:
        """Whether the step of this trace does: the same answer on every rank. As TraceIdRatioBased decides."""
        if self.ratio is None:
            return step % self.one_step_in == 0
        return trace_id % _MOST < round(self.ratio * _MOST)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to export. problems: one line each, for what was asked and cannot be had. Times in seconds."""

    metrics: frozenset[str] = frozenset()
    traces: frozenset[str] = frozenset()
    protocols: Mapping[str, str] = field(default_factory=dict)
    is_delta: bool = False
    export_s: float = EXPORT_MS / 1e3
    spans_s: float = SPANS_MS / 1e3
    sampler: Sampler = Sampler()
    service: str = ""
    resource: Mapping[str, str] = field(default_factory=dict)
    parent: Parent | None = None
    pull_host: str = PULL_HOST
    pull_port: int = PULL_PORT
    problems: tuple[str, ...] = ()

    @property
    def is_anything(self) -> bool:
        """Whether there is anything to do or to say."""
        return bool(self.metrics or self.traces or self.problems)


def wanted(environment: Mapping[str, str]) -> Wanted:
    """What the environment asks for. Never raises: a wrong value becomes a problem, and the rest goes on."""
    if _text(environment, "OTEL_SDK_DISABLED").lower() == "true":
        return Wanted()
    problems: list[str] = []
    exporters = {signal: _exporters(environment, signal, problems) for signal in SIGNALS}
    protocols = {signal: _protocol(environment, signal, problems) for signal in SIGNALS if "otlp" in exporters[signal]}
    for signal in SIGNALS:
        if signal in protocols and not protocols[signal]:
            exporters[signal] -= {"otlp"}
    if not any(exporters.values()) and not problems:
        return Wanted()
    resource = _pairs(_text(environment, "OTEL_RESOURCE_ATTRIBUTES"))
    return Wanted(
        frozenset(exporters["metrics"]), frozenset(exporters["traces"]), protocols,
        _is_delta(environment, problems),
        max(LEAST_S, _number(environment, "OTEL_METRIC_EXPORT_INTERVAL", EXPORT_MS, problems) / 1e3),
        max(LEAST_S, _number(environment, "OTEL_BSP_SCHEDULE_DELAY", SPANS_MS, problems) / 1e3),
        _sampler(environment, problems), _service(environment, resource), resource,
        parent_of(_text(environment, "TRACEPARENT")),
        _text(environment, "OTEL_EXPORTER_PROMETHEUS_HOST") or PULL_HOST,
        _port(environment, problems), tuple(problems),
    )  # fmt: skip


def parent_of(text: str) -> Parent | None:
    """The span that a `traceparent` names (W3C trace context); None for none, and for what is none."""
    match = _PARENT.fullmatch(text.strip().lower())
    if match is None or match[0].startswith("ff") or not int(match[1], 16) or not int(match[2], 16):
        return None
    return Parent(int(match[1], 16), int(match[2], 16), int(match[3], 16))


def endpoint(environment: Mapping[str, str], signal: str, protocol: str) -> str:
    """Where the SDK's exporter of a signal sends to: for messages only."""
    own = _text(environment, f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    base = _text(environment, "OTEL_EXPORTER_OTLP_ENDPOINT")
    if protocol == GRPC:
        return without_secrets(own or base or "http://localhost:4317")
    return without_secrets(own or f"{(base or 'http://localhost:4318').rstrip('/')}/v1/{signal}")


def protocol_of(environment: Mapping[str, str], signal: str) -> str:
    """The protocol as the variables give it."""
    return (_text(environment, f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL")
            or _text(environment, "OTEL_EXPORTER_OTLP_PROTOCOL") or HTTP)  # fmt: skip


def _exporters(environment: Mapping[str, str], signal: str, problems: list[str]) -> set[str]:
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    text = _text(environment, variable)
    if not text:
        asked = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
        return {"otlp"} if any(_text(environment, name) for name in asked) else set()
    names = {name.strip().lower() for name in text.split(",") if name.strip()} - {"none"}
    known = set(EXPORTERS[signal])
    choices = ", ".join(EXPORTERS[signal])
    problems += [f"{variable}={name}: rankscope exports {signal} to {choices} or none" for name in names - known]
    return names & known


def _protocol(environment: Mapping[str, str], signal: str, problems: list[str]) -> str:
    """ "" where it is one that does not exist."""
    protocol = protocol_of(environment, signal)
    if protocol in (HTTP, GRPC):
        return protocol
    problems.append(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}: use {HTTP} or {GRPC}; no {signal} are exported")
    return ""


def _is_delta(environment: Mapping[str, str], problems: list[str]) -> bool:
    """lowmemory is taken as delta, which it is for what is counted here."""
    name = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
    asked = _text(environment, name).lower()
    if asked not in _TEMPORALITIES:
        problems.append(f"{name}={asked}: use cumulative, delta or lowmemory; cumulative is used")
    return asked in ("delta", "lowmemory")


def _sampler(environment: Mapping[str, str], problems: list[str]) -> Sampler:
    name = _text(environment, "OTEL_TRACES_SAMPLER").lower().removeprefix("parentbased_")
    if not name:
        return Sampler()
    if name in ("always_on", "always_off"):
        return Sampler(1) if name == "always_on" else Sampler(ratio=0.0)
    if name == "traceidratio":
        ratio = _number(environment, "OTEL_TRACES_SAMPLER_ARG", 1.0, problems)
        return Sampler(ratio=min(1.0, ratio))
    problems.append(f"OTEL_TRACES_SAMPLER={name}: use always_on, always_off or traceidratio; 1 step in {ONE_STEP_IN}")
    return Sampler()


def _service(environment: Mapping[str, str], resource: Mapping[str, str]) -> str:
    return _text(environment, "OTEL_SERVICE_NAME") or resource.get("service.name", "") or SERVICE


def _pairs(text: str) -> dict[str, str]:
    """key=value,key=value, percent-encoded; what is not of this form is left out, as the specification wants."""
    pairs = (item.partition("=") for item in text.split(","))
    return {key.strip(): unquote(value.strip()) for key, sign, value in pairs if sign and key.strip()}


def _number(environment: Mapping[str, str], name: str, default: float, problems: list[str]) -> float:
    text = _text(environment, name)
    try:
        number = float(text) if text else default
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        problems.append(f"{name}={text}: not a number of at least 0; {default:g} is used")
        return default
    return number


def _port(environment: Mapping[str, str], problems: list[str]) -> int:
    name = "OTEL_EXPORTER_PROMETHEUS_PORT"
    text = _text(environment, name)
    if not text or (text.isdecimal() and int(text) <= _MOST_PORT):
        return int(text or PULL_PORT)
    problems.append(f"{name}={text}: not a port from 0 to {_MOST_PORT}; {PULL_PORT} is used")
    return PULL_PORT


def _text(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name, "").strip()
