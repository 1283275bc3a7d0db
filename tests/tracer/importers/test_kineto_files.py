"""Which traces make up one run: ranks, windows, files that are none, traces of other jobs."""

from collections.abc import Callable
from pathlib import Path

import pytest
from made_trace import BASE_US, trace, write
from run_rows import rows

from rankscope.schema.errors import MixedRuns, NoEvidence, NotARun, UnreadableFile
from rankscope.tracer.importers.request import Imported


def test_two_files_of_one_rank_at_the_same_time(tmp_path: Path, bring: Callable[..., Imported]) -> None:
    write(tmp_path / "in/a.json", trace())
    write(tmp_path / "in/b.json", trace())
    first, second = bring().files
    assert first.is_imported and not second.is_imported
    assert second.note == "another file is of rank 0 at the same time"
    assert rows(tmp_path, "SELECT count(*), count(DISTINCT record) FROM kernel") == [(50, 50)]


def test_two_files_of_one_rank_years_apart_are_of_two_jobs(tmp_path: Path, bring: Callable[..., Imported]) -> None:
    later = trace()
    later["baseTimeNanoseconds"] = later.get("baseTimeNanoseconds", 0) + 400 * 86_400 * 10**9
    write(tmp_path / "in/a.json", trace())
    write(tmp_path / "in/b.json", later)
    first, second = bring().files
    assert first.is_imported and not second.is_imported
    assert second.note == "another file is of rank 0, 399 days apart: of another job, it seems; import it by itself"
    assert rows(tmp_path, "SELECT count(*) FROM kernel") == [(50,)]


@pytest.mark.parametrize("what", ["size", "time"])
def test_a_trace_of_another_job_is_doubted(tmp_path: Path, bring: Callable[..., Imported], what: str) -> None:
    first, second = trace(rank=0), trace(rank=1)
    if what == "size":
        second["distributedInfo"]["world_size"] = 64
    else:
        second["baseTimeNanoseconds"] = second.get("baseTimeNanoseconds", 0) + 400 * 86_400 * 10**9
    write(tmp_path / "in/a.json", first)
    write(tmp_path / "in/b.json", second)
    fine, doubted = bring().files
    assert (fine.note, doubted.is_imported) == ("", True)
    why = "there it has 64 ranks, in another file 2" if what == "size" else "399 days apart from the other files"
    assert doubted.note == f"of another job, it seems: {why}"
    assert rows(tmp_path, "SELECT DISTINCT exit_kind FROM process") == [(None,)]


def test_two_windows_of_one_rank_follow_one_another(tmp_path: Path, bring: Callable[..., Imported]) -> None:
    write(tmp_path / "in/a.json", trace())
    write(tmp_path / "in/b.json", trace(start=1_000_000))
    assert [report.is_imported for report in bring().files] == [True, True]
    assert rows(tmp_path, "SELECT count(*), count(DISTINCT record), count(DISTINCT proc) FROM kernel") == [
        (100, 100, 1)
    ]


def test_a_missing_rank_is_named(tmp_path: Path, bring: Callable[..., Imported]) -> None:
    for rank in (0, 1, 3):
        write(tmp_path / f"in/{rank}.json", trace(rank=rank, world_size=5))
    found = bring()
    assert (found.world_size, found.missing) == (5, (2, 4))
    assert rows(tmp_path, "SELECT world_size FROM run") == [(5,)]


def test_an_empty_folder_and_a_path_that_is_not_there(tmp_path: Path, bring: Callable[..., Imported]) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(NotARun, match="no file that ends in"):
        bring()
    with pytest.raises(UnreadableFile, match="no such file"):
        bring(tmp_path / "nowhere")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("content", [b"", b"{}", b"not json", b"\x1f\x8b", b'{"traceEvents": []}', b"[]", b"PK\3\4"])
def test_what_is_no_trace_is_one_message(content: bytes, tmp_path: Path, bring: Callable[..., Imported]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/rank0.json").write_bytes(content)
    with pytest.raises(NoEvidence, match=r"rank0\.json: "):
        bring()
    write(tmp_path / "in/rank1.json", trace(rank=1))
    assert [report.is_imported for report in bring().files] == [False, True]


def test_a_run_is_not_written_over(tmp_path: Path, bring: Callable[..., Imported]) -> None:
    write(tmp_path / "in/a.json", trace())
    bring()
    with pytest.raises(MixedRuns, match="folder of its own"):
        bring()


def test_where_the_rank_comes_from(tmp_path: Path, bring: Callable[..., Imported]) -> None:
    """In this order: the user, the metadata, the collectives' arguments, the name."""
    told = {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "ts": BASE_US, "dur": 5,
            "args": {"Rank": 1, "Process Group Ranks": "[2, 6]"}}  # fmt: skip
    by_arguments = trace(rank=None)
    by_arguments["traceEvents"].append(told)
    late = trace(rank=None) | {"distributedInfo": {"rank": 3}}  # behind the events
    write(tmp_path / "in/metadata_rank9.json", trace(rank=0))
    write(tmp_path / "in/arguments.json", by_arguments)
    write(tmp_path / "in/late.json", late)
    write(tmp_path / "in/job.rank-4.json", trace(rank=None))
    write(tmp_path / "in/mine.json", trace(rank=0))
    write(tmp_path / "in/nobody.json", trace(rank=None))
    found = {Path(report.path).name: report for report in bring(ranks={"mine.json": 5}).files}
    assert {name: report.rank for name, report in found.items()} == {
        "metadata_rank9.json": 0, "arguments.json": 6, "late.json": 3, "job.rank-4.json": 4, "mine.json": 5,
        "nobody.json": None,
    }  # fmt: skip
    assert "--rank-map" in found["nobody.json"].note
