"""Communication by group kind and operation: against counting every nanosecond, and its parts against the whole."""

import random
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_builder import MS, RunBuilder, healthy_run

from rankscope.analyzers import sampled
from rankscope.analyzers.exposure import exposure
from rankscope.analyzers.exposure_parts import COMMUNICATION, EXPOSED, UNKNOWN, WAIT, WHOLES, Exposure
from rankscope.analyzers.run import Run
from rankscope.analyzers.time import times

Key = tuple[str, str]
Activity = tuple[int, int, Key | None]
"""start, end, and group kind and operation; None: computation."""


def found_in(run_dir: Path) -> Exposure:
    with Run.open(str(run_dir)) as run:
        return exposure(run, 1.0)


def check_parts_sum(run_dir: Path) -> None:
    """For every rank, device and whole."""
    with Run.open(str(run_dir)) as run:
        parts, wholes = exposure(run, 1.0), times(run, 1.0)
    for name, whole in WHOLES.items():
        sums: dict[tuple[int | None, str], int] = defaultdict(int)
        for part in parts.parts:
            if part.name == name:
                sums[part.rank, part.device] += part.ns
        for line in wholes.timelines:
            assert (line.value(whole) or 0) == sums.pop((line.rank, line.device), 0), name
        assert not sums


def _activities(seed: int, num: int = 40, length: int = 300) -> list[Activity]:
    random_ = random.Random(seed)
    kinds: list[Key | None] = [None, ("tp", "all_reduce"), ("dp", "all_gather"), (UNKNOWN, UNKNOWN)]
    found = []
    for _ in range(num):
        start = random_.randrange(length)
        found.append((start, start + random_.choice((0, 1, 5, 20, 40)), random_.choice(kinds)))
    return found


def _traced(folder: Path, activities: list[Activity]) -> Path:
    """One rank's device: kernels, and a collective for each that belongs to a group."""
    build = RunBuilder(folder, world_size=1)
    for record, (start, end, key) in enumerate(activities):
        kernel_class = "compute" if key is None else "communication"
        build.fact("kernel", 0, record=record, category="kernel", name=kernel_class, kernel_class=kernel_class,
                   stream_id=7, start_ns=start, end_ns=end)  # fmt: skip
        if key is not None and key[0] != UNKNOWN:
            build.fact("collective", 0, record=record, group_id=f"{key[0]}-group", op=key[1], seq=record,
                       device_start_ns=start, device_end_ns=end, completed_ns=end, state="completed",
                       tier="imported", timing_source="trace")  # fmt: skip
    build.group("tp-group", [0], "tp")
    build.group("dp-group", [0], "dp")
    build.entities()
    return build.seal()


def _by_counting(activities: list[Activity]) -> dict[str, dict[Key, int]]:
    """Every nanosecond on its own: to the communication that began first, of those that end first, the first given."""
    computing = {at for start, end, key in activities if key is None for at in range(start, end)}
    found: dict[str, dict[Key, int]] = {COMMUNICATION: defaultdict(int), EXPOSED: defaultdict(int)}
    taken: set[int] = set()
    for _, _, start, end, key in sorted(
        (start, end, start, end, key) for start, end, key in activities if key is not None
    ):
        for at in set(range(start, end)) - taken:
            found[COMMUNICATION][key] += 1
            found[EXPOSED][key] += at not in computing
            taken.add(at)
    return found


@settings(max_examples=6)
@given(seed=st.integers(0, 10_000))
def test_it_is_what_counting_gives(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    # one activity for each begin and end: which of several that coincide comes first is then no question
    activities = list({(start, end): (start, end, key) for start, end, key in _activities(seed)}.values())
    run = _traced(tmp_path_factory.mktemp("runs") / "run", activities)
    found = found_in(run)
    for name, answer in _by_counting(activities).items():
        assert {key: ns for key, ns in found.by_kind(name).items() if ns} == {
            key: ns for key, ns in answer.items() if ns
        }
    check_parts_sum(run)


def test_a_live_run_by_hand(tmp_path: Path) -> None:
    """Two groups at once: what both cover belongs to the one that began first; what lies outside of steps to none."""
    build = RunBuilder(tmp_path / "run", world_size=1)
    build.step(0, 0, 0, 100)
    build.step(0, 1, 100, 200)
    build.step(0, 2, 200, 300)
    build.collective(0, 0, 110, (120, 150), 150)
    build.collective(0, 0, 130, (140, 170), 170, group_id="tp-group", op="all_gather")
    build.collective(0, 1, 190, (195, 210), 210)  # from one step into the next
    build.collective(0, 2, 90, (90, 105), 105)  # five of its fifteen in a step that counts
    build.group("tp-group", [0], "tp")
    build.entities()
    run = build.seal()
    found = found_in(run)
    assert found.by_kind(WAIT) == {("world", "all_reduce"): 50 * MS, ("tp", "all_gather"): 20 * MS}
    assert found.by_kind(COMMUNICATION) == {("world", "all_reduce"): 65 * MS, ("tp", "all_gather"): 20 * MS}
    assert found.exposed_by_group == {"world-group": 50 * MS, "tp-group": 20 * MS}
    assert [line.text for line in found.headlines] == ["Of the host-visible waits 71 % is all_reduce of world groups."]
    check_parts_sum(run)


def test_stalls_of_a_device_are_what_is_exposed(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run", world_size=1)
    build.step(0, 0, 0, 100)
    build.step(0, 1, 100, 200)
    build.collective(0, 0, 110, (111, 112), None, device_start_ns=120 * MS, device_end_ns=150 * MS,
                     wait_device_start_ns=140 * MS, wait_device_end_ns=150 * MS,
                     timing_source="device_event")  # fmt: skip
    build.entities()
    run = build.seal()
    found = found_in(run)
    assert found.by_kind(COMMUNICATION) == {("world", "all_reduce"): 30 * MS}
    assert found.by_kind(EXPOSED) == {("world", "all_reduce"): 10 * MS}
    check_parts_sum(run)


def test_every_measurement_is_re_derived_by_its_statement(tmp_path: Path) -> None:
    with Run.open(str(healthy_run(tmp_path / "run"))) as run:
        found = exposure(run, 1.0)
        rows = run.rows(found.measurements[0].provenance.statement)
    # five counted steps, 30 ms of waits of rank 0 and 10 ms of rank 1 in each
    assert {(row[1], row[5]) for row in rows if row[2] == "wait"} == {(0, 150 * MS), (1, 50 * MS)}
    assert {item.scope["rank"]: item.value for item in found.measurements if item.name == WAIT} == {
        0: 150 * MS, 1: 50 * MS,
    }  # fmt: skip


def test_of_very_many_rows_blocks_of_steps_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled, "MAX_ROWS", 4)
    monkeypatch.setattr(sampled, "MOST_ROWS", 4)
    found = found_in(
        healthy_run(tmp_path / "run")
    )  # 12 rows of 6 steps: one block in 3, of steps 2 and 3, of which 2 is not told
    assert found.by_kind(WAIT) == {("world", "all_reduce"): 40 * MS}
    assert "blocks of 2 steps, one in 3" in found.measurements[0].provenance.window


def test_a_run_without_collectives(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.step(0, 1, 0, 10)
    build.entities()
    found = found_in(build.seal())
    assert (found.parts, found.measurements, found.headlines) == ((), (), ())
