"""Collectives taken apart, against answers worked out by hand, and what must not change them."""

import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_builder import MS, RunBuilder, healthy_run

from rankscope.analyzers import sampled as sampling
from rankscope.analyzers.bandwidth import bus_factor
from rankscope.analyzers.collectives import Collectives, collectives
from rankscope.analyzers.listed import Operation, listed
from rankscope.analyzers.matched import matched
from rankscope.analyzers.run import Run
from rankscope.schema.measurement import Measurement


def found_in(run_dir: Path) -> Collectives:
    with Run.open(str(run_dir)) as run:
        return collectives(run, 1.0)


def operations_of(run_dir: Path) -> tuple[Operation, ...]:
    with Run.open(str(run_dir)) as run:
        return listed(matched(run), 1 << 62)


def waits(operation: Operation) -> dict[int, int]:
    return {member.rank: member.wait_ns // MS for member in operation.members}


def statistic(measurements: tuple[Measurement, ...], name: str) -> Any:
    return next(item.value for item in measurements if item.scope["statistic"] == name)


def operation(build: RunBuilder, seq: int, times: dict[int, tuple[int, int]], **more: Any) -> None:
    """One operation; times: rank -> (issued, completed), ms."""
    for rank, (issued, done) in times.items():
        build.collective(rank, seq, issued, (issued, done), done, **more)


def build_one(folder: Path, times: dict[int, tuple[int, int]], **more: Any) -> Path:
    build = RunBuilder(folder, world_size=len(times))
    operation(build, 0, times, **more)
    build.entities()
    return build.seal()


def test_a_healthy_run_by_hand(tmp_path: Path) -> None:
    found = found_in(healthy_run(tmp_path / "run"))
    [item] = found.classes
    assert (item.group_kind, item.op, item.size_class, item.num_matched, item.num_named) == (
        "world", "all_reduce", 1024, 6, 6,
    )  # fmt: skip
    assert statistic(item.wait, "max") == 20 * MS and statistic(item.wait, "p50") == 0 and item.wait[0].n == 12
    assert statistic(item.transfer, "max") == 10 * MS and item.transfer[0].n == 6
    assert statistic(item.end_skew, "max") == 0
    # 1000 bytes in 10 ms; two ranks: busbw = algbw x 2 (2 - 1) / 2
    assert statistic(item.algbw, "mean") == 100_000 and statistic(item.busbw, "mean") == 100_000
    assert [(one.scope, one.value, one.n) for one in found.caused] == [({"rank": 1}, 120 * MS, 6)]
    assert found.unmatched == () and [line.text for line in found.headlines] == [
        "Of the time in 6 matched collectives 50 % is waiting for the last rank."
    ]


def test_ends_that_do_not_coincide_accuse_nobody(tmp_path: Path) -> None:
    """Rank 1 seems to come 20 ms late and to end 20 ms late: its clock may be 20 ms ahead."""
    [same] = operations_of(build_one(tmp_path / "a", {0: (0, 30), 1: (20, 50)}))
    assert (same.last_rank, same.end_skew_ns) == (None, 20 * MS)
    [late] = operations_of(build_one(tmp_path / "b", {0: (0, 30), 1: (21, 50)}))
    assert late.last_rank == 1
    assert found_in(tmp_path / "a").caused == ()


def test_two_that_come_last_together_are_not_told_apart(tmp_path: Path) -> None:
    [found] = operations_of(build_one(tmp_path / "run", {0: (0, 30), 1: (20, 30), 2: (20, 30)}))
    assert found.last_rank is None and waits(found) == {0: 20, 1: 0, 2: 0}


def test_of_a_broadcast_the_others_wait_for_the_root(tmp_path: Path) -> None:
    # the root leaves early; rank 2 comes after it and makes nobody wait
    [found] = operations_of(build_one(tmp_path / "run", {0: (0, 30), 1: (10, 12), 2: (25, 32)}, op="broadcast", root=1))
    assert waits(found) == {0: 10, 1: 0, 2: 0} and found.last_rank == 1 and found.end_skew_ns is None
    assert found.transfer_ns == 7 * MS  # rank 2: 25 to 32; rank 0: 10 to 30; the lower of two medians


def test_of_a_reduce_only_the_root_waits(tmp_path: Path) -> None:
    [found] = operations_of(build_one(tmp_path / "run", {0: (0, 2), 1: (5, 40), 2: (30, 31)}, op="reduce", root=1))
    assert waits(found) == {0: 0, 1: 25, 2: 0} and found.last_rank == 2 and found.transfer_ns == 10 * MS


def test_a_receive_waits_for_its_send(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    pair = {"src": 0, "dst": 1, "tag": 7}
    build.collective(0, 0, 20, (20, 21), 21, op="send", **pair)
    build.collective(1, 0, 5, (5, 24), 24, op="recv", **pair)
    build.collective(0, 0, 50, (50, 60), 60, op="send", src=0, dst=1, tag=8)  # the same number under another tag
    build.collective(1, 0, 58, (58, 60), 60, op="recv", src=0, dst=1, tag=8)
    build.entities()
    first, second = operations_of(build.seal())
    assert (first.op, first.src, first.dst, first.tag, waits(first), first.transfer_ns) == (
        "send_recv", 0, 1, 7, {0: 0, 1: 15}, 4 * MS,
    )  # fmt: skip
    assert waits(second) == {0: 0, 1: 0} and second.transfer_ns == 2 * MS
    assert first.busbw == 250_000 == first.algbw


def test_queued_behind_its_predecessor_is_not_late(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    operation(build, 0, {0: (0, 100), 1: (5, 100)})
    operation(build, 1, {0: (10, 120), 1: (30, 120)})
    build.entities()
    _, second = operations_of(build.seal())
    assert waits(second) == {0: 0, 1: 0} and second.transfer_ns == 20 * MS


def test_a_late_look_at_a_predecessor_makes_nobody_late(tmp_path: Path) -> None:
    """Rank 1 polls at 200 ms only and finds both complete, which rank 0 knew at 100 and 120."""
    build = RunBuilder(tmp_path / "run")
    for seq, issued, done in ((0, 0, 100), (1, 1, 120)):
        build.collective(0, seq, issued, None, done)
        build.collective(1, seq, issued, None, 200)
    build.entities()
    first, second = operations_of(build.seal())
    assert (first.transfer_ns, second.transfer_ns) == (100 * MS, 20 * MS)
    assert second.last_rank is None and second.end_skew_ns == 80 * MS


def test_device_times_are_taken_where_all_members_have_them(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for rank, start in ((0, 10), (1, 40)):
        build.collective(rank, 0, 0, None, 60, device_start_ns=start * MS, device_end_ns=50 * MS)
    build.collective(0, 1, 70, None, 90, device_start_ns=75 * MS, device_end_ns=80 * MS)
    build.collective(1, 1, 70, None, 90)
    build.entities()
    run = build.seal()
    [found] = operations_of(run)
    assert waits(found) == {0: 30, 1: 0} and found.transfer_ns == 10 * MS and found.timing_source == "device"
    assert [item.reason for item in found_in(run).unmatched] == [
        "some members have device times of it and some have not"
    ]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ({0: {}}, "not every member left a row of it"),
        ({0: {}, 1: {"completed_ns": None}}, "not every member left its end"),
        ({0: {}, 1: {"issued_ns": 100 * MS}}, "it seems to end before its last member came"),
        ({0: {"op": "coalesced"}, 1: {"op": "coalesced"}}, "who waits for whom is not known"),
        ({0: {"op": "broadcast"}, 1: {"op": "broadcast"}}, "nobody told its root"),
        ({0: {"group_id": "elsewhere"}, 1: {"group_id": "elsewhere"}}, "nobody told the members"),
    ],
)
def test_what_is_not_matched_says_why(rows: dict[int, dict[str, Any]], reason: str, tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for rank, changed in rows.items():
        build.collective(rank, 0, 10, (10, 30), 30, **changed)
    build.entities()
    found = found_in(build.seal())
    [item] = found.unmatched
    assert item.reason.startswith(reason) and item.num_operations == 1
    for one in found.measurements:
        assert not one.name.startswith("collective.") or (one.value is None and one.reason)


def test_a_number_that_occurs_twice_is_not_matched(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for at in (0, 100):
        operation(build, 0, {0: (at, at + 20), 1: (at + 5, at + 20)})
    build.entities()
    [item] = found_in(build.seal()).unmatched
    assert item.reason.startswith("its number occurs twice")


def test_one_rank_waits_for_nobody_and_moves_nothing(tmp_path: Path) -> None:
    [item] = found_in(build_one(tmp_path / "run", {0: (0, 10)})).classes
    assert (statistic(item.wait, "max"), statistic(item.busbw, "p50"), item.num_named) == (0, 0, 0)


def test_a_run_without_collectives(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.step(0, 0, 0, 10)
    build.entities()
    found = found_in(build.seal())
    assert (found.classes, found.caused, found.placement, found.headlines, found.unmatched) == ((), (), (), (), ())
    assert [(item.name, item.value) for item in found.measurements] == [("network.amplification", None)]


@pytest.mark.parametrize(
    ("op", "factor"),
    [("all_reduce", Fraction(7, 4)), ("all_gather", Fraction(7, 8)), ("reduce_scatter_tensor", Fraction(7, 8)),
     ("all_to_all_single", Fraction(7, 8)), ("broadcast", 1), ("reduce", 1), ("send_recv", 1), ("barrier", None)],
)  # fmt: skip
def test_factors_are_those_of_nccl_tests(op: str, factor: Fraction | None) -> None:
    assert bus_factor(op, 8) == factor


def test_bytes_of_gathers_are_the_full_ones_and_of_uneven_exchanges_the_largest(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    operation(build, 0, {0: (0, 10), 1: (0, 10)}, op="all_gather", bytes_in=500, bytes_out=1000)
    operation(build, 1, {0: (20, 30), 1: (20, 30)}, op="reduce_scatter", bytes_in=1000, bytes_out=500)
    for rank, size in ((0, 300), (1, 700)):
        operation(build, 2, {rank: (40, 50)}, op="all_to_all_single", bytes_in=size, bytes_out=1000 - size)
    build.entities()
    assert [item.size_bytes for item in operations_of(build.seal())] == [1000, 1000, 700]


def test_many_groups_of_one_dimension_are_taken_together(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run", world_size=40)
    for pair in range(20):
        members = [2 * pair, 2 * pair + 1]
        build.group(f"tp{pair}", members, "tp")
        operation(build, 0, {members[0]: (0, 30), members[1]: (pair, 30)}, group_id=f"tp{pair}")
    build.entities()
    [item] = found_in(build.seal()).classes
    assert (item.group_kind, item.num_groups, item.num_matched, item.group) == ("tp", 20, 20, None)
    assert statistic(item.wait, "max") == 19 * MS and item.wait[0].scope["num_groups"] == 20


def test_of_very_many_rows_windows_of_numbers_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = RunBuilder(tmp_path / "run")
    for seq in range(1000):
        operation(build, seq, {0: (10 * seq, 10 * seq + 9), 1: (10 * seq + 2, 10 * seq + 9)})
    build.entities()
    run = build.seal()
    everything = found_in(run)
    monkeypatch.setattr(sampling, "MAX_ROWS", 500)
    [some] = found_in(run).classes
    [all_of_them] = everything.classes
    assert all_of_them.num_matched == 1000 and some.num_matched == 4 * 63
    assert [item.value for item in some.measurements] == [item.value for item in all_of_them.measurements]
    assert some.wait[0].provenance.window == "blocks of 64 sequence numbers, one in 4, evenly over the run"


def test_a_damaged_file_is_left_out(tmp_path: Path) -> None:
    run = healthy_run(tmp_path / "run", pieces=3)
    path = sorted((run / "collective").rglob("*.parquet"))[1]
    data = bytearray(path.read_bytes())
    data[8 : len(data) // 3] = bytes(byte ^ 0x5A for byte in data[8 : len(data) // 3])
    path.write_bytes(bytes(data))
    with Run.open(str(run)) as opened:
        [item] = collectives(opened, None).classes
        assert len(opened.faults) == 1 and item.num_matched == 4 == len(listed(matched(opened), 10))


def test_the_statement_of_a_measurement_gives_its_numbers(tmp_path: Path) -> None:
    with Run.open(str(healthy_run(tmp_path / "run"))) as run:
        found = matched(run)
        for name in ("totals", "distributions", "caused", "unmatched"):
            assert run.rows(found.statement(name)) == found.rows(name)


def _on_two_hosts(folder: Path, shift: int, drift_ppm: int = 0) -> Path:
    """Two ranks on two hosts, 60 operations, rank 1 5 ms late for every third; its clock is `shift` ms ahead."""
    build = RunBuilder(folder)

    def told(rank: int, moment_ns: int) -> int:
        return moment_ns + (shift * MS + moment_ns * drift_ppm // 1_000_000 if rank else 0)

    for seq in range(60):
        begin = 1000 * MS + 20 * seq * MS
        for rank in (0, 1):
            issued = told(rank, begin + (5 * MS if rank and seq % 3 == 0 else seq % 2 * MS // 10))
            ended = told(rank, begin + 8 * MS)
            build.collective(rank, seq, 0, None, 0, issued_ns=issued, wait_begin_ns=issued, wait_end_ns=ended,
                             completed_ns=ended, timing_source="wait")  # fmt: skip
    build.entities()
    for row in build.rows["process", None]:
        row["boot_id"], row["node"] = f"boot-{row['rank']}", f"host-{row['rank']}"
    return build.seal()


@pytest.mark.parametrize(("shift", "drift_ppm"), [(0, 0), (50, 0), (-7_000, 20)])
def test_hosts_whose_clocks_differ_are_aligned(shift: int, drift_ppm: int, tmp_path: Path) -> None:
    run = _on_two_hosts(tmp_path / "run", shift, drift_ppm)
    with Run.open(str(run)) as opened:
        matching_ = matched(opened)
        found = listed(matching_, 1 << 62)
    error = matching_.error_ns
    assert 0 < error < MS // 4 and len(found) == 60
    for one in found:
        late = 5 * MS if one.seq % 3 == 0 else one.seq % 2 * MS // 10
        first = one.seq % 2 * MS // 10
        answer = late - first if one.seq % 3 == 0 else 0
        assert abs(one.wait_ns - answer) <= error and one.end_skew_ns is not None and one.end_skew_ns <= error
        assert one.last_rank == (1 if one.seq % 3 == 0 else None)


def _built(folder: Path, seed: int, *, shuffle: bool = False, pieces: int = 1, renamed: bool = False) -> Path:
    """Random operations of four ranks; the rows in any order, in several files, with ranks swapped pairwise."""
    random_, build = random.Random(seed), RunBuilder(folder, world_size=4)
    rank_of = {0: 1, 1: 0, 2: 3, 3: 2} if renamed else {rank: rank for rank in range(4)}
    order = random.Random(seed + 1)
    for seq in range(12):
        begin, kind = 100 * seq, random_.choice(("all_reduce", "broadcast", "reduce", "all_gather"))
        issued = [begin + random_.randrange(40) for _ in range(4)]
        ends = [begin + 50 + random_.randrange(3) for _ in range(4)]
        for rank in range(4):
            build.collective(rank_of[rank], seq, issued[rank], (issued[rank], ends[rank]), ends[rank], op=kind,
                             root=rank_of[seq % 4])  # fmt: skip
        for rank in (0, 1):
            build.collective(rank_of[rank], seq, begin + 55 + rank, (begin + 60, begin + 62), begin + 62,
                             group_id="pair")  # fmt: skip
        if pieces > 1 and seq % 4 == 3:
            build.seal(shuffle=order if shuffle else None)
    build.group("pair", [0, 1], "tp")
    build.entities()
    return build.seal(shuffle=order if shuffle else None)


def _values(found: Collectives, rank_of: dict[int, int] | None = None) -> list[Any]:
    def scope(item: Measurement) -> Any:
        told = dict(item.scope)
        if rank_of is not None and "rank" in told:
            told["rank"] = rank_of[told["rank"]]
        return sorted((key, str(value)) for key, value in told.items())

    return sorted((item.name, scope(item), item.value, item.n) for item in found.measurements)


@settings(max_examples=3)
@given(seed=st.integers(0, 10_000))
def test_order_files_and_names_of_ranks_change_nothing(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("runs")
    plain = _values(found_in(_built(folder / "plain", seed)))
    assert _values(found_in(_built(folder / "files", seed, shuffle=True, pieces=3))) == plain
    swapped = found_in(_built(folder / "ranks", seed, renamed=True))
    assert _values(swapped, {0: 1, 1: 0, 2: 3, 3: 2}) == plain


def test_threads_change_nothing(tmp_path: Path) -> None:
    run = str(_built(tmp_path / "run", 7))
    found = []
    for threads in (1, 2):
        with Run.open(run, threads=threads) as opened:
            found.append((collectives(opened, 1.0).measurements, listed(matched(opened), 1 << 62)))
    assert found[0] == found[1] and found[0][1]


@settings(max_examples=4)
@given(seed=st.integers(0, 10_000))
def test_waiting_and_transfer_are_the_whole_time(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of every rank: from its arrival to the last one it waits, from there to its own end the transfer lasts."""
    for found in operations_of(_built(tmp_path_factory.mktemp("runs") / "run", seed)):
        assert sum(member.wait_ns for member in found.members) == found.wait_ns
        if found.end_skew_ns is None:
            continue
        ends = [member.done_ns for member in found.members if member.done_ns is not None]
        assert max(ends) - min(ends) == found.end_skew_ns and len(ends) == len(found.members)
        for member in found.members:
            assert member.arrival_ns + member.wait_ns == found.last_arrival_ns
        assert found.last_arrival_ns + found.transfer_ns in ends
