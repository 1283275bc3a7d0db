"""Damaged and foreign: traces made here, of which every answer is known."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from made_trace import BASE_US, kernel, launch, trace, write
from run_rows import rows

from rankscope.analyzers.collectives import collectives
from rankscope.analyzers.run import Run
from rankscope.tracer.importers import kineto_events, kineto_quick
from rankscope.tracer.importers.kineto import run_length
from rankscope.tracer.importers.kineto_hta import NO_NUMBER, read_events
from rankscope.tracer.importers.request import Imported

SEEDS = int(os.environ.get("RANKSCOPE_FUZZ_SEEDS", "15"))


def test_a_truncated_file_gives_what_came_before(tmp_path: Path, bring: Callable[..., Imported]) -> None:
    whole = write(tmp_path / "in/rank0.json", trace())
    whole.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    write(tmp_path / "in/rank1.json", trace(rank=1))
    found = bring()
    first, second = found.files
    assert first.is_imported and first.note == "the file ends before its events do" and first.num_skipped == 1
    assert second.note == "" and second.num_rows == 50
    assert dict(rows(tmp_path, "SELECT rank, count(*) FROM kernel GROUP BY rank"))[0] in range(23, 27)


def test_a_truncated_gzip_gives_what_came_before(tmp_path: Path, bring: Callable[..., Imported]) -> None:
    packed = gzip.compress(json.dumps(trace(num=2000)).encode())
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json.gz").write_bytes(packed[: len(packed) * 3 // 4])
    write(tmp_path / "in/rank1.json", trace(rank=1))
    first, second = bring().files
    assert first.rank == 0 and "the gzip data end early" in first.note and 500 < first.num_rows < 2000
    assert second.num_rows == 50


def test_several_gzip_members_in_a_row_are_one_file(tmp_path: Path, bring: Callable[..., Imported]) -> None:
    text = json.dumps(trace(num=2000)).encode()
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json.gz").write_bytes(gzip.compress(text[:70_000]) + gzip.compress(text[70_000:]))
    [report] = bring().files
    assert (report.num_rows, report.note) == (2000, "")


def test_rubbish_inside_gzip_is_named(tmp_path: Path, bring: Callable[..., Imported]) -> None:
    packed = bytearray(gzip.compress(json.dumps(trace(num=2000)).encode()))
    packed[len(packed) // 2 : len(packed) // 2 + 64] = bytes(64)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json.gz").write_bytes(packed)
    write(tmp_path / "in/rank1.json", trace(rank=1))
    first, second = bring().files
    assert "gzip data are damaged" in first.note or first.num_skipped
    assert first.rank == 0 and 0 < first.num_rows < 2000
    assert second.num_rows == 50


@pytest.mark.parametrize("text", [b"gemm \xff\xfe", b"gemm \x01 \x1f"], ids=["not UTF-8", "control characters"])
def test_damaged_text_costs_no_event(text: bytes, tmp_path: Path, bring: Callable[..., Imported]) -> None:
    path = write(tmp_path / "in/rank0.json", trace())
    path.write_bytes(path.read_bytes().replace(b'"gemm"', b'"' + text + b'"', 1))
    [report] = bring().files
    assert report.num_rows == 50 and report.num_skipped == 0
    assert rows(tmp_path, "SELECT count(*) FROM kernel WHERE name <> 'gemm'") == [(1,)]


def test_an_event_that_is_no_json_is_skipped_and_counted(tmp_path: Path, bring: Callable[..., Imported]) -> None:
    path = write(tmp_path / "in/rank0.json", trace())
    path.write_bytes(path.read_bytes().replace(b'"gemm"', b'"ge"mm"', 1))
    [report] = bring().files
    assert report.num_rows == 49 and report.num_skipped == 1
    assert rows(tmp_path, "SELECT num_dropped FROM process") == [(1,)]


@pytest.mark.parametrize("at", [0, 30, -1, 100])
@pytest.mark.parametrize("odd", [None, True, -1.5e3, "a, b] {", [1, "x"]])
def test_what_is_no_event_is_skipped_and_counted(
    tmp_path: Path, bring: Callable[..., Imported], odd: object, at: int
) -> None:
    document = trace()
    document["traceEvents"].insert(at, odd)
    document["traceEvents"].insert(at, odd)
    told = document.pop("distributedInfo")
    write(tmp_path / "in/a.json", document | {"distributedInfo": told | {"rank": 1}})  # behind the events
    [report] = bring().files
    assert (report.rank, report.num_rows, report.num_skipped, report.note) == (1, 50, 2, "")


def test_a_kernel_stamped_far_outside_is_not_believed(tmp_path: Path, bring: Callable[..., Imported]) -> None:
    document = trace()
    document["traceEvents"] += [kernel(100_000_000_000, "late"), kernel(-BASE_US, "zero")]
    write(tmp_path / "in/rank0.json", document)
    [report] = bring().files
    assert report.num_quarantined == 2 and report.num_rows == 50
    assert "not believed: late: 99940 s outside" in report.note or "not believed: late:" in report.note
    [(span,)] = rows(tmp_path, "SELECT max(end_ns) - min(start_ns) FROM kernel")
    assert span == 990_000


def test_an_event_without_a_time_is_counted(tmp_path: Path, bring: Callable[..., Imported]) -> None:
    document = trace()
    document["traceEvents"] += [kernel(30) | {"dur": -5}, kernel(50) | {"ts": "yesterday"}]
    write(tmp_path / "in/rank0.json", document)
    [report] = bring().files
    assert (report.num_rows, report.num_skipped) == (50, 2) and "without a usable time" in report.note


def test_a_trace_in_many_chunks_is_the_same_trace(
    tmp_path: Path, bring: Callable[..., Imported], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cuts fall anywhere: in strings with braces, in lists of objects, in the metadata behind the events."""
    document = trace(num=300)
    for n, event in enumerate(document["traceEvents"]):
        event["args"] |= {"nested": [{"a": n}, {"b": '},{ ]} \\" x'}], "text": '}, {"ph": '}
    document["tail"] = [{"x": 1}, {"y": [2]}]
    write(tmp_path / "in/a.json", document)
    monkeypatch.setattr(kineto_events, "CHUNK_BYTES", 700)
    monkeypatch.setattr(kineto_events, "_READ_BYTES", 300)
    [report] = bring().files
    assert (report.num_events, report.num_rows, report.num_skipped, report.note) == (600, 300, 0, "")


def test_layouts_of_json(tmp_path: Path, bring: Callable[..., Imported]) -> None:
    """Compact (which HTA takes for one rank), a bare list, sorted keys."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.json").write_text(json.dumps(trace(rank=0), separators=(",", ":")))
    (tmp_path / "in/1.json").write_text(json.dumps(trace(rank=1), sort_keys=True))
    (tmp_path / "in/rank2.json").write_text(json.dumps(trace(rank=None)["traceEvents"]))
    assert [(report.rank, report.num_rows, report.note) for report in bring().files] == [
        (0, 50, ""),
        (1, 50, ""),
        (2, 50, ""),
    ]


@pytest.mark.parametrize(("members", "answer"), [
    ((0, 1, 2), ([0], [1], [3])), ((0, 2, 4, 9), ([0, 9], [2, 1], [3, 1])), ((5,), ([5], [1], [1])), ((), ([], [], [])),
])  # fmt: skip
def test_members_as_runs(members: tuple[int, ...], answer: Any) -> None:
    assert run_length(members) == answer


@pytest.mark.parametrize(
    ("change", "notes"),
    [
        ({}, ""),
        ({"ts": BASE_US + 5.5}, ""),
        ({"ts": str(BASE_US + 7)}, ""),
        ({"dur": 1.25}, ""),
        ({"args": {"stream": "stream 7", "device": 0, "correlation": 6}}, ""),
        ({"args": {"stream": 7, "device": 0, "correlation": None}}, ""),
        ({"args": None}, ""),
        ({"name": 17}, ""),
        ({"dur": None}, "1 events without a usable time"),
        ({"dur": 1 << 70}, "1 events without a usable time"),
        ({"ts": 10**15}, "not believed: odd: 699999940 s outside the trace"),
        ({"args": {"stream": 1 << 70, "device": -(1 << 70), "correlation": 1 << 63}}, ""),
    ],
)
def test_the_quick_way_gives_what_the_careful_way_gives(
    change: dict[str, Any], notes: str, tmp_path: Path, bring: Callable[..., Imported], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One odd event refuses its chunk; the rows are the same, and so are the counts. So is the way for any category."""
    document = trace()
    document["traceEvents"] += [kernel(5, "odd") | change, {"ph": "M", "name": "process_name", "args": {"name": "x"}}]
    write(tmp_path / "in/rank0.json", document)
    everything = "SELECT * EXCLUDE (proc) FROM kernel ORDER BY record"
    [quick] = bring().files
    found = rows(tmp_path, everything)
    shutil.rmtree(tmp_path / "run")

    def refuse(text: bytes) -> None:
        raise kineto_events.Refused

    for name in ("_chunk_by_category", "_chunk_of_any"):
        monkeypatch.setattr(kineto_quick, name, getattr(kineto_quick, "_chunk_of_any" if "by" in name else name))
        [other] = bring().files
        assert quick == other and found == rows(tmp_path, everything)
        shutil.rmtree(tmp_path / "run")
    monkeypatch.setattr(kineto_quick, "decode", refuse)
    [careful] = bring().files
    assert quick == careful and found == rows(tmp_path, everything) and quick.num_events == 102
    assert notes in quick.note


ODD: tuple[Any, ...] = (
    None, -1, 0, 1 << 31, 1 << 63, -(1 << 70), 1e300, 0.5, "", "x", "\ud800", [], {}, [[1]], {"a": None}, True,
)  # fmt: skip


def annotated(rank: int) -> dict[str, Any]:
    """A trace with everything that is read: steps, spans, collectives with arguments, metadata."""
    document = trace(num=6, rank=rank) | {"baseTimeNanoseconds": 0, "hostName": "a"}
    told: dict[str, Any] = {
        "Collective name": "allreduce",
        "In msg nelems": 8,
        "Out msg nelems": 8,
        "dtype": "Float",
        "Rank": rank,
        "Process Group Name": "0",
        "Process Group Description": "default",
        "Process Group Ranks": "[0, 1]",
    }
    document["traceEvents"] += [
        kernel(130, "ncclDevKernel_AllReduce", **told), kernel(150, "ncclKernel_Broadcast"),
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "ts": BASE_US, "dur": 100},
        {"ph": "X", "cat": "user_annotation", "name": "nccl:all_reduce", "ts": BASE_US + 120, "dur": 20},
        {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "ts": BASE_US, "dur": 5, "args": told},
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler", "ts": BASE_US, "dur": 500},
    ]  # fmt: skip
    return document


def spoilt(document: dict[str, Any], random: Random) -> bytes:
    """One to three odd values anywhere, then perhaps a cut or a flipped byte."""
    for _ in range(random.randint(1, 3)):
        places: list[tuple[Any, Any]] = [(document, key) for key in document]
        for event in document["traceEvents"] if isinstance(document["traceEvents"], list) else []:
            if isinstance(event, dict):
                places += [(event, key) for key in event]
                places += [(event["args"], key) for key in event["args"]] if isinstance(event.get("args"), dict) else []
        if isinstance(document["distributedInfo"], dict):
            places += [(document["distributedInfo"], key) for key in document["distributedInfo"]]
        holder, key = random.choice(places)
        holder[key] = random.choice(ODD)
    text = bytearray(json.dumps(document, indent=1).encode())
    if random.random() < 0.3:
        text[random.randrange(len(text))] = random.randrange(256)
    return bytes(text[: random.randrange(len(text))] if random.random() < 0.3 else text)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_a_trace_holds_it_never_costs_another_rank(
    seed: int, tmp_path: Path, bring: Callable[..., Imported]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/bad.json").write_bytes(spoilt(annotated(0), Random(seed)))
    write(tmp_path / "in/good.json", annotated(1))
    bad, good = bring(ranks={"bad.json": 0}).files
    assert good.is_imported and good.note == "" and good.num_rows == 8 + 2 + 1 + 1
    assert bad.is_imported or (bad.note and bad.note.count("\n") == 0)
    assert rows(tmp_path, "SELECT count(*) FROM kernel WHERE rank = 1") == [(8,)]


@pytest.mark.parametrize(("ranks", "matched"), [((0,), 0), ((0, 1), 3)])
def test_one_rank_of_several_is_no_group_of_one(
    tmp_path: Path, bring: Callable[..., Imported], ranks: tuple[int, ...], matched: int
) -> None:
    for rank in ranks:
        document = trace(rank=rank, world_size=2)
        document["traceEvents"] += [
            made(2000 + 100 * n, **more) for n in range(3)
            for made, more in ((launch, {}), (kernel, {"name": "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWork*)"}))
        ]  # fmt: skip
        write(tmp_path / f"in/{rank}.json", document)
    bring()
    with Run.open(str(tmp_path / "run")) as run:
        [operations] = collectives(run).classes
    assert (operations.num_operations, operations.num_matched) == (3, matched)
    assert matched or operations.wait[0].value is None


def test_a_kernel_far_outside_is_named_in_few_words(tmp_path: Path, bring: Callable[..., Imported]) -> None:
    document = trace()
    document["traceEvents"].append(kernel(10**12, "void " + "deeply::" * 100 + "templated()"))
    write(tmp_path / "in/rank0.json", document)
    [told] = bring().files
    assert told.note.startswith("not believed: void deeply::") and len(told.note) < 120


def test_numbers_that_no_column_holds_are_none_for_hta(tmp_path: Path) -> None:
    odd = [kernel(10, stream=10**40), kernel(30, correlation="x"), kernel(50, stream="stream 9")]
    steps = [{"ph": "X", "cat": "gpu_user_annotation", "name": f"ProfilerStep#{number}", "ts": BASE_US, "dur": 90}
             for number in ("²", "9" * 40, "7")]  # fmt: skip
    found = read_events(str(write(tmp_path / "odd.json", trace(0) | {"traceEvents": odd + steps})))
    assert found.stream[:3].tolist() == [NO_NUMBER, 7, 9]
    assert [found.step_of(name) for name in found.names if name.startswith("Profiler")] == [NO_NUMBER, NO_NUMBER, 7]
