"""What a live job exports, as a collector that others wrote understood it, against the rows of the same run."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from otlp_receiver import MetricPoint, Receiver, Running
from rotel_collector import Rotel

from rankscope.analyzers.run import Run

pytestmark = [pytest.mark.system, pytest.mark.slow]

JOB = Path(__file__).parent / "jobs" / "exporting.py"
RANKS, STEPS = 4, 42
UNITS = {
    "training.steps": ("{step}", "counter"), "training.step.duration": ("s", "histogram"),
    "training.phase.duration": ("s", "histogram"), "training.collective.duration": ("s", "histogram"),
    "training.collective.io": ("By", "counter"), "training.collective.wait.time": ("s", "counter"),
    "training.collective.skew": ("s", "histogram"), "training.rank.lag": ("s", "gauge"),
    "training.samples": ("{sample}", "counter"), "training.tokens": ("{token}", "counter"),
    "training.loss": ("1", "gauge"), "training.restarts": ("{restart}", "counter"),
    "process.cpu.time": ("s", "counter"), "process.memory.usage": ("By", "updown"),
    "system.cpu.utilization": ("1", "gauge"), "system.memory.usage": ("By", "updown"),
    "system.network.io": ("By", "counter"),
}  # fmt: skip
BY_RANK = {name for name in UNITS if name.startswith(("training.", "process."))} - {"training.collective.skew"}


@pytest.fixture(params=["http/protobuf", "grpc"])
def exported(request: Any, torchrun: Any, tmp_path: Path) -> Iterator[tuple[Receiver, Run]]:
    with Running() as receiver, Rotel(receiver, tmp_path) as collector:
        env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint(request.param), "RANKSCOPE_AGENT": "now",
            "OTEL_EXPORTER_OTLP_PROTOCOL": request.param, "OTEL_METRIC_EXPORT_INTERVAL": "1000",
            "OTEL_SERVICE_NAME": "pretraining", "OTEL_RESOURCE_ATTRIBUTES": "team=vision,deployment.environment=a%20b",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip", "RANKSCOPE_JOB_ID": "job-7", "RANKSCOPE_SAMPLE_SECONDS": "0.5",
            "TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        }  # fmt: skip
        job = torchrun(JOB, RANKS, env=env).check()
        job.settle()
        assert job.stdout.count("loaded: []") == RANKS
        deadline = time.monotonic() + 20
        while len(steps_told(receiver)) < RANKS and time.monotonic() < deadline:  # the collector's own batching
            time.sleep(0.1)
        time.sleep(0.5)
        with Run.open(str(job.run_dir)) as run:
            yield receiver, run


def steps_told(receiver: Receiver) -> list[MetricPoint]:
    return [point for point in receiver.last("training.steps") if point.value == STEPS]


def test_metrics_and_spans_are_those_of_the_rows(exported: tuple[Receiver, Run]) -> None:
    receiver, run = exported
    check_names_and_units(receiver)
    check_one_instance(receiver, run)
    check_metrics(receiver, run)
    check_spans(receiver, run)


def check_names_and_units(receiver: Receiver) -> None:
    points = [point for _, request in receiver.metric_requests for point in request]
    found = {point.name: (point.unit, point.kind) for point in points}
    assert {name: found.get(name) for name in UNITS} == UNITS
    for name in BY_RANK:
        assert {point.attributes["training.rank"] for point in points if point.name == name} == set(range(RANKS)), name
    assert {key for point in points for key in point.attributes if "step" in key or "seq" in key} == set()
    groups = {point.attributes.get("training.group") for point in points} - {None}
    assert groups == {"world", "other"}
    assert max(len(request) for _, request in receiver.metric_requests) < 100 * RANKS


def check_one_instance(receiver: Receiver, run: Run) -> None:
    """Loader workers are forked from ranks, and none of them, nor any rank, exports."""
    points = [point for _, request in receiver.metric_requests for point in request]
    resources = {point.resource["service.instance.id"]: point.resource for point in points}
    assert len(resources) == 1
    (resource,) = resources.values()
    ((run_id,),) = run.rows("SELECT run_id FROM run")
    told = {"service.name": "pretraining", "team": "vision", "deployment.environment": "a b",
            "training.run.id": run_id, "training.job.id": "job-7", "training.world_size": RANKS,
            "telemetry.distro.name": "rankscope"}  # fmt: skip
    assert {key: resource.get(key) for key in told} == told
    assert {point.attributes["training.run.id"] for point in points} == {run_id}


def check_metrics(receiver: Receiver, run: Run) -> None:
    steps: dict[int, int] = dict(run.rows("SELECT rank, count(*) FROM step GROUP BY rank"))
    assert steps == dict.fromkeys(range(RANKS), STEPS)
    assert by_rank(receiver, "training.steps") == steps
    for column in ("samples", "tokens"):
        assert by_rank(receiver, f"training.{column}") == dict(
            run.rows(f"SELECT rank, sum({column})::BIGINT FROM step GROUP BY rank")
        )
    durations = run.rows("SELECT rank, count(*), sum(duration_ns) / 1e9 FROM counted_step GROUP BY rank")
    check_histogram(receiver, "training.step.duration", {(rank,): values for rank, *values in durations})
    phases = run.rows(
        "SELECT rank, kind, count(*), sum(end_ns - start_ns) / 1e9 FROM span "
        "WHERE kind IN ('data', 'forward', 'backward', 'optimizer') GROUP BY ALL"
    )
    check_histogram(receiver, "training.phase.duration", {key[:2]: key[2:] for key in phases}, "training.phase")
    operations = run.rows(
        "SELECT rank, op, if(g.size = 4, 'world', 'other'), count(*) FILTER (completed_ns > 0), "
        "sum(completed_ns - issued_ns) / 1e9, sum(bytes_in)::BIGINT, sum(wait_end_ns - wait_begin_ns) / 1e9 "
        "FROM collective JOIN (SELECT group_id, max(size) AS size FROM process_group GROUP BY ALL) g USING (group_id) "
        "GROUP BY ALL"
    )
    keys = ("training.collective.operation", "training.group")
    check_histogram(receiver, "training.collective.duration", {row[:3]: row[3:5] for row in operations}, *keys)
    assert by_rank(receiver, "training.collective.io", *keys) == {row[:3]: row[5] for row in operations}
    waits = {row[:3]: row[6] for row in operations if row[6] is not None}
    assert by_rank(receiver, "training.collective.wait.time", *keys) == pytest.approx(waits, abs=1e-6)
    assert len(waits) >= 2 * RANKS
    losses = run.rows("SELECT rank, arg_max(value, record) FROM metric WHERE name = 'loss' GROUP BY rank")
    assert by_rank(receiver, "training.loss") == pytest.approx(dict(losses))


def by_rank(receiver: Receiver, name: str, *keys: str) -> dict[Any, Any]:
    """The last values, by rank and the attributes `keys`."""
    return {
        (point.attributes["training.rank"], *(point.attributes[key] for key in keys)) if keys
        else point.attributes["training.rank"]: point.value
        for point in receiver.last(name)
    }  # fmt: skip


def check_histogram(receiver: Receiver, name: str, expected: dict[Any, Any], *keys: str) -> None:
    """Count and sum of each series; the buckets hold all, and the bounds are for seconds."""
    found = by_rank(receiver, name, *keys) if keys else {(key,): v for key, v in by_rank(receiver, name).items()}
    assert {key: value[0] for key, value in found.items()} == {key: values[0] for key, values in expected.items()}
    sums = {key: float(values[1]) for key, values in expected.items()}
    assert {key: value[1] for key, value in found.items()} == pytest.approx(sums, rel=0.02, abs=1e-6)
    for num, _, counts, bounds in found.values():
        assert sum(counts) == num and len(counts) == len(bounds) + 1 and 0 < bounds[0] < 0.01


def check_spans(receiver: Receiver, run: Run) -> None:
    spans = receiver.spans
    assert len({span.span_id for span in spans}) == len(spans)
    sampled = [0, 20, 40]
    traces: dict[str, set[int]] = defaultdict(set)
    for span in spans:
        traces[span.trace_id].add(span.attributes["training.step"])
    assert sorted(map(sorted, traces.values())) == [[step] for step in sampled]
    roots = [span for span in spans if not span.parent_id]
    assert sorted(span.attributes["training.step"] for span in roots) == sampled
    assert {link[:2] for span in roots for link in span.links} == {("0af7651916cd43dd8448eb211c80319c",
                                                                   "b7ad6b7169203331")}  # fmt: skip
    of_ranks = {(s.attributes["training.step"], s.attributes["training.rank"]): s for s in spans
                if s.name == "training.rank.step"}  # fmt: skip
    assert set(of_ranks) == {(step, rank) for step in sampled for rank in range(RANKS)}
    parents = {span.span_id for span in roots}
    assert {span.parent_id for span in of_ranks.values()} == parents
    known = {span.span_id for span in spans}
    assert all(span.parent_id in known for span in spans if span.parent_id)
    check_span_times(spans, run)


def check_span_times(spans: list[Any], run: Run) -> None:
    """Each phase of a sampled step is one row, and lies at its time on the wall clock, to the nanosecond."""
    rows = run.rows(
        "WITH c AS (SELECT proc, monotonic_ns, wall_ns - monotonic_ns AS ahead FROM clock), "
        "f AS (SELECT proc, arg_min(ahead, monotonic_ns) AS ahead FROM c GROUP BY proc) "
        "SELECT p.step, p.rank, p.kind, p.start_ns + coalesce(c.ahead, f.ahead), p.end_ns + coalesce(d.ahead, f.ahead) "
        "FROM span p JOIN f USING (proc) ASOF LEFT JOIN c ON c.proc = p.proc AND c.monotonic_ns <= p.start_ns "
        "ASOF LEFT JOIN c d ON d.proc = p.proc AND d.monotonic_ns <= p.end_ns WHERE p.step IN (0, 20, 40)"
    )
    kinds = Counter(row[:3] for row in rows)
    got = [(s.attributes["training.step"], s.attributes["training.rank"], s.attributes["training.phase"],
            s.start_ns, s.end_ns) for s in spans if "training.phase" in s.attributes]  # fmt: skip
    assert Counter(row[:3] for row in got) == kinds
    assert {row[:3] for row in rows} >= {(20, rank, kind) for rank in range(RANKS) for kind in ("forward", "backward")}
    assert set(got) == set(rows)
