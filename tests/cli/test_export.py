"""`rankscope export otlp`: what arrives is the run, whole, with its own times; what is broken off goes on."""

import json
import os
import time
from collections import Counter
from pathlib import Path

import pytest
from command_line import Command
from otlp_receiver import Receiver, Running, SpanGot
from rotel_collector import Rotel
from run_builder import BOOT_ID, MS, RunBuilder, healthy_run

from rankscope.analyzers import step_windows
from rankscope.analyzers.run import Run

DATA = os.environ.get("RANKSCOPE_TEST_DATA", "")
AHEAD = 1_700_000_000_000_000_123
"""Of the wall clock before the monotonic one, ns."""


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")


def clocked_run(root: Path) -> Path:
    """The healthy run, with clock readings; rank 1 died in step 6, in an operation that nobody finished."""
    build = RunBuilder(root)
    for rank in (0, 1):
        build.fact("clock", rank, boot_id=BOOT_ID, monotonic_ns=0, wall_ns=AHEAD)
    build.collective(1, 6, 750, None, None, step=6, record=999)
    build.numbers["collective.0"] = 1  # a file beside the one of the healthy run
    build.seal()
    return healthy_run(root)


def named(receiver: Receiver, name: str) -> list[SpanGot]:
    return [span for span in receiver.spans if span.name == name]


def test_one_trace_per_step_with_all_ranks_and_their_times(rankscope: Command, tmp_path: Path) -> None:
    run_dir = clocked_run(tmp_path / "run")
    with Running() as receiver:
        ran = rankscope("export", "otlp", str(run_dir), "--endpoint", receiver.endpoint, "--json")
    told = json.loads(ran.out)
    assert (ran.status, ran.err) == (0, "")
    assert told["rows"] == {"step": 12, "span": 12, "collective": 13, "kernel": 0}
    assert (
        (told["spans"], told["traces"]) == (45, 7) == (len(receiver.spans), len({s.trace_id for s in receiver.spans}))
    )
    roots = {span.trace_id: span for span in named(receiver, "training.step")}
    ranks = {(span.trace_id, span.attributes["training.rank"]): span for span in named(receiver, "training.rank.step")}
    assert len(roots) == 7 and len(ranks) == 13
    step_2 = next(span for span in roots.values() if span.attributes["training.step"] == 2)
    assert (step_2.start_ns, step_2.end_ns) == (AHEAD + 500 * MS, AHEAD + 600 * MS)
    assert {span.parent_id for span in receiver.spans if span.name == "training.rank.step"} == {
        span.span_id for span in roots.values()
    }
    for span in receiver.spans:
        if not span.name.endswith("step"):
            assert span.parent_id == ranks[span.trace_id, span.attributes["training.rank"]].span_id
    open_one = next(s for s in receiver.spans if s.attributes.get("training.collective.state") == "issued")
    assert (open_one.status, open_one.start_ns, open_one.end_ns) == (2, AHEAD + 750 * MS, AHEAD + 750 * MS)
    rank_1 = ranks[open_one.trace_id, 1]
    assert rank_1.attributes["training.step.is_complete"] is False


def test_operations_are_linked_to_the_same_one_on_the_other_rank(rankscope: Command, tmp_path: Path) -> None:
    run_dir = healthy_run(tmp_path / "run")
    with Running() as receiver:
        assert rankscope("export", "otlp", str(run_dir), "--endpoint", receiver.endpoint).status == 0
    operations = named(receiver, "training.collective.all_reduce")
    by_id = {span.span_id: span for span in operations}
    assert len(by_id) == 12
    for span in operations:
        ((trace_id, span_id, told),) = span.links
        other = by_id[span_id]
        assert (trace_id, told["training.rank"]) == (other.trace_id, 1 - span.attributes["training.rank"])
        assert other.attributes["training.collective.seq"] == span.attributes["training.collective.seq"]


def test_an_export_that_is_broken_off_goes_on(
    rankscope: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = healthy_run(tmp_path / "run")
    monkeypatch.setattr(step_windows, "MAX_ROWS", 12)
    with Running() as whole:
        assert rankscope("export", "otlp", str(run_dir), "--endpoint", whole.endpoint).status == 0
    with Running() as receiver:
        take = receiver.take

        def then_refuse(path: str, body: bytes) -> None:
            take(path, body)
            receiver.mode = "refuse"

        monkeypatch.setattr(receiver, "take", then_refuse)
        command = ("export", "otlp", str(run_dir), "--endpoint", receiver.endpoint)
        broken = rankscope(*command)
        assert (broken.status, broken.out, broken.err.count("\n")) == (2, "", 1)
        assert "12 of 36 rows have arrived, the same command goes on from there" in broken.err
        assert receiver.num_refused >= 1 and len(receiver.span_requests) == 1
        receiver.mode = "answer"
        monkeypatch.setattr(receiver, "take", take)
        again = rankscope(*command, "--json")
        told = json.loads(again.out)
        assert (told["spans"], told["spans_of_earlier_commands"]) == (len(whole.spans), len(receiver.span_requests[0]))
        assert Counter(span.span_id for span in receiver.spans) == Counter(span.span_id for span in whole.spans)
        once_more = json.loads(rankscope(*command, "--json").out)
        assert (once_more["spans"], once_more["spans_of_earlier_commands"]) == (len(whole.spans), 0)


def test_only_some_steps(rankscope: Command, tmp_path: Path) -> None:
    run_dir = healthy_run(tmp_path / "run")
    for text, steps in (("2:3", {2, 3}), ("4", {4}), ("4:", {4, 5}), (":1", {0, 1})):
        with Running() as receiver:
            assert (
                rankscope("export", "otlp", str(run_dir), "--endpoint", receiver.endpoint, "--steps", text).status == 0
            )
        assert {span.attributes["training.step"] for span in receiver.spans} == steps


def test_rows_of_no_step_are_sent_as_well(rankscope: Command, tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.collective(0, 0, 10, (10, 20), 20, step=None)
    build.fact("collective", 0, group_id="world-group", op="all_reduce", seq=1, state="issued")
    build.entities()
    with Running() as receiver:
        ran = rankscope("export", "otlp", str(build.seal()), "--endpoint", receiver.endpoint)
    assert ran.status == 0 and ran.out.endswith("  1 rows tell no time and were left out\n")
    assert Counter(span.name for span in receiver.spans) == Counter(
        ["training.outside_steps", "training.rank.outside_steps", "training.collective.all_reduce"]
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["export", "csv", "{run}"], "no format csv; there is otlp"),
        (["export", "otlp", "{run}", "--steps", "a:b"], "use FIRST:LAST, such as 100:200"),
        (["export", "otlp", "{run}", "--steps", "9:2"], "the first step comes after the last"),
        (["export", "otlp", "{run}", "--protocol", "json"], "use http/protobuf or grpc"),
        (["export", "otlp", "{run}", "--steps", "500:"], "no step, span, operation or device activity to export"),
        (["export", "otlp", "{run}", "--endpoint", "http://127.0.0.1:9"], "spans do not arrive"),
        (["export", "otlp", "{run}", "--endpoint", "nonsense"], "nonsense/v1/traces: spans do not arrive"),
        (["export", "otlp", "{run}", "--steps", "500:"], "activity to export in these steps"),
        (["export", "otlp", "{run}", "--endpoint", "http://me:secret@127.0.0.1:9"], "http://127.0.0.1:9/v1/traces"),
        (["export", "otlp", "{run}", "--endpoint", "http://127.0.0.1:9/x?key=secret"], "127.0.0.1:9/x/v1/traces"),
        (["export", "otlp", "{run}", "--endpoint", "http://127.0.0.1:9?key=secret"], "127.0.0.1:9/v1/traces"),
        (["export", "otlp", "{run}", "--endpoint", "me:secret@127.0.0.1:9"], "127.0.0.1:9/v1/traces"),
        (["export", "otlp", "{run}", "--protocol", "grpc", "--endpoint", "me:secret@127.0.0.1:9"], "127.0.0.1:9"),
        (
            ["export", "otlp", "{run}", "--protocol", "grpc", "--endpoint", "http://me:secret@127.0.0.1:9"],
            "127.0.0.1:9",
        ),
    ],
)
def test_bad_usage_is_one_line(rankscope: Command, tmp_path: Path, arguments: list[str], words: str) -> None:
    run_dir = healthy_run(tmp_path / "run")
    ran = rankscope(*(part.format(run=run_dir) for part in arguments))
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert words in ran.err and "secret" not in ran.err


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_header_that_is_none_is_told_without_its_text(
    rankscope: Command, tmp_path: Path, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization Bearer secret")
    run_dir = healthy_run(tmp_path / "run")
    line = ["export", "otlp", str(run_dir), "--protocol", protocol, "--endpoint"]
    ran = rankscope(*line, "http://127.0.0.1:9")
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "Header format invalid" in ran.err and "secret" not in ran.err and "Bearer" not in ran.err


@pytest.mark.parametrize(
    ("mode", "says"),
    [("redirect", "a redirect (308)"), ("page", "a web page: this is no coll"), ("reject", "3 were rejected: too old")],
)
def test_what_is_no_answer_of_a_collector_is_no_success(
    rankscope: Command, tmp_path: Path, mode: str, says: str
) -> None:
    run_dir = healthy_run(tmp_path / "run")
    with Running(mode) as receiver:
        ran = rankscope("export", "otlp", str(run_dir), "--endpoint", receiver.endpoint)
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "spans do not arrive" in ran.err and says in ran.err


def test_what_the_variables_say_of_the_service_holds_for_what_is_asked_for_by_hand(
    rankscope: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("OTEL_SDK_DISABLED", "true"), ("OTEL_SERVICE_NAME", "trainer"),
                        ("OTEL_RESOURCE_ATTRIBUTES", "team=x")):  # fmt: skip
        monkeypatch.setenv(name, value)
    run_dir = healthy_run(tmp_path / "run")
    with Running() as receiver:
        assert rankscope("export", "otlp", str(run_dir), "--endpoint", receiver.endpoint).status == 0
    assert {(span.resource["service.name"], span.resource["team"]) for span in receiver.spans} == {("trainer", "x")}


def test_the_query_of_an_address_stays_at_its_end(rankscope: Command, tmp_path: Path) -> None:
    run_dir = healthy_run(tmp_path / "run")
    with Running() as receiver:
        ran = rankscope("export", "otlp", str(run_dir), "--endpoint", f"{receiver.endpoint}/?key=secret")
    assert ran.status == 0 and receiver.spans and "secret" not in ran.out


def test_through_a_collector_over_grpc(rankscope: Command, tmp_path: Path) -> None:
    run_dir = healthy_run(tmp_path / "run")
    with Running() as receiver, Rotel(receiver, tmp_path) as collector:
        address = collector.endpoint("grpc")
        ran = rankscope("export", "otlp", str(run_dir), "--endpoint", address, "--protocol", "grpc", "--json")
        assert ran.status == 0, ran.err
        num_spans = json.loads(ran.out)["spans"]
        deadline = time.monotonic() + 20
        while len(receiver.spans) < num_spans and time.monotonic() < deadline:
            time.sleep(0.05)
    assert len({span.span_id for span in receiver.spans}) == num_spans == 6 + 12 + 12 + 12


@pytest.mark.skipif(not DATA, reason="RANKSCOPE_TEST_DATA is not set")
def test_the_real_trace_of_eight_ranks_arrives_complete(rankscope: Command, tmp_path: Path) -> None:
    traces = Path(DATA) / "kineto" / "dlrm_v100_8ranks"
    answers = json.loads((traces.parent / "expected.json").read_text())["traces"][traces.name]
    run_dir = tmp_path / "run"
    assert rankscope("import", "kineto", str(traces), "-o", str(run_dir)).status == 0
    with Running() as receiver:
        ran = rankscope("export", "otlp", str(run_dir), "--endpoint", receiver.endpoint, "--json")
    assert (ran.status, ran.err) == (0, "")
    with Run.open(str(run_dir)) as run:
        kernels = run.rows("SELECT rank, start_ns, end_ns, name[:200] FROM kernel")
        operations = run.rows("SELECT rank, op, seq, issued_ns, completed_ns FROM collective")
        spans = run.rows("SELECT rank, start_ns, end_ns FROM span")
        steps = run.rows("SELECT rank, start_ns, end_ns FROM step")
    num_events = sum(row["exact_device_events"]["num_device_events"] for row in answers)
    assert len(kernels) == num_events and len(operations) == 8 * 8 and len(steps) == 8
    assert len(receiver.spans) == 1 + len(steps) + len(spans) + len(operations) + len(kernels)
    assert len({span.span_id for span in receiver.spans}) == len(receiver.spans)
    assert len({span.trace_id for span in receiver.spans}) == 1
    got = [s for s in receiver.spans if "training.kernel.class" in s.attributes]
    assert Counter((s.attributes["training.rank"], s.start_ns, s.end_ns, s.name) for s in got) == Counter(kernels)
    got = [s for s in receiver.spans if "training.collective.operation" in s.attributes]
    keys = ("training.rank", "training.collective.operation", "training.collective.seq")
    assert {(*(s.attributes[key] for key in keys), s.start_ns, s.end_ns) for s in got} == set(operations)
    assert {len(span.links) for span in got} == {7}
    got = named(receiver, "training.rank.step")
    assert {(s.attributes["training.rank"], s.start_ns, s.end_ns) for s in got} == set(steps)
    (root,) = [span for span in receiver.spans if not span.parent_id]
    assert (root.start_ns, root.end_ns) == (min(row[1] for row in steps), max(row[2] for row in steps))
