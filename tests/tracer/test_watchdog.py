"""Dead ranks and operations beyond the patience, from rings and journals of fake ranks; the clock is theirs."""

import itertools
from pathlib import Path

import pytest
from fake_rank import FakeRank

from rankscope.schema import ring
from rankscope.schema.enums import code
from rankscope.schema.process_state import RunRef
from rankscope.tracer.drain import ProcessDrain
from rankscope.tracer.watchdog import DEAD_RANK, HANG, Incident, Watchdog

SECOND = 1_000_000_000
START = 10**17
RUN = RunRef("run-1", "/run")


class Ranks:
    """Fake ranks of one launch on one clock, and the watchdog that sees their passes."""

    def __init__(self, folder: Path, patience_s: float) -> None:
        self.folder, self.watchdog, self.now = folder, Watchdog(patience_s), START
        self.ticks = itertools.count()
        self.ranks: list[FakeRank] = []
        self.drains: list[ProcessDrain] = []

    def add(self, num: int) -> None:
        for rank in range(num):
            made = FakeRank(self.folder, str(self.folder / "run"), rank, world_size=num,
                            now=lambda: self.now + next(self.ticks))  # fmt: skip
            self.ranks.append(made)
            self.drains.append(ProcessDrain(str(self.folder / f"{made.proc}.journal")))

    def look(self, after_s: float, dead: tuple[int, ...] = ()) -> list[Incident]:
        """A pass `after_s` seconds later."""
        self.now += int(after_s * SECOND)
        for rank, drain in enumerate(self.drains):
            if not drain.is_finished:
                drain.look()
                batch = drain.read(self.now, rank in dead)
                self.watchdog.saw(RUN, drain.state, batch, self.now, rank in dead)
        return self.watchdog.take(self.now)


@pytest.fixture
def ranks(tmp_path: Path) -> Ranks:
    return Ranks(tmp_path / "launch", 60)


def test_an_operation_beyond_the_patience_is_told_once_with_all_its_local_ranks(ranks: Ranks) -> None:
    ranks.add(3)
    for rank in ranks.ranks:
        rank.done(5)
    opened = [rank.open() for rank in ranks.ranks[:2]]
    assert ranks.look(10) == [] and ranks.look(45) == []
    (incident,) = ranks.look(10)
    assert (incident.kind, incident.ranks, incident.op, incident.seq) == (HANG, (0, 1), "all_reduce", 5)
    assert incident.since_ns - START < SECOND and incident.time_ns == START + 65 * SECOND
    assert incident.text.endswith("has been open for 65 s on ranks 0, 1")
    row = incident.row(77, 3)
    assert row.table == "incident" and row.row["evidence"]["predicate"] == f"proc = 1000 AND record = {opened[0]}"
    assert ranks.look(100) == []
    for rank, record in zip(ranks.ranks[:2], opened, strict=True):
        rank.close(record)
    ranks.ranks[1].open()
    assert ranks.look(50) == []
    assert [found.seq for found in ranks.look(50)] == [6]


def test_operations_that_always_take_long_get_ten_times_their_p99(ranks: Ranks) -> None:
    ranks.add(1)
    rank = ranks.ranks[0]
    for _ in range(30):
        record = rank.open()
        ranks.now += 20 * SECOND
        rank.close(record)
        ranks.look(1)
    rank.open()
    assert ranks.look(190) == []
    (incident,) = ranks.look(60)
    assert incident.kind == HANG


def test_an_operation_that_nobody_could_watch_is_never_called_open(ranks: Ranks) -> None:
    ranks.add(1)
    rank = ranks.ranks[0]
    record = rank.open()
    place = ring.DATA_OFFSET + record * ring.RECORD_BYTES + ring.TIMING_OFFSET
    rank.ring.view[place] = code("timing_source", "none")
    assert ranks.look(3) == [] and ranks.look(1000) == []


@pytest.mark.parametrize(
    ("error", "is_clean", "words"),
    [(None, True, ""), (None, False, "rank 1 was killed"), ("x", True, "rank 1 ended by an exception")],
)
def test_dead_ranks(ranks: Ranks, error: str | None, is_clean: bool, words: str) -> None:
    ranks.add(2)
    for rank in ranks.ranks:
        rank.done(5)
    assert ranks.look(1) == []
    if is_clean:
        ranks.ranks[1].line("exit", num_records=5, error=error)
    found = ranks.look(1, dead=(1,))
    if not words:
        assert found == []
        return
    (incident,) = found
    assert (incident.kind, incident.ranks, incident.procs) == (DEAD_RANK, (1,), (1001,))
    assert incident.text.startswith(words)
    assert incident.since_ns < START + SECOND and incident.time_ns == START + 2 * SECOND
    assert ranks.look(1) == []
