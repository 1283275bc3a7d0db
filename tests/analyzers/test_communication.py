"""Communication against answers worked out by hand (see `healthy_run`)."""

from pathlib import Path

import pytest
from run_builder import MS, WORLD, RunBuilder, healthy_run

from rankscope.analyzers.communication import Communication, Operations, communication
from rankscope.analyzers.groups import ranks_in_words, unfold
from rankscope.analyzers.run import Run
from rankscope.schema.measurement import Measurement


def communication_of(run_dir: Path) -> Communication:
    with Run.open(str(run_dir)) as run:
        return communication(run, 1.0)


def only(found: Communication) -> Operations:
    (item,) = found.operations
    return item


def statistic(measurements: tuple[Measurement, ...], name: str) -> object:
    return next(item.value for item in measurements if item.scope["statistic"] == name)


def test_counts_bytes_and_distributions(tmp_path: Path) -> None:
    item = only(communication_of(healthy_run(tmp_path / "run")))
    assert (item.group.label, item.op, item.count.value, item.bytes.value) == ("world", "all_reduce", 12, 12_000)
    assert (item.least_bytes, item.most_bytes, item.unfinished.value, item.timing_source) == (
        1000,
        1000,
        0,
        "wait 100 %",
    )
    # six times 30 ms on rank 0, six times 10 ms on rank 1
    assert statistic(item.host_wait, "p50") == pytest.approx(10 * MS, rel=0.01)
    assert statistic(item.host_wait, "p95") == pytest.approx(30 * MS, rel=0.01)
    assert statistic(item.duration, "max") == 30 * MS


def test_host_waits_of_the_steps(tmp_path: Path) -> None:
    found = communication_of(healthy_run(tmp_path / "run"))
    # five counted steps, 700 ms a rank: 150 and 50 ms of waits
    assert {item.scope["rank"]: item.value for item in found.host_wait} == {0: 150 * MS, 1: 50 * MS}
    assert found.share.value == 200 / 1400


def test_a_rank_whose_operations_are_lost_did_not_wait_for_nothing(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for step in range(3):
        for rank in (0, 1):
            build.step(rank, step, 100 * step, 100 * (step + 1))
        build.collective(0, step, 100 * step + 10, (100 * step + 10, 100 * step + 40), 100 * step + 40, step=step)
    build.entities()
    found = communication_of(build.seal())
    assert {item.scope["rank"]: item.value for item in found.host_wait} == {0: 60 * MS, 1: None}
    assert (found.share.value, found.share.n) == (60 / 200, 2)
    assert found.share.provenance.left_out == "ranks without any operation here: 1"


def test_waits_of_two_threads_count_each_instant_once(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run", world_size=1)
    build.step(0, 0, 0, 100)
    build.step(0, 1, 100, 200)
    for seq, (begin, end) in enumerate([(110, 150), (120, 130), (140, 160), (170, 180)]):
        build.collective(0, seq, begin, (begin, end), end)
    build.entities()
    assert communication_of(build.seal()).host_wait[0].value == 60 * MS


def test_unfinished_is_not_what_nobody_could_tell(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.collective(0, 0, 10, None, None, timing_source="none")
    build.collective(0, 1, 20, None, None)
    build.entities(exit_kind="killed")
    found = communication_of(build.seal())
    assert only(found).unfinished.value == 1
    (item,) = found.unfinished
    assert (item.op, item.seq, item.ranks, item.group.members) == ("all_reduce", 1, (0,), (0, 1))


def test_what_a_later_operation_of_the_group_overtook_is_over(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.collective(0, 0, 10, None, 12)
    build.collective(1, 0, 10, None, None)
    for rank in (0, 1):
        build.collective(rank, 1, 20, None, 22)
    build.entities(exit_kind="killed")
    assert communication_of(build.seal()).unfinished == ()


def test_a_rank_that_saw_the_operation_complete_has_issued_it(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.collective(0, 0, 10, None, 12)
    build.collective(1, 0, 10, None, None)
    build.entities(exit_kind="killed")
    (item,) = communication_of(build.seal()).unfinished
    assert (item.ranks, item.issuers) == ((1,), (0, 1))


def test_a_later_message_does_not_end_an_earlier_one(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.collective(0, 0, 10, None, None, op="recv", src=1, dst=0, tag=0)
    build.collective(0, 1, 20, None, 22, op="recv", src=1, dst=0, tag=0)
    build.entities(exit_kind="killed")
    (item,) = communication_of(build.seal()).unfinished
    assert (item.op, item.seq, item.src, item.dst) == ("recv", 0, 1, 0)


def test_waits_inside_backward_are_never_zero(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for rank in (0, 1):
        build.step(rank, 0, 0, 100)
        build.step(rank, 1, 100, 200)
        build.collective(rank, 0, 110, None, 150, phase="backward")
    build.entities()
    found = communication_of(build.seal())
    item = only(found)
    assert item.num_inside_backward == 2 and item.timing_source == "poll 100 %"
    assert item.host_wait[0].value is None and "inside backward" in item.host_wait[0].reason
    assert found.share.value is None and all(wait.value is None for wait in found.host_wait)


def test_a_run_without_communication(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run", world_size=1)
    build.step(0, 0, 0, 1)
    build.step(0, 1, 1, 2)
    build.entities()
    found = communication_of(build.seal())
    assert found.operations == () and found.share.value is None


def test_labels_of_groups_are_unique_and_speak(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run", world_size=4)
    names = {"a" * 20: ([0, 1], "tp"), "b" * 20: ([2, 3], "tp"), "c" * 20: ([0, 1], "tp"), "d" * 20: ([1, 2], None)}
    for group_id, (members, dimension) in names.items():
        build.group(group_id, members, dimension)
        build.collective(members[0], 0, 1, (1, 2), 2, group_id=group_id)
    build.collective(0, 0, 1, (1, 2), 2, group_id=WORLD)
    build.collective(0, 0, 1, (1, 2), 2, group_id="unheard-of")
    build.entities()
    labels = {item.group.group_id: item.group.label for item in communication_of(build.seal()).operations}
    assert len(set(labels.values())) == len(labels) == 6
    assert (labels["a" * 20], labels["b" * 20], labels["d" * 20], labels[WORLD]) == (
        "tp [0, 1]",
        "tp [2, 3]",
        "group [1, 2]",
        "world",
    )
    assert labels["unheard-of"] == "group unheard-"


def test_members_and_ranks_in_words() -> None:
    assert unfold([0, 8], [2, 1], [3, 2]) == (0, 2, 4, 8, 9)
    assert unfold(None, None, None) == ()
    assert ranks_in_words((0, 1, 2, 3, 8, 10, 11)) == "0-3, 8, 10, 11"
    assert ranks_in_words(()) == ""


def test_a_rank_that_was_started_again_waits_for_all_its_processes_together(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run", world_size=1)
    for incarnation, wait in ((0, 10), (1, 30)):
        for step in (0, 1):  # the first of each start does not count
            begin = 1000 * incarnation + 100 * step
            build.fact("step", 0, incarnation, step=step, start_ns=begin * MS, end_ns=(begin + 100) * MS,
                       duration_ns=100 * MS)  # fmt: skip
            build.fact("collective", 0, incarnation, step=step, group_id=WORLD, op="all_reduce", seq=step,
                       issued_ns=begin * MS, wait_begin_ns=begin * MS, wait_end_ns=(begin + wait) * MS,
                       completed_ns=(begin + wait) * MS, state="completed", timing_source="wait")  # fmt: skip
        build.entities(incarnation=incarnation)
    with Run.open(str(build.seal())) as run:
        [waited] = communication(run).host_wait
    assert (waited.scope, waited.value, waited.n) == ({"rank": 0}, 40 * MS, 2)
