"""Who is missing, against small runs with answers worked out by hand; times in ms, patience 1 s."""

from pathlib import Path
from typing import Any

import pytest
from run_builder import MS, WORLD, RunBuilder, proc_of

from rankscope.analyzers.hang import Hang, hang
from rankscope.analyzers.run import Run

SECOND = 1000


def analysed(run_dir: Path) -> Hang:
    with Run.open(str(run_dir)) as run:
        return hang(run, 1.0, patience_ns=SECOND * MS)


def builder(tmp_path: Path, world_size: int) -> RunBuilder:
    return RunBuilder(tmp_path / "run", world_size=world_size)


def came(run: RunBuilder, rank: int, *seqs: int, unfinished: int | None = None, at: int = 10, **more: Any) -> None:
    """`rank` finished `seqs` in the group and left `unfinished` open."""
    for seq in seqs:
        run.collective(rank, seq, seq, (seq, seq + 1), seq + 1, **more)
    if unfinished is not None:
        run.collective(rank, unfinished, at, None, None, **more)


def sealed(run: RunBuilder, exit_kind: str = "killed", last_seen: int = 5 * SECOND, **more: Any) -> Path:
    run.step(0, 0, 0, last_seen)
    run.entities(exit_kind=exit_kind, **more)
    return run.seal()


def test_the_rank_behind_is_missing(tmp_path: Path) -> None:
    run = builder(tmp_path, 3)
    came(run, 0, 0, 1, unfinished=2)
    came(run, 1, 0, 1)
    came(run, 2, 0, 1, unfinished=2)
    found = analysed(sealed(run))
    (verdict,) = found.verdicts
    assert (verdict.kind, verdict.ranks, found.missing) == ("hang", (1,), (1,))
    (blocked,) = found.blocked
    assert (blocked.seq, blocked.op, blocked.waiting, blocked.age_ns) == (2, "all_reduce", (0, 2), 4990 * MS)


def test_what_the_missing_rank_was_not_asked_about_is_not_what_they_wait_in(tmp_path: Path) -> None:
    run = builder(tmp_path, 3)
    came(run, 0, 0, unfinished=2, at=20)
    came(run, 1, 0, unfinished=1, at=10)  # DDP waited for it in C++; rank 1 then stands still before any hook
    came(run, 2, 0, 1, unfinished=2, at=20)
    (blocked,) = analysed(sealed(run)).blocked
    assert (blocked.seq, blocked.waiting, blocked.missing, blocked.age_ns) == (2, (0, 2), (1,), 4980 * MS)


@pytest.mark.parametrize(("exit_kind", "last_seen"), [("clean", 5 * SECOND), ("killed", SECOND // 2)])
def test_what_ended_well_or_was_in_flight_is_no_hang(tmp_path: Path, exit_kind: str, last_seen: int) -> None:
    run = builder(tmp_path, 2)
    came(run, 0, 0, unfinished=1)
    came(run, 1, 0)
    found = analysed(sealed(run, exit_kind, last_seen))
    assert (found.verdicts, found.blocked, found.measurements[0].value) == ((), (), 0)


def test_an_operation_behind_which_others_ended_was_only_not_watched(tmp_path: Path) -> None:
    run = builder(tmp_path, 2)
    came(run, 0, 0, 1, 3, unfinished=2)
    came(run, 1, 0, 1, 2, 3)
    assert analysed(sealed(run)).verdicts == ()


def test_a_victim_is_not_named_for_its_group(tmp_path: Path) -> None:
    """Rank 2 never comes to its pair with rank 1, which so never comes to its pair with rank 0."""
    run = builder(tmp_path, 3)
    run.group("late", [1, 2])
    run.group("behind", [0, 1])
    came(run, 0, 0, unfinished=1, at=10, group_id="behind")
    came(run, 1, 0, group_id="behind")
    came(run, 1, 0, unfinished=1, at=20, group_id="late")
    came(run, 2, 0, group_id="late")
    found = analysed(sealed(run))
    assert found.missing == (2,)
    assert [(item.group.label, item.missing, item.is_behind) for item in found.blocked] == [
        ("group [1, 2]", (2,), False), ("group [0, 1]", (1,), True)
    ]  # fmt: skip


def test_ranks_that_wait_for_one_another_are_all_named(tmp_path: Path) -> None:
    """Two groups called in different orders: each rank waits in the group that the other comes to next."""
    run = builder(tmp_path, 2)
    run.group("first", [0, 1])
    for group_id, waiting, away in ((WORLD, 0, 1), ("first", 1, 0)):
        came(run, waiting, 0, unfinished=1, group_id=group_id)
        came(run, away, 0, group_id=group_id)
    found = analysed(sealed(run, "failed"))  # the timeouts of these two operations
    (verdict,) = found.verdicts
    assert (found.missing, verdict.kind) == ((0, 1), "hang")
    assert verdict.text == (
        "ranks 0, 1 wait for one another; rank 0 waits for rank 1 in world (gloo); rank 1 waits for rank 0 in world"
    )


def test_where_all_came_and_nobody_finished_it_is_said_that_nobody_can_be_named(tmp_path: Path) -> None:
    run = builder(tmp_path, 2)
    came(run, 0, 0, unfinished=1)
    came(run, 1, 0, unfinished=1)
    (verdict,) = analysed(sealed(run)).verdicts
    assert (verdict.kind, verdict.ranks) == ("hang", ()) and "cannot be decided" in verdict.text


def test_a_rank_without_a_process_is_not_called_missing(tmp_path: Path) -> None:
    run = builder(tmp_path, 3)
    came(run, 0, 0, unfinished=1)
    came(run, 1, 0, unfinished=1)
    run.step(0, 0, 0, 5 * SECOND)
    run.entities(ranks=[0, 1], exit_kind="killed")
    (verdict,) = analysed(run.seal()).verdicts
    assert verdict.ranks == () and "no record of rank 2" in verdict.text


def test_a_silent_process_is_missing(tmp_path: Path) -> None:
    run = builder(tmp_path, 3)
    came(run, 0, 0, unfinished=1)
    came(run, 1, 0, unfinished=1)
    found = analysed(sealed(run))
    assert (found.missing, found.empty) == ((2,), (2,))


def test_a_receive_waits_for_a_send_that_never_came(tmp_path: Path) -> None:
    run = builder(tmp_path, 2)
    common = {"group_id": WORLD, "src": 1, "dst": 0, "tag": 0}
    run.collective(0, 0, 1, (1, 2), 2, op="recv", **common)
    run.collective(1, 0, 1, (1, 2), 2, op="send", **common)
    run.collective(0, 1, 10, None, None, op="recv", **common)
    found = analysed(sealed(run))
    assert (found.missing, found.blocked) == ((1,), ())
    assert found.verdicts[0].text == "rank 1 missing: rank 0 waiting for it; it died without a clean end"
    (pair,) = found.peers
    assert (pair.rank, pair.peer, pair.is_recv, pair.is_unsent) == (0, 1, True, True)


def test_a_missing_rank_that_waits_for_a_send_itself_did_not_die(tmp_path: Path) -> None:
    """Rank 0 waits for a send that rank 1 forgot; the others wait for both of them in the world."""
    run = builder(tmp_path, 3)
    for rank, unfinished in ((0, None), (1, 1), (2, 1)):
        came(run, rank, 0, unfinished=unfinished)
    run.collective(0, 0, 5, None, 9000, state="failed", op="recv", src=1, dst=0, tag=0)
    (verdict,) = analysed(sealed(run, "failed")).verdicts
    assert (verdict.kind, verdict.ranks) == ("hang", (0, 1))
    assert verdict.text.endswith(
        "rank 0 waits to receive from rank 1, which never sent; rank 1 waits for rank 0 in world"
    )


@pytest.mark.parametrize(
    ("odd", "what"),
    [({"op": "barrier"}, "operation"), ({"dtype": "int8"}, "dtype"), ({"bytes_in": 4}, "bytes"), ({"root": 1}, "root")],
)
def test_a_different_call_is_named_by_majority(tmp_path: Path, odd: dict[str, Any], what: str) -> None:
    run = builder(tmp_path, 3)
    came(run, 0, unfinished=0, root=0)
    came(run, 1, unfinished=0, **({"root": 0} | odd))
    came(run, 2, unfinished=0, root=0)
    (verdict,) = analysed(sealed(run)).verdicts  # and no word that nobody knows why all came and nobody finished
    assert (verdict.kind, verdict.ranks) == ("mismatch", (1,)) and f"different {what}" in verdict.text
    assert "on ranks 0, 2" in verdict.text and "on rank 1)" in verdict.text


def test_two_against_two_is_undecided(tmp_path: Path) -> None:
    run = builder(tmp_path, 4)
    for rank in range(4):
        came(run, rank, unfinished=0, dtype="float32" if rank < 2 else "float16")
    verdict = analysed(sealed(run)).verdicts[0]
    assert (verdict.kind, verdict.ranks) == ("mismatch", ()) and "cannot be decided" in verdict.text


def test_splits_of_all_to_all_may_differ(tmp_path: Path) -> None:
    run = builder(tmp_path, 2)
    for rank in range(2):
        came(run, rank, unfinished=0, op="all_to_all", bytes_in=10 + rank)
    assert all(verdict.kind != "mismatch" for verdict in analysed(sealed(run)).verdicts)


def test_who_was_killed_before_it_heard_of_the_failure_waited_as_well(tmp_path: Path) -> None:
    run = builder(tmp_path, 3)
    for rank in (0, 1, 2):
        came(run, rank, 0)
    run.collective(0, 1, 10, None, 15, state="failed")
    came(run, 2, unfinished=1, at=12)  # young, by the last moment that the run knows
    (blocked,) = analysed(sealed(run, last_seen=20)).blocked
    assert (blocked.waiting, blocked.missing) == ((0, 2), (1,))


KILLED: dict[str, Any] = {"exit_kind": "killed"}
CLEAN: dict[str, Any] = {"exit_kind": "clean", "ended_ns": 20 * MS}


def failed(error: str, at: int) -> dict[str, Any]:
    return {"exit_kind": "failed", "exit_error": error, "ended_ns": at * MS}


@pytest.mark.parametrize(
    ("end", "kind", "words"),
    [
        (failed("ValueError", 20), "dead_rank", "it ended by an exception that nothing caught (ValueError)"),
        (failed("ValueError", 8000), "dead_rank", "it ended by an exception that nothing caught (ValueError)"),
        (failed("SystemError", 18_000), "hang",
         "it lived for 9 s after they had failed and then ended by an exception that nothing caught (SystemError)"),
        (KILLED, "dead_rank", "it died without a clean end"),
        (CLEAN, "hang", "it left by itself, without an exception"),
        ({"exit_kind": "running"}, "hang", "waiting for it"),
    ],
)  # fmt: skip
def test_a_death_is_told_from_a_hang_by_who_ended_first(
    tmp_path: Path, end: dict[str, Any], kind: str, words: str
) -> None:
    run = builder(tmp_path, 3)
    came(run, 0, 0)
    came(run, 1, 0)
    came(run, 2, 0, unfinished=1)
    run.collective(0, 1, 10, None, 9000, state="failed")
    (verdict,) = analysed(sealed(run, "failed", ends={1: end})).verdicts
    assert (verdict.kind, verdict.ranks) == (kind, (1,))
    assert verdict.text.endswith(words)


@pytest.mark.parametrize(
    ("last_ms", "kind", "words"),
    [(8010, "hang", "it lived for 8 s while they waited and then died without a clean end"),
     (1010, "dead_rank", "waiting for it; it died without a clean end")],
)  # fmt: skip
def test_who_was_read_long_after_the_others_began_to_wait_hung_before_it_was_killed(
    tmp_path: Path, last_ms: int, kind: str, words: str
) -> None:
    run = builder(tmp_path, 3)
    for rank, unfinished in ((0, 1), (1, None), (2, 1)):
        came(run, rank, 0, unfinished=unfinished)
    run.add("process_sample", 0, proc=proc_of(1), rank=1, time_ns=last_ms * MS)
    (verdict,) = analysed(sealed(run, "failed", ends={1: KILLED})).verdicts
    assert (verdict.kind, verdict.ranks) == (kind, (1,))
    assert verdict.text.endswith(words)


@pytest.mark.parametrize(("failed_ms", "kind"), [(12, "dead_rank"), (9000, "hang")])
def test_where_all_were_killed_an_operation_that_failed_at_once_tells_who_went_first(
    tmp_path: Path, failed_ms: int, kind: str
) -> None:
    run = builder(tmp_path, 3)
    for rank, unfinished in ((0, None), (1, None), (2, 1)):
        came(run, rank, 0, unfinished=unfinished)
    run.collective(0, 1, 10, None, failed_ms, state="failed")
    (verdict,) = analysed(sealed(run, last_seen=10 * SECOND)).verdicts
    assert (verdict.kind, verdict.ranks) == (kind, (1,))


def test_two_missing_ranks_that_ended_differently_are_told_apart(tmp_path: Path) -> None:
    run = builder(tmp_path, 4)
    for rank, unfinished in ((0, 1), (1, None), (2, None), (3, 1)):
        came(run, rank, 0, unfinished=unfinished)
    ends = {1: KILLED, 2: failed("OSError", 9)}
    (verdict,) = analysed(sealed(run, "running", ends=ends)).verdicts
    assert (verdict.kind, verdict.ranks) == ("dead_rank", (1, 2))
    assert verdict.text.endswith(
        "rank 1 died without a clean end; rank 2 ended by an exception that nothing caught (OSError)"
    )
