"""Verdicts of planted runs: who, since when, why, at what cost, with evidence; and those that accuse nobody."""

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from late_run import Delays, late_run
from run_builder import MS, RunBuilder, healthy_run, proc_of

from rankscope.analyzers.run import Run
from rankscope.analyzers.stragglers import Stragglers, stragglers
from rankscope.tracer.importers.synth import synthesise
from rankscope.tracer.importers.synth_plan import Plan, straggler_of

LATE = 2


def read(path: Path, coverage: float | None = None) -> Stragglers:
    with Run.open(str(path)) as run:
        return stragglers(run, coverage)


def planted(root: Path, delays: Delays, **more: object) -> Stragglers:
    return read(late_run(RunBuilder(root, world_size=4), delays, **more))  # type: ignore[arg-type]


def only_late(rank: int, _: int) -> Mapping[str, int]:
    return {"data": 40} if rank == LATE else {}


def test_one_rank_with_its_cause_cost_and_evidence(tmp_path: Path) -> None:
    found = planted(tmp_path / "run", only_late)
    (verdict,) = found.verdicts
    assert (verdict.kind, verdict.ranks, verdict.cause, verdict.since_step) == ("straggler", (LATE,), "data", None)
    assert verdict.text == ("rank 2 makes the others wait in 29 of 29 counted steps, by 40 ms; "
                            "cause: data (100 % of it); costs 44 % of the time")  # fmt: skip
    assert verdict.cost_ns == 29 * 40 * MS and verdict.confidence == pytest.approx(0.883, abs=0.001)
    assert {item["table"] for item in verdict.evidence} == {"collective", "span"}
    (item,) = found.stragglers
    assert item.device_ns == 3 * 29 * 40 * MS and item.share == pytest.approx(40 / 90)
    values = {(entry.name, *entry.scope.values()): entry.value for entry in found.measurements}
    assert values["straggler.lateness_own", LATE] == values["straggler.cost", "2", 1, 29] == 29 * 40 * MS
    assert values["straggler.wait", 0] == 29 * 40 * MS and values["straggler.blame", LATE] == 3 * 29 * 40 * MS
    assert values["straggler.lateness_inherited", 0] == 0 == values["straggler.blame", 0]
    assert found.headlines[0].text.startswith("Straggler: rank 2 makes") and found.headlines[0].command == "stragglers"


def test_the_confidence_falls_with_the_coverage(tmp_path: Path) -> None:
    path = late_run(RunBuilder(tmp_path / "run", world_size=4), only_late)
    assert read(path, 0.5).verdicts[0].confidence == pytest.approx(read(path).verdicts[0].confidence / 2, abs=0.001)


def test_since_a_step(tmp_path: Path) -> None:
    found = planted(
        tmp_path / "run", lambda rank, step: {"gc": 30} if rank == LATE and step >= 25 else {}, num_steps=50
    )
    (verdict,) = found.verdicts
    assert (verdict.ranks, verdict.cause, verdict.since_step, verdict.cost_ns) == ((LATE,), "gc", 25, 25 * 30 * MS)
    assert "since step 25, in 25 of 25 counted steps from there" in verdict.text


def test_once(tmp_path: Path) -> None:
    found = planted(tmp_path / "run", lambda rank, step: {"checkpoint": 900} if (rank, step) == (1, 17) else {})
    (verdict,) = found.verdicts
    assert (verdict.ranks, verdict.cause, verdict.since_step) == ((1,), "checkpoint", 17)
    assert "once, in step 17" in verdict.text and verdict.cost_ns == 900 * MS


def test_all_ranks_of_a_node_are_a_set(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run", world_size=8)
    path = late_run(build, lambda rank, _: {"forward": 40} if rank in (4, 5) else {})
    for rank in range(8):
        build.add("process", proc=proc_of(rank), rank=rank, node=f"host-{rank // 2}", boot_id="same", incarnation=0)
    (path / "process" / f"{build.node}.parquet").unlink()
    build.seal()
    (verdict,) = read(path).verdicts
    assert (verdict.kind, verdict.ranks, verdict.cause) == ("straggler_set", (4, 5), "compute")
    assert verdict.text.startswith("node host-2 (ranks 4, 5) makes the others wait")


def test_two_ranks_with_nothing_in_common_have_each_their_own_cause(tmp_path: Path) -> None:
    causes: dict[int, Mapping[str, int]] = {1: {"data": 40}, 6: {"gc": 50}}
    path = late_run(RunBuilder(tmp_path / "run", world_size=8), lambda rank, _: causes.get(rank, {}))
    assert [(item.kind, item.ranks, item.cause) for item in read(path).verdicts] == [
        ("straggler", (1,), "data"), ("straggler", (6,), "gc"),
    ]  # fmt: skip


def test_different_lengths_accuse_nobody(tmp_path: Path) -> None:
    lengths = random.Random(0)
    tokens = {(rank, step): lengths.randint(0, 80) for rank in range(4) for step in range(40)}
    told = planted(tmp_path / "told", lambda rank, step: {"forward": tokens[rank, step]}, num_steps=40,
                   tokens=lambda rank, step: 100 * tokens[rank, step])  # fmt: skip
    (verdict,) = told.verdicts
    assert (verdict.kind, verdict.ranks) == ("imbalance", ()) and verdict.confidence > 0.8
    assert "tokens differ" in verdict.text and "nobody to name" in verdict.text
    untold = planted(tmp_path / "untold", lambda rank, step: {"forward": tokens[rank, step]}, num_steps=40)
    assert (untold.verdicts[0].kind, untold.verdicts[0].ranks) == ("imbalance", ())
    assert untold.verdicts[0].text.startswith("computation takes longer on one rank, then on another")


def test_even_load_accuses_nobody(tmp_path: Path) -> None:
    jitter = random.Random(0)
    found = planted(tmp_path / "run", lambda rank, step: {"forward": jitter.randint(0, 3)})
    (verdict,) = found.verdicts
    assert (verdict.kind, verdict.ranks) == ("nothing", ()) and "take turns" in verdict.text
    assert found.headlines == () and found.cost == ()


def test_too_little_to_go_by_is_no_verdict_but_a_reason(tmp_path: Path) -> None:
    few = read(healthy_run(tmp_path / "few"))
    assert few.verdicts == () and few.reason == "5 counted steps, of 20 that it takes to call a rank late"
    alone = read(late_run(RunBuilder(tmp_path / "alone", world_size=1), lambda *_: {}))
    assert alone.verdicts == () and alone.reason == "of no operation did all members leave a begin on a common clock"
    build = RunBuilder(tmp_path / "one")
    build.entities(ranks=[0])
    assert read(build.seal()).reason == "one rank alone has nobody to be late to"
    build = RunBuilder(tmp_path / "short")
    build.step(0, 0, 0, 100)
    build.entities()
    assert read(build.seal()).reason.startswith("no counted step: the run has fewer than two steps")
    build = RunBuilder(tmp_path / "none")
    build.step(0, 1, 0, 100)
    build.entities()
    none = read(build.seal())
    assert none.verdicts == () and none.reason.startswith("no counted step has an operation") and not none.measurements


def test_the_same_answer_whatever_the_order_of_rows_and_files(tmp_path: Path) -> None:
    def split(root: Path, shuffle: random.Random | None) -> Path:
        build = RunBuilder(root, world_size=4)
        kept = RunBuilder(root / "x", world_size=4)
        late_run(kept, only_late)
        with Run.open(str(kept.root)) as run:
            for table in ("collective", "span", "step"):
                names = [row[0] for row in run.rows(f"DESCRIBE {table}") if row[0] not in ("incarnation", "node")]
                rows = [
                    dict(zip(names, row, strict=True)) for row in run.rows(f"SELECT {', '.join(names)} FROM {table}")
                ]
                if shuffle:
                    shuffle.shuffle(rows)
                for number, row in enumerate(rows):
                    build.add(table, 0, **row)
                    if number == len(rows) // 2:
                        build.seal()
        build.entities()
        return build.seal()

    plain, other = read(split(tmp_path / "a", None)), read(split(tmp_path / "b", random.Random(1)))
    assert plain.verdicts == other.verdicts and plain.verdicts[0].ranks == (LATE,)
    assert [item.value for item in plain.measurements] == [item.value for item in other.measurements]


@pytest.mark.parametrize(("late", "said"), [(1, "mostly rank 2 (in 59 of them): too little"), (0, "take turns")])
def test_nobody_is_said_to_take_turns_where_one_rank_is_always_last(tmp_path: Path, late: int, said: str) -> None:
    found = planted(tmp_path / "run", lambda rank, _: {"forward": late} if rank == LATE else {}, num_steps=60)
    (verdict,) = found.verdicts
    assert (verdict.kind, verdict.ranks) == ("nothing", ()) and said in verdict.text


def test_who_is_late_only_for_a_part_is_said_to_be_where_it_is_not_named(tmp_path: Path) -> None:
    """Of 100 ms: too little before the change is beyond doubt, too short where the steps are."""
    jitter = random.Random(0)

    def late(rank: int, step: int, by: int) -> dict[str, int]:
        return {"forward": jitter.randint(0, 2) + (by if rank == LATE and step >= 40 else 0)}

    little = planted(tmp_path / "little", lambda rank, step: late(rank, step, 4), num_steps=80)
    assert little.verdicts[0].kind == "nothing"
    assert "mostly rank 2 from step 40 to 79 (in 40 of 40 steps): too little to name it" in little.verdicts[0].text
    short = planted(tmp_path / "short", lambda rank, step: late(rank, step + 25, 40), num_steps=34)
    assert short.verdicts[0].kind == "nothing"
    assert ": less than the 2 s that it takes to name it" in short.verdicts[0].text


def test_the_example_of_synth(tmp_path: Path) -> None:
    """A rank that becomes late by 5 % of a step in its middle."""
    plan = Plan(ranks=16, dp=4, tp=4, stragglers=(straggler_of("5:data:3ms:50", 100),), clock_offset_ns=50_000_000)
    synthesise(plan, str(tmp_path / "run"))
    (verdict,) = read(tmp_path / "run").verdicts
    assert (verdict.kind, verdict.ranks, verdict.since_step, verdict.cause) == ("straggler", (5,), 50, "data")
