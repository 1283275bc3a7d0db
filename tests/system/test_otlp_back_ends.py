"""A live job in the stores that people have: pulled by Prometheus, and sent as OTLP into VictoriaMetrics.

Both answer the same questions with the numbers of the run's rows, and every query of the dashboard and of the alert
rules in `examples/opentelemetry` is run by both.
"""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml  # type: ignore[import-untyped, unused-ignore]
from back_ends import PromQL, bridge, debian_binary, prometheus, victoria_metrics
from otlp_receiver import Running
from rotel_collector import free_port

from rankscope.analyzers.run import Run

pytestmark = [pytest.mark.system, pytest.mark.slow]

JOB = Path(__file__).parent / "jobs" / "exporting.py"
EXAMPLES = Path(__file__).parents[2] / "examples" / "opentelemetry"
RANKS = 4
NOT_HERE = ("hw_", "training_checkpoint_")
"""What a job on CPUs without checkpoints has no series of."""


class Ran(NamedTuple):
    """The stores after the job, the moments between which it ran, and its rows."""

    stores: dict[str, PromQL]
    start: float
    end: float
    run: Run


@pytest.fixture
def ran(torchrun: Any, tmp_path: Path) -> Iterator[Ran]:
    port = free_port()
    with Running() as receiver, prometheus(tmp_path, port) as pulled, victoria_metrics(tmp_path) as sent:
        env = {
            "OTEL_METRICS_EXPORTER": "otlp,prometheus", "OTEL_EXPORTER_PROMETHEUS_PORT": str(port),
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, "OTEL_TRACES_EXPORTER": "none",
            "OTEL_METRIC_EXPORT_INTERVAL": "500", "RANKSCOPE_AGENT": "now", "RANKSCOPE_SAMPLE_SECONDS": "0.5",
            "EXPORTING_PAUSE": "0.05",
        }  # fmt: skip
        start = time.time()
        job = torchrun(JOB, RANKS, env=env).check()
        job.settle()
        bridge([points for _, points in receiver.metric_requests], sent)
        with Run.open(str(job.run_dir)) as run:
            yield Ran({"prometheus": pulled, "victoria-metrics": sent}, start, time.time() + 1, run)


def test_both_stores_tell_what_the_rows_tell(ran: Ran) -> None:
    for name, store in ran.stores.items():
        check_numbers(ran, store, name)
        check_dashboard(ran, store, name)
        check_alerts(ran, store, name)


def check_numbers(ran: Ran, store: PromQL, name: str) -> None:
    def by_rank(query: str) -> dict[int, float]:
        found = store.last(query, ran.start, ran.end)
        return {int(labels["training_rank"]): value for labels, value in found}

    steps: dict[int, int] = dict(ran.run.rows("SELECT rank, count(*) FROM step GROUP BY rank"))
    assert by_rank("training_steps_total") == steps, name
    waits = ran.run.rows("SELECT rank, sum(wait_end_ns - wait_begin_ns) / 1e9 FROM collective GROUP BY rank")
    query = "sum by (training_rank) (training_collective_wait_time_seconds_total)"
    assert by_rank(query) == pytest.approx(dict(waits), rel=1e-6), name
    assert min(dict(waits).values()) > 0
    times = ran.run.rows("SELECT rank, sum(duration_ns) / 1e9 / count(*) FROM counted_step GROUP BY rank")
    mean = "training_step_duration_seconds_sum / training_step_duration_seconds_count"
    assert by_rank(mean) == pytest.approx(dict(times), rel=1e-6), name
    p50 = store.last("histogram_quantile(0.5, sum by (le) (training_step_duration_seconds_bucket))", ran.start, ran.end)
    ((median,),) = ran.run.rows("SELECT quantile_disc(duration_ns, 0.5) / 1e9 FROM counted_step")
    assert len(p50) == 1 and median / 2.5 < p50[0][1] < median * 2.5, name  # as exact as the buckets


def check_dashboard(ran: Ran, store: PromQL, name: str) -> None:
    ((run_id,),) = ran.run.rows("SELECT run_id FROM run")
    targets = [target for panel in dashboard()["panels"] for target in panel.get("targets", [])]
    assert len(targets) > 20
    silent = []
    for target in targets:
        query = target["expr"].replace("$run", run_id).replace("$__rate_interval", "5s")
        if not store.last(query, ran.start, ran.end) and not any(word in query for word in NOT_HERE):
            silent.append(query)
    assert silent == [], name
    labels = store.get("/api/v1/label/training_run_id/values", start=ran.start, end=ran.end)["data"]
    assert run_id in labels


def check_alerts(ran: Ran, store: PromQL, name: str) -> None:
    """Every rule can be run on this job, which is well; which series it is about, it has (devices apart)."""
    for rule, query in rules().items():
        store.last(query, ran.start, ran.end)
        for metric in set(re.findall(r"\b(?:training|hw|system)_\w+(?=[{\[) ]|$)", query, re.MULTILINE)):
            is_label = metric in ("training_run_id", "training_rank", "training_incident_kind", "hw_id")
            if not is_label and not metric.startswith("hw_"):
                assert store.last(metric, ran.start, ran.end), (name, rule, metric)
    hurt = ("TrainingRankDied", "TrainingOperationHangs", "TrainingRestarted")
    assert [rule for rule in hurt if store.last(rules()[rule], ran.start, ran.end)] == [], name


def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    """promtool's own test of rules, on series made up for it."""
    promtool = debian_binary("promtool", "prometheus", tmp_path)
    subprocess.run([promtool, "check", "rules", str(EXAMPLES / "alerts.yml")], check=True, capture_output=True)
    subprocess.run([promtool, "check", "config", str(EXAMPLES / "prometheus.yml")], check=True, capture_output=True)
    rank = 'training_run_id="r",training_rank="0"'
    cases: dict[str, tuple[list[tuple[str, str]], str, dict[str, str]]] = {
        "TrainingStandsStill": ([(f"training_steps_total{{{rank}}}", "0+10x10 100x30")], "25m", {}),
        "TrainingRankDied": ([(f'training_incidents_total{{{rank},training_incident_kind="dead_rank"}}', "0x10 1x10")],
                             "12m", {"training_rank": "0"}),
        "TrainingOperationHangs": (
            [(f'training_incidents_total{{{rank},training_incident_kind="hang"}}', "0x10 1x10"),
             (f"training_collective_pending{{{rank}}}", "0x10 1x10")], "12m", {}),
        "TrainingRankIsLate": (
            [(f"training_rank_lag_seconds{{{rank}}}", "0.2x40"),
             (f"training_step_duration_seconds_sum{{{rank}}}", "0+60x40"),
             (f"training_step_duration_seconds_count{{{rank}}}", "0+60x40")], "30m", {"training_rank": "0"}),
        "TrainingStepsGotSlower": (
            [(f"training_step_duration_seconds_sum{{{rank}}}", "0+60x160"),
             (f"training_step_duration_seconds_count{{{rank}}}", "0+60x120 7200+30x40")], "145m", {}),
        "TrainingMostlyWaits": ([(f"training_collective_wait_time_seconds_total{{{rank}}}", "0+36x40")], "30m", {}),
        "TrainingLossIsNotANumber": ([(f"training_loss_ratio{{{rank}}}", "1 1 1 1 1 1 NaN NaN NaN")], "8m", {}),
        "TrainingRestarted": ([(f"training_restarts_total{{{rank}}}", "0x10 1x10")], "12m", {}),
        "TrainingDeviceMemoryErrors": (
            [('hw_errors_total{training_run_id="r",hw_id="G",error_type="uncorrected"}', "0x10 2x10")], "12m",
            {"hw_id": "G"}),
        "TrainingHostMemoryAlmostFull": (
            [('system_memory_utilization_ratio{training_run_id="r",instance="i"}', "0.97x20")], "10m",
            {"instance": "i"}),
    }  # fmt: skip
    assert cases.keys() == rules().keys()
    tests: list[Any] = []
    for name, (series, at, labels) in cases.items():
        described = {"interval": "1m", "input_series": [{"series": key, "values": value} for key, value in series]}
        fires = {"alertname": name, "exp_alerts": [{"exp_labels": {"training_run_id": "r", **labels,
                                                                   "severity": severity(name)}}]}  # fmt: skip
        quiet = {"alertname": name, "exp_alerts": []}
        tests.append({**described, "alert_rule_test": [{"eval_time": "4m", **quiet}, {"eval_time": at, **fires}]})
    text = json.dumps({"rule_files": [str(rules_without_words(tmp_path))], "evaluation_interval": "1m", "tests": tests})
    (tmp_path / "test.yml").write_text(text)
    ran = subprocess.run([promtool, "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True,
                         check=False)  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr


def dashboard() -> Any:
    return json.loads((EXAMPLES / "dashboard.json").read_text())


def alert_groups() -> Any:
    return yaml.safe_load((EXAMPLES / "alerts.yml").read_text())


def rules() -> dict[str, str]:
    """Queries by alert."""
    return {rule["alert"]: rule["expr"] for group in alert_groups()["groups"] for rule in group["rules"]}


def severity(name: str) -> str:
    found = [rule for group in alert_groups()["groups"] for rule in group["rules"] if rule["alert"] == name]
    return str(found[0]["labels"]["severity"])


def rules_without_words(folder: Path) -> Path:
    """The rules without their annotations, which promtool would compare as well."""
    groups = alert_groups()
    for rule in (rule for group in groups["groups"] for rule in group["rules"]):
        rule.pop("annotations", None)
    path = folder / "rules.yml"
    path.write_text(json.dumps(groups))
    return path


def test_the_collector_configuration_is_whole() -> None:
    """Every receiver, processor and exporter of a pipeline is there, and nothing that is there is left unused."""
    config = yaml.safe_load((EXAMPLES / "collector.yaml").read_text())
    pipelines = config["service"]["pipelines"]
    assert set(pipelines) == {"metrics", "traces"}
    for part in ("receivers", "processors", "exporters"):
        used = {name for pipeline in pipelines.values() for name in pipeline[part]}
        assert used == set(config[part])
