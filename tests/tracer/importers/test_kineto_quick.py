"""Chunks of events decoded the quick way, and the times that both ways read."""

import json
from random import Random

import msgspec
import pytest
from made_trace import kernel

from rankscope.tracer.importers import kineto_events, kineto_quick


@pytest.mark.parametrize(("text", "answer"), [
    (b"1365627865398.728", 1365627865398728), (b"1712195495505583.123", 1712195495505583123), (b"10", 10_000),
    (b"1.6", 1600), (b"41.407", 41407), (b"0.1230000001", 123), (b"1e3", 1_000_000), (b'"12"', 12_000),
    (b"-0.5", -500), (b"", None), (b'"x"', None), (b"null", None), (b"NaN", None),
])  # fmt: skip
def test_nanoseconds_are_exact(text: bytes, answer: int | None) -> None:
    assert kineto_events.nanoseconds(text) == answer


def test_most_chunks_are_taken_by_category_and_no_event_without_one_costs_another() -> None:
    events = [
        kernel(5),
        {"ph": "X", "cat": "ac2g", "name": "flow", "ts": "odd", "dur": [1]},
        {"cat": "cpu_op", "name": "f"},
        {"cat": "cuda_runtime", "ts": 1, "args": {"correlation": 4}},
        {"cat": "Trace", "name": "t", "args": None},
    ]
    text = json.dumps(events).encode()
    chunk = kineto_quick._chunk_by_category(text)
    assert (chunk.num_events, chunk.categories, chunk.correlations) == (5, ["kernel"], [4])
    assert [len(each) for each in (chunk.device, chunk.launches, chunk.operators, chunk.windows)] == [1, 1, 1, 1]
    for other in ({"ph": "M", "name": "process_name"}, {"cat": "of the future", "name": "x"}):
        with pytest.raises(msgspec.DecodeError):
            kineto_quick._chunk_by_category(json.dumps([other]).encode())
        chunk = kineto_quick.decode(json.dumps([kernel(5), other]).encode())
        assert (chunk.num_events, chunk.categories, chunk.told[0].stream) == (2, ["kernel"], 7)


def test_doubles_of_the_quick_way_are_exact_nanoseconds() -> None:
    """Every third decimal of times up to the limit, read as a double, is the integer that it stands for."""
    random = Random(4)
    for _ in range(20_000):
        ns = random.randrange(int(kineto_quick.EXACT_BELOW_US) * 1000)
        text = b'[{"cat": "user_annotation", "ts": %d.%03d, "dur": %d.5}]' % (*divmod(ns, 1000), ns % 7)
        [event] = kineto_quick.decode(text).annotations
        assert kineto_quick.starts([event]) == [ns]
        assert kineto_quick.durations([event]) == [1000 * (ns % 7) + 500]
    for refused in (b"8796093022208.5", b"-8796093022209.5", b"1e300", b"9007199254740993"):
        with pytest.raises(kineto_events.Refused):
            kineto_quick.starts(kineto_quick.decode(b'[{"cat": "user_annotation", "ts": %s}]' % refused).annotations)
