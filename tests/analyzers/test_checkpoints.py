"""Checkpoints and restarts, against answers worked out by hand."""

import pytest
from run_builder import MS, RunBuilder

from rankscope.analyzers.checkpoint_interval import daly
from rankscope.analyzers.checkpoints import checkpoints
from rankscope.analyzers.run import Run


@pytest.fixture
def build(tmp_path):
    return RunBuilder(tmp_path / "run")


def saved(build, rank, start, blocked, ended, *, incarnation=0, **more):
    """A save from `start`, blocking until `blocked`, done at `ended`, in ms; None: never."""
    columns = {"step": 1, "action": "save", "mode": "sync", "path": "/c/1", "format": "dcp", "start_ns": start * MS,
               "blocking_end_ns": None if blocked is None else blocked * MS, "bytes": 1000, "num_files": 1,
               "end_ns": None if ended is None else ended * MS, "world_size": 2, "outcome": "ok"}  # fmt: skip
    build.fact("checkpoint", rank, incarnation, **(columns | more))


def loaded(build, rank, start, ended, **more):
    saved(build, rank, start, ended, ended, **({"action": "load", "step": 3, "bytes": 2000, "num_files": 2} | more))


def steps(build, first, durations, *, incarnation=0, number=None):
    """Steps of both ranks, one after the other from `first` ms on."""
    for step, duration in enumerate(durations):
        for rank in (0, 1):
            more = {} if number is None else {"global_step": number + step}
            build.step(rank, step, first, first + duration, incarnation=incarnation, **more)
        first += duration


def answer(build, *more):
    build.entities()
    for incarnation in more:
        build.entities(incarnation=incarnation)
    with Run.open(str(build.seal())) as run:
        return checkpoints(run)


def test_times_bytes_and_intervals_of_saves(build):
    steps(build, 0, [100] * 10)
    saved(build, 0, 110, 130, 180, mode="async")
    saved(build, 1, 110, 140, 200, mode="async", bytes=3000)
    saved(build, 0, 510, 520, 520, step=5)
    saved(build, 1, 510, 540, 540, step=5)
    found = answer(build)
    first, second = found.operations
    assert (first.blocking_ns, first.total_ns, first.num_bytes, first.num_files) == (30 * MS, 90 * MS, 4000, 2)
    assert (second.blocking_ns, second.total_ns, second.outcome, second.finding) == (30 * MS, 30 * MS, "ok", "")
    assert found.time("checkpoint.blocking", "save").value == 30 * MS
    assert found.time("checkpoint.total", "save").value == 60 * MS
    assert found.time("checkpoint.bandwidth", "save").value == 6000 / 0.120
    assert found.time("checkpoint.blocking", "load").value is None
    assert found.stall.value == (20 + 10 + 30 + 30) / 2000
    assert found.interval.value == 400 * MS
    assert found.optimum.value is None and "no failure" in found.optimum.reason
    assert found.recovery.restart.value is None and found.recovery.lost_work.value is None
    assert found.recovery.effective.value == (1000 - 60) / 1000


def test_none_of_it(build):
    steps(build, 0, [100] * 2)
    found = answer(build)
    assert found.operations == () and found.stall.value is None and found.stall.reason
    assert all(item.value is None and item.reason for item in found.times)


def test_rows_told_more_than_once_count_once(build):
    saved(build, 0, 10, None, None, record=0, outcome="unfinished", bytes=None, num_files=None)
    saved(build, 0, 10, 20, None, record=0, outcome="unfinished", bytes=None, num_files=None, mode="async")
    saved(build, 0, 10, 20, 50, record=0, mode="async")
    build.seal()
    saved(build, 0, 10, 20, 50, record=0, mode="async", digest="00000000000000ff")
    (item,) = answer(build).operations
    assert (item.total_ns, item.digest, item.outcome) == (40 * MS, 255, "ok")


def test_what_went_wrong_is_found(build):
    saved(build, 0, 10, 20, 20, outcome="failed")
    saved(build, 1, 10, None, None, outcome="unfinished")
    loaded(build, 0, 30, 40)
    saved(build, 0, 50, 60, 60, path="/c/2", digest="0000000000000001")
    saved(build, 1, 50, 60, 60, path="/c/2", digest="0000000000000002")
    for rank in (0, 1):
        loaded(build, rank, 70 + rank, 80, path="/c/2", digest="0000000000000003")
        loaded(build, rank, 90 + rank, 95, path="/c/2", bytes=1999)
        loaded(build, rank, 96 + rank, 98, path="/c/2", digest="0000000000000004")
    loaded(build, 0, 99, 100, path="/elsewhere", world_size=8)
    found = [item.finding for item in answer(build).operations]
    assert found == [
        "failed on 1 of 2 ranks", "the save it reads failed", "", "", "1,999 bytes read, 2,000 were saved",
        "the files are not those that were saved (digest)", "written by 8 ranks, read by 1",
    ]  # fmt: skip


def test_a_load_is_as_large_as_the_checkpoint_whatever_each_rank_opened(build):
    for rank in (0, 1):
        saved(build, rank, 50, 60, 60)
        loaded(build, rank, 70, 80, num_files=1, bytes=900)
    loaded(build, 0, 90, 100, whole_files=2, whole_bytes=2000, read_ratio=0.25)
    loaded(build, 1, 90, 100)
    loaded(build, 0, 110, 120, whole_files=2, whole_bytes=2001, read_ratio=1.0)
    _, untold, some, other = answer(build).operations
    assert (untold.num_files, untold.num_bytes, untold.read_ratio, untold.finding) == (None, None, None, "")
    assert (some.num_files, some.num_bytes, some.read_ratio, some.finding) == (2, 2000, 0.25, "")
    assert other.finding == "2,001 bytes found, 2,000 were saved"


def test_ranks_that_share_a_file_of_its_own_count_it_once(build):
    for rank in (0, 1):
        saved(build, rank, 50, 60, 60, format="torch", bytes=1200)
        loaded(build, rank, 70, 80, format="torch", bytes=1200, num_files=1)
    found = answer(build)
    assert [(item.num_files, item.num_bytes, item.finding) for item in found.operations] == [(1, 1200, "")] * 2
    assert found.time("checkpoint.bandwidth", "load").value == 1200 / 0.010


def test_restarts(build):
    # 0..9 in 1 s, killed; goes on at 7 after 500 ms: 7, 8, 9 are done again, then 10, 11
    steps(build, 0, [100] * 10, number=0)
    for rank in (0, 1):
        saved(build, rank, 610, 630, 630, step=6)
    steps(build, 1500, [200, 100, 100, 100, 100], incarnation=1, number=7)
    found = answer(build, 1)
    cost = found.recovery
    assert cost.restart.value == 700 * MS and cost.num_failures == 1
    assert cost.lost_work.value == 300 * MS
    assert cost.effective.value == pytest.approx((1000 + 600 - 300 - 20) / 2100)
    assert found.optimum.value == pytest.approx(daly(20 * MS, 1600 * MS))
    assert found.optimum.interval.low < found.optimum.value < found.optimum.interval.high
    assert found.young_ns == pytest.approx((2 * 20 * 1600) ** 0.5 * MS)


def test_restarts_without_numbers_of_steps(build):
    steps(build, 0, [100] * 3)
    steps(build, 500, [100] * 3, incarnation=1)
    cost = answer(build, 1).recovery
    assert cost.restart.value == 300 * MS
    assert cost.lost_work.value is None and "global_step" in cost.lost_work.reason
    assert cost.effective.value is None and "global_step" in cost.effective.reason
