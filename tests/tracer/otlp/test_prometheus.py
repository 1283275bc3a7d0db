"""The pull endpoint's text, whole, and its address."""

import socket
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from rankscope.tracer.otlp.instruments import INSTRUMENTS
from rankscope.tracer.otlp.meter import RunPoints, Snapshot
from rankscope.tracer.otlp.prometheus import PullEndpoint, exposition, prometheus_name
from rankscope.tracer.otlp.series import Series

EXPECTED = """\
# HELP target_info What the series are about.
# TYPE target_info gauge
target_info{service_name="a \\"b\\"",training_world_size="2"} 1
# HELP training_steps_total Steps that ended on a rank.
# TYPE training_steps_total counter
training_steps_total{training_rank="1"} 3
# HELP training_loss_ratio The last loss that was logged.
# TYPE training_loss_ratio gauge
training_loss_ratio{training_rank="1"} NaN
# HELP training_checkpoint_duration_seconds Saves and loads, from begin to complete.
# TYPE training_checkpoint_duration_seconds histogram
"""


def snapshot() -> Snapshot:
    series = Series(0)
    series.add("training.steps", (), 3)
    series.put("training.loss", (), float("nan"))
    series.observe("training.checkpoint.duration", (("training.checkpoint.mode", "save"),),
                   np.array([400_000_000, 500_000_000, 7200 * 10**9]))  # fmt: skip
    resource = {"service.name": 'a "b"', "training.world_size": 2}
    return Snapshot(5, (RunPoints(resource, tuple(series.points((("training.rank", 1),)))),))


def test_the_text() -> None:
    text = exposition(snapshot())
    assert text.startswith(EXPECTED)
    labels = 'training_rank="1",training_checkpoint_mode="save"'
    lines = text[len(EXPECTED) :].splitlines()
    assert lines[1] == f'training_checkpoint_duration_seconds_bucket{{{labels},le="0.1"}} 0'
    assert lines[2] == f'training_checkpoint_duration_seconds_bucket{{{labels},le="0.5"}} 2'
    assert lines[-3:] == [
        f'training_checkpoint_duration_seconds_bucket{{{labels},le="+Inf"}} 3',
        f"training_checkpoint_duration_seconds_sum{{{labels}}} 7200.900000000001",
        f"training_checkpoint_duration_seconds_count{{{labels}}} 3",
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("training.step.duration", "training_step_duration_seconds"),
        ("training.collective.io", "training_collective_io_bytes_total"),
        ("training.collective.wait.time", "training_collective_wait_time_seconds_total"),
        ("hw.gpu.utilization", "hw_gpu_utilization_ratio"), ("hw.power", "hw_power_watts"),
        ("hw.energy", "hw_energy_joules_total"), ("process.thread.count", "process_thread_count"),
        ("training.rank.lag", "training_rank_lag_seconds"),
        ("hw.network.bandwidth.limit", "hw_network_bandwidth_limit_bytes_per_second"),
    ],
)  # fmt: skip
def test_names(name: str, expected: str) -> None:
    assert prometheus_name(INSTRUMENTS[name]) == expected


def test_no_attribute_of_the_user_breaks_the_scrape() -> None:
    resource = {"team.name": "a", "team_name": "b", "owner": "caf\udce9"}
    endpoint = PullEndpoint("localhost", 0, lambda: Snapshot(5, (RunPoints(resource, ()),)))
    endpoint.start()
    try:
        with urllib.request.urlopen(f"http://localhost:{endpoint.port}/metrics", timeout=10) as answer:
            assert 'target_info{team_name="a;b",owner="caf?"} 1' in answer.read().decode()
    finally:
        endpoint.stop()


def test_it_answers_on_the_loopback_of_ipv6() -> None:
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists() or not Path("/proc/net/if_inet6").read_text():
        pytest.skip("no IPv6 on this machine")
    endpoint = PullEndpoint("::1", 0, snapshot)
    endpoint.start()
    try:
        with urllib.request.urlopen(f"http://[::1]:{endpoint.port}/metrics", timeout=10) as answer:
            assert answer.read().decode() == exposition(snapshot())
    finally:
        endpoint.stop()


def test_it_answers_on_loopback_only_where_it_should() -> None:
    endpoint = PullEndpoint("localhost", 0, snapshot)
    endpoint.start()
    try:
        with urllib.request.urlopen(f"http://localhost:{endpoint.port}/metrics", timeout=10) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert answer.read().decode() == exposition(snapshot())
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://localhost:{endpoint.port}/other", timeout=10)
        with pytest.raises(OSError):
            PullEndpoint("localhost", endpoint.port, snapshot)
    finally:
        endpoint.stop()
