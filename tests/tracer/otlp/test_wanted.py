"""The user's variables: what is on, with which protocol, and what is said about values that make no sense."""

import pytest

from rankscope.tracer.otlp.wanted import GRPC, HTTP, Parent, Sampler, endpoint, wanted

COLLECTOR = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318/base"}


def test_nobody_asked() -> None:
    assert not wanted({}).is_anything
    assert not wanted({"OTEL_SERVICE_NAME": "x", "OTEL_RESOURCE_ATTRIBUTES": "a=b"}).is_anything
    assert not wanted({**COLLECTOR, "OTEL_SDK_DISABLED": "true"}).is_anything
    assert not wanted({**COLLECTOR, "OTEL_METRICS_EXPORTER": "none", "OTEL_TRACES_EXPORTER": "none"}).is_anything


def test_an_endpoint_asks_for_its_signals() -> None:
    both = wanted(COLLECTOR)
    assert both.metrics == both.traces == {"otlp"}
    assert both.protocols == {"metrics": HTTP, "traces": HTTP}
    only = wanted({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t:1"})
    assert not only.metrics and only.traces == {"otlp"}
    assert wanted({**COLLECTOR, "OTEL_METRICS_EXPORTER": "none"}).metrics == frozenset()


def test_exporters_by_name() -> None:
    found = wanted({"OTEL_METRICS_EXPORTER": "otlp, prometheus", "OTEL_TRACES_EXPORTER": "console"})
    assert found.metrics == {"otlp", "prometheus"} and found.traces == {"console"} and not found.problems
    wrong = wanted({"OTEL_TRACES_EXPORTER": "zipkin"})
    assert wrong.traces == frozenset() and "OTEL_TRACES_EXPORTER=zipkin" in wrong.problems[0]


def test_protocols() -> None:
    found = wanted({**COLLECTOR, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": HTTP})
    assert found.protocols == {"metrics": GRPC, "traces": HTTP}
    wrong = wanted({**COLLECTOR, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"})
    assert wrong.metrics == wrong.traces == frozenset()
    assert len(wrong.problems) == 2 and "http/json" in wrong.problems[0]


def test_where_it_goes_without_secrets() -> None:
    assert endpoint(COLLECTOR, "traces", HTTP) == "http://collector:4318/base/v1/traces"
    own = {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "https://me:secret@host/x?key=1"}
    assert endpoint(own, "metrics", HTTP) == "https://host/x"
    assert endpoint({}, "metrics", GRPC) == "http://localhost:4317"


def test_identity_and_parent() -> None:
    found = wanted({
        **COLLECTOR, "OTEL_RESOURCE_ATTRIBUTES": "service.name=a, team=x%2Cy,broken", "TRACEPARENT":
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    })  # fmt: skip
    assert found.service == "a" and found.resource == {"service.name": "a", "team": "x,y"}
    assert found.parent == Parent(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, 1)
    assert wanted({**COLLECTOR, "OTEL_SERVICE_NAME": "b"}).service == "b"
    never = "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for text in ("", "nonsense", "00-" + "0" * 32 + "-b7ad6b7169203331-01", never):
        assert wanted({**COLLECTOR, "TRACEPARENT": text}).parent is None


def test_numbers() -> None:
    found = wanted({**COLLECTOR, "OTEL_METRIC_EXPORT_INTERVAL": "1500", "OTEL_BSP_SCHEDULE_DELAY": "200"})
    assert (found.export_s, found.spans_s) == (1.5, 0.2)
    wrong = wanted({**COLLECTOR, "OTEL_METRIC_EXPORT_INTERVAL": "soon"})
    assert wrong.export_s == 60 and wrong.problems == (
        "OTEL_METRIC_EXPORT_INTERVAL=soon: not a number of at least 0; 60000 is used",
    )


@pytest.mark.parametrize(
    ("text", "is_delta", "num_problems"),
    [("", False, 0), ("cumulative", False, 0), ("DELTA", True, 0), ("lowmemory", True, 0), ("deltas", False, 1)],
)
def test_temporality(text: str, is_delta: bool, num_problems: int) -> None:
    found = wanted({**COLLECTOR, "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": text})
    assert (found.is_delta, len(found.problems)) == (is_delta, num_problems)


@pytest.mark.parametrize(("text", "port"), [("", 9464), ("0", 0), ("65535", 65535), ("65536", None), ("-1", None)])
def test_ports(text: str, port: int | None) -> None:
    found = wanted({**COLLECTOR, "OTEL_EXPORTER_PROMETHEUS_PORT": text})
    assert found.pull_port == (9464 if port is None else port)
    assert (found.problems != ()) == (port is None)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, {0, 20, 40}),
        ({"OTEL_TRACES_SAMPLER": "always_on"}, set(range(60))),
        ({"OTEL_TRACES_SAMPLER": "parentbased_always_off"}, set()),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "1"}, set(range(60))),
        ({"OTEL_TRACES_SAMPLER": "jaeger_remote"}, {0, 20, 40}),
    ],
)
def test_which_steps_become_spans(variables: dict[str, str], expected: set[int]) -> None:
    found = wanted({**COLLECTOR, **variables})
    assert {step for step in range(60) if found.sampler.takes(step, step * 7919)} == expected
    assert bool(found.problems) == ("jaeger" in str(variables))


def test_a_ratio_takes_its_share_by_the_trace_id() -> None:
    sampler = Sampler(ratio=0.25)
    ids = [number * (2**64 // 1000) for number in range(1000)]
    assert 240 <= sum(sampler.takes(0, trace_id) for trace_id in ids) <= 260
