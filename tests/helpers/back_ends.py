"""Stores that people have: Prometheus and VictoriaMetrics of Debian, found on the PATH or unpacked from the package.

`bridge` is test code: it brings what an OTLP receiver got into VictoriaMetrics, by names as the specification gives
them, written here a second time.
"""

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from otlp_receiver import MetricPoint
from rotel_collector import free_port

Labels = dict[str, str]
PATIENCE_SECONDS = 60.0
SUFFIX = {"s": "_seconds", "By": "_bytes", "W": "_watts", "J": "_joules", "Cel": "_celsius", "Hz": "_hertz",
          "By/s": "_bytes_per_second"}  # fmt: skip


def debian_binary(name: str, package: str, folder: Path) -> str:
    """The path of a program; the test is skipped, with the reason, where it cannot be had."""
    found = shutil.which(name)
    if found:
        return found
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        pytest.skip(f"{name} is not installed, and this machine has no apt-get to take it from")
    try:
        subprocess.run(["apt-get", "download", package], cwd=folder, check=True, capture_output=True, timeout=120)
        (archive,) = folder.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "-x", str(archive), str(folder)], check=True, capture_output=True, timeout=120)
    except (subprocess.SubprocessError, ValueError, OSError) as error:
        pytest.skip(f"{name} is not installed and cannot be downloaded: {error}")
    return str(folder / "usr" / "bin" / name)


class PromQL:
    """A store that answers PromQL at `address`."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str, **parameters: Any) -> Any:
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"{self.address}{path}?{query}", timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()[:500]}") from error

    def last(self, query: str, start: float, end: float) -> list[tuple[Labels, float]]:
        """The last value of each series of a query between two moments."""
        told = self.get("/api/v1/query_range", query=query, start=start, end=end, step="0.5")
        assert told["status"] == "success", told
        return [(series["metric"], float(series["values"][-1][1])) for series in told["data"]["result"]]


@contextmanager
def prometheus(folder: Path, scraped_port: int) -> Iterator[PromQL]:
    """Debian's Prometheus, scraping one endpoint twice a second."""
    binary = debian_binary("prometheus", "prometheus", folder)
    config = folder / "prometheus.yml"
    config.write_text(json.dumps({
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
        "scrape_configs": [{"job_name": "training", "static_configs": [{"targets": [f"localhost:{scraped_port}"]}]}],
    }))  # fmt: skip
    port = free_port()
    command = [binary, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
               f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
    with _running(command, folder / "prometheus.log", f"http://127.0.0.1:{port}/-/ready"):
        yield PromQL(f"http://127.0.0.1:{port}")


@contextmanager
def victoria_metrics(folder: Path) -> Iterator[PromQL]:
    """Debian's VictoriaMetrics."""
    binary = debian_binary("victoria-metrics", "victoria-metrics", folder)
    port = free_port()
    command = [binary, f"-storageDataPath={folder / 'vm'}", f"-httpListenAddr=127.0.0.1:{port}",
               "-retentionPeriod=1", "-search.latencyOffset=0s"]  # fmt: skip
    with _running(command, folder / "vm.log", f"http://127.0.0.1:{port}/health"):
        yield PromQL(f"http://127.0.0.1:{port}")


def bridge(requests: Iterable[list[MetricPoint]], store: PromQL) -> None:
    """Put the points of OTLP requests into VictoriaMetrics, each with its time."""
    lines = "\n".join(line for points in requests for point in points for line in exposition_lines(point))
    body = urllib.request.Request(f"{store.address}/api/v1/import/prometheus", lines.encode(), method="POST")
    with urllib.request.urlopen(body, timeout=60) as answer:
        assert answer.status in (200, 204)
    urllib.request.urlopen(f"{store.address}/internal/force_flush", timeout=60).close()


def exposition_lines(point: MetricPoint) -> Iterator[str]:
    """A point as lines of Prometheus's text format, with its time in ms."""
    name = point.name.replace(".", "_") + SUFFIX.get(point.unit, "")
    name = point.name.replace(".", "_") if point.name.replace(".", "_").endswith(SUFFIX.get(point.unit, "-")) else name
    name += "_ratio" if point.unit == "1" and point.kind == "gauge" else ""
    labels = {key.replace(".", "_"): str(value) for key, value in point.attributes.items()}
    labels["instance"] = str(point.resource["service.instance.id"])
    at = point.time_ns // 1_000_000
    if point.kind != "histogram":
        yield f"{name}{'_total' if point.kind == 'counter' else ''}{_braces(labels)} {point.value} {at}"
        return
    num, total, counts, bounds = point.value
    running = 0
    for count, bound in zip(counts, [*bounds, "+Inf"], strict=True):
        running += count
        yield f"{name}_bucket{_braces({**labels, 'le': str(bound)})} {running} {at}"
    yield f"{name}_sum{_braces(labels)} {total} {at}"
    yield f"{name}_count{_braces(labels)} {num} {at}"


def _braces(labels: Labels) -> str:
    return "{" + ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items()) + "}"


@contextmanager
def _running(command: list[str], log_path: Path, health: str) -> Iterator[None]:
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                urllib.request.urlopen(health, timeout=5).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"{command[0]} does not start: {log_path.read_text()[-2000:]}")
                time.sleep(0.1)
        yield
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
