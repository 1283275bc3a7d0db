"""The exporter at work against a collector that answers, refuses, hangs, or is not there: it never holds anybody up."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_rank import FakeRank
from otlp_receiver import Receiver, Running

from rankscope.schema.process_state import RunRef
from rankscope.tracer.drain import ProcessDrain
from rankscope.tracer.otlp.exporter import Exporter
from rankscope.tracer.otlp.sending import at_once
from rankscope.tracer.otlp.wanted import wanted

RUN = RunRef("run-1", "/run")
SLACK_S = 3.0
"""For a busy machine."""


@pytest.fixture
def rank(tmp_path: Path) -> FakeRank:
    made = FakeRank(tmp_path / "launch", str(tmp_path / "run"), now=time.monotonic_ns)
    made.line("clock", monotonic_ns=time.monotonic_ns(), wall_ns=time.time_ns())
    return made


@pytest.fixture
def start(rank: FakeRank, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., "Live"]]:
    made: list[Live] = []

    def begin(**variables: str) -> Live:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        made.append(Live(rank))
        return made[-1]

    yield begin
    for live in made:
        live.exporter.finish()


class Live:
    """An exporter that is fed with one fake rank."""

    def __init__(self, rank: FakeRank) -> None:
        self.rank = rank
        self.drain = ProcessDrain(str(rank.folder / f"{rank.proc}.journal"))
        self.exporter = Exporter(wanted(os.environ), os.environ, "token")
        self.exporter.start()
        self.lines: list[str] = []

    def step(self, step: int, is_last: bool = False) -> None:
        self.rank.step(step)
        self.drain.look()
        time.sleep(0.002)  # records younger than a millisecond are left to the next pass
        batch = self.drain.read(time.monotonic_ns(), is_last)
        self.exporter.saw(RUN, self.drain.state, batch, is_last)

    def wait_for_lines(self, num: int) -> list[str]:
        deadline = time.monotonic() + 20
        while len(self.lines) < num and time.monotonic() < deadline:
            self.lines += self.exporter.news()
            time.sleep(0.02)
        return self.lines

    def finish(self) -> float:
        """How long the end took, seconds."""
        began = time.monotonic()
        self.exporter.finish()
        return time.monotonic() - began


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def unused() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def steps(receiver: Receiver) -> list[Any]:
    return [point.value for point in receiver.last("training.steps")]


def test_what_the_end_flushes_arrives(start: Callable[..., Live]) -> None:
    with Running() as receiver:
        live = start(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint, OTEL_EXPORTER_OTLP_HEADERS="x-key=a%20b")
        for step in range(21):
            live.step(step, is_last=step == 20)
        assert live.finish() < 2 + SLACK_S
        assert steps(receiver) == [21]
        assert {span.attributes["training.step"] for span in receiver.spans} == {0, 20}
        assert {headers["x-key"] for headers in receiver.headers} == {"a b"}
    assert live.exporter.news() == []


@pytest.mark.parametrize("mode", ["dead", "refuse", "hang"])
def test_a_bad_endpoint_costs_two_seconds_at_the_end_and_one_line(start: Callable[..., Live], mode: str) -> None:
    with Running(mode) as receiver:
        live = start(OTEL_EXPORTER_OTLP_ENDPOINT=unused() if mode == "dead" else receiver.endpoint,
                     OTEL_METRIC_EXPORT_INTERVAL="20", OTEL_TRACES_EXPORTER="none",
                     OTEL_EXPORTER_OTLP_TIMEOUT="1")  # fmt: skip
        longest = 0.0
        for step in range(100):
            began = time.thread_time()
            live.step(step)
            longest = max(longest, time.thread_time() - began)
        lines = live.wait_for_lines(1)
        time.sleep(2.5)  # further failures say nothing
        lines += live.exporter.news()
        assert len(lines) == 1 and lines[0].startswith("otlp: metrics do not arrive at http://127.0.0.1:")
        assert lines[0].endswith("the run directory has everything") and lines[0].count("\n") == 0
        assert longest < 0.5  # the pass itself included; it never waits
        assert live.finish() < 2 + SLACK_S


def test_metrics_that_are_redirected_do_not_arrive(start: Callable[..., Live]) -> None:
    with Running("redirect") as receiver:
        live = start(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint, OTEL_METRIC_EXPORT_INTERVAL="20",
                     OTEL_TRACES_EXPORTER="none", OTEL_EXPORTER_OTLP_TIMEOUT="1")  # fmt: skip
        live.step(0)
        assert "the answer is a redirect (308)" in live.wait_for_lines(1)[0]


def test_what_is_rejected_is_told_and_not_sent_again(start: Callable[..., Live]) -> None:
    with Running("reject") as receiver:
        live = start(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint, OTEL_METRICS_EXPORTER="none",
                     OTEL_BSP_SCHEDULE_DELAY="20", OTEL_TRACES_SAMPLER="always_on")  # fmt: skip
        for step in range(3):
            live.step(step, is_last=step == 2)
        (line,) = live.wait_for_lines(1)
        assert "3 were rejected: too old" in line
        assert live.finish() < 2 + SLACK_S
        ids = [span.span_id for span in receiver.spans]
        assert len(ids) == len(set(ids)) > 0


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_no_line_tells_a_secret(
    start: Callable[..., Live], protocol: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    place = unused().removeprefix("http://")
    user = "me:secret@" if protocol == "grpc" else ""  # requests takes them out of the address by itself
    live = start(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{user}{place}/?key=secret", OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
                 OTEL_EXPORTER_OTLP_HEADERS="Authorization secret", OTEL_METRIC_EXPORT_INTERVAL="20",
                 OTEL_TRACES_EXPORTER="none", OTEL_EXPORTER_OTLP_TIMEOUT="1")  # fmt: skip
    live.step(0)
    lines = live.wait_for_lines(2)
    assert lines[0].startswith("otlp: metrics: Header format invalid!")
    assert lines[1].startswith("otlp: metrics do not arrive at ") and place in lines[1]
    everything = " ".join(lines) + caplog.text + "".join(capfd.readouterr())
    assert "secret" not in everything and everything.count("Header format") == 1


def test_a_collector_that_comes_back_gets_what_is_cumulative(start: Callable[..., Live]) -> None:
    with Running("refuse") as receiver:
        live = start(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint, OTEL_METRIC_EXPORT_INTERVAL="50",
                     OTEL_BSP_SCHEDULE_DELAY="50", OTEL_EXPORTER_OTLP_TIMEOUT="1")  # fmt: skip
        for step in range(5):
            live.step(step)
        assert len(live.wait_for_lines(2)) == 2  # one for each signal
        receiver.mode = "answer"
        assert len(live.wait_for_lines(4)) == 4
        assert sum("arrive at" in line and line.endswith("again") for line in live.lines) == 2
        wait_for(lambda: steps(receiver) == [5] and receiver.spans)
        assert {span.attributes["training.step"] for span in receiver.spans} == {0}


def test_a_forked_child_exports_nothing(start: Callable[..., Live]) -> None:
    with Running() as receiver:
        live = start(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint, OTEL_TRACES_EXPORTER="none",
                     OTEL_METRIC_EXPORT_INTERVAL="50")  # fmt: skip
        live.step(0)
        wait_for(lambda: steps(receiver) == [1])
        child = os.fork()
        if child == 0:
            began = time.monotonic()
            live.step(1)
            live.exporter.settle()
            live.exporter.finish()
            os._exit(0 if time.monotonic() - began < 1 and threading.active_count() == 1 else 1)
        assert os.waitpid(child, 0)[1] == 0
        instances = {point.resource["service.instance.id"] for _, got in receiver.metric_requests for point in got}
        assert len(instances) == 1 and steps(receiver) == [1]


def test_deltas_add_up_whatever_fails_between(start: Callable[..., Live]) -> None:
    with Running() as receiver:
        live = start(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint, OTEL_TRACES_EXPORTER="none",
                     OTEL_METRIC_EXPORT_INTERVAL="50", OTEL_EXPORTER_OTLP_TIMEOUT="1",
                     OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE="delta")  # fmt: skip

        def told() -> int:
            return sum(point.value for _, got in list(receiver.metric_requests) for point in got
                       if point.name == "training.steps")  # fmt: skip

        for step in range(4):
            live.step(step)
        wait_for(lambda: told() == 4)
        receiver.mode = "refuse"
        for step in range(4, 9):
            live.step(step)
        live.wait_for_lines(1)
        receiver.mode = "answer"
        wait_for(lambda: told() == 9)
        time.sleep(0.3)
        assert told() == 9


def test_grpc_without_the_package_is_one_line(start: Callable[..., Live], monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in [name for name in sys.modules if name.startswith("opentelemetry.exporter.otlp.proto.grpc")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.metric_exporter", None)
    live = start(OTEL_EXPORTER_OTLP_ENDPOINT=unused(), OTEL_EXPORTER_OTLP_PROTOCOL="grpc", OTEL_TRACES_EXPORTER="none")
    (line,) = live.wait_for_lines(1)
    assert line == "otlp: no metrics are exported: the exporter is not installed: pip install 'rankscope[grpc]'"
    live.step(0)
    assert live.finish() < 2 + SLACK_S


def test_problems_are_told(start: Callable[..., Live]) -> None:
    live = start(OTEL_METRICS_EXPORTER="statsd")
    assert "OTEL_METRICS_EXPORTER=statsd" in live.wait_for_lines(1)[0]


def test_compression_none_is_a_word_that_grpc_knows_too(monkeypatch: pytest.MonkeyPatch) -> None:
    import grpc  # type: ignore[import-untyped, unused-ignore]

    from rankscope.tracer.otlp import sdk

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", unused())
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    made: list[Any] = [sdk._metric_exporter("otlp", "grpc", at_once), sdk._span_exporter("otlp", "grpc", "", at_once)]
    for exporter in made:
        assert exporter._compression == grpc.Compression.NoCompression
        exporter.shutdown()


def test_console_prints_and_a_port_that_is_taken_is_one_line(
    start: Callable[..., Live], capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        live = start(OTEL_METRICS_EXPORTER="console,prometheus", OTEL_TRACES_EXPORTER="console",
                     OTEL_EXPORTER_PROMETHEUS_PORT=port)  # fmt: skip
        assert live.wait_for_lines(1) == [f"otlp: no /metrics at localhost:{port}: Address already in use"]
        for step in range(2):
            live.step(step, is_last=step == 1)
        assert live.finish() < 2 + SLACK_S
    printed = capfd.readouterr().out
    assert '"training.steps"' in printed and '"training.rank.step"' in printed
