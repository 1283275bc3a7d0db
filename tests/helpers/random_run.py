"""Runs made of drawn numbers, as rows that can be permuted, split, shifted and renamed before they are written.

Times are small whole milliseconds, so that a test can count every one of them by hand.
"""

import random
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from run_builder import MS, WORLD, RunBuilder, proc_of

from rankscope.analyzers.questions import QUESTIONS
from rankscope.analyzers.run import Run

STEP_MS: Final = 40
NUM_STEPS: Final = 4
KINDS: Final = ("data", "forward", "backward", "optimizer", "gc", "checkpoint")
TIMES: Final = frozenset({
    "start_ns", "end_ns", "issued_ns", "returned_ns", "wait_begin_ns", "wait_end_ns", "completed_ns", "time_ns",
    "blocking_end_ns", "device_start_ns", "device_end_ns", "monotonic_ns",
})  # fmt: skip
"""Columns that hold a moment, not a duration."""
Rows = dict[tuple[str, int | None], list[dict[str, Any]]]
Numbers = dict[tuple[str, str, str], tuple[str, int, str]]


def random_rows(seed: int, num_ranks: int = 3) -> Rows:
    """The rows of one run: steps, spans that overlap, collectives (some late, some without a completion), batches,
    checkpoints, memory and a loss.
    """
    draw = random.Random(seed)
    build = RunBuilder(Path(), world_size=num_ranks)
    for rank in range(num_ranks):
        for step in range(NUM_STEPS):
            _step(build, draw, rank, step)
    build.entities()
    if draw.random() < 0.3:
        build.rows["process", None][0]["exit_kind"] = "killed"
    return {key: deepcopy(rows) for key, rows in build.rows.items()}


def write(root: Path, rows: Rows, *, num_ranks: int = 3, pieces: int = 1, shuffle: random.Random | None = None) -> str:
    """The run directory: each table's rows in `pieces` files (entities always in one), shuffled if asked to."""
    build = RunBuilder(root, world_size=num_ranks)
    for piece in range(pieces):
        for (table, incarnation), every in rows.items():
            chosen = every if incarnation is None else every[piece::pieces]
            if chosen and (incarnation is not None or piece == pieces - 1):
                build.rows[table, incarnation] = deepcopy(chosen)
        build.seal(shuffle=shuffle)
    return str(root)


def numbers(run: str, *, threads: int | None = None) -> Numbers:
    """What every question answers: (question, name, scope) -> value, n and interval, floats to the last bit."""
    with Run.open(run, threads=threads) as opened:
        answers = [(question, question.ask(opened, 1.0)) for question in QUESTIONS]
        return {(question.name, item.name, repr(sorted(item.scope.items(), key=str))):
                (repr(item.value), item.n, repr(item.interval))
                for question, answer in answers if answer is not None for item in answer.measurements}  # fmt: skip


def shifted(rows: Rows, by_ms: int) -> Rows:
    """All clocks, by the same."""
    return _changed(rows, lambda row: {
        name: value + by_ms * MS if name in TIMES and value is not None else value for name, value in row.items()
    })  # fmt: skip


def renamed(rows: Rows, ranks: list[int]) -> Rows:
    """Rank r becomes ranks[r], in every row that names one."""
    procs = {proc_of(rank): proc_of(new) for rank, new in enumerate(ranks)}

    def change(row: dict[str, Any]) -> dict[str, Any]:
        new = dict(row)
        for name in ("rank", "local_rank", "src", "dst", "root"):
            if new.get(name) is not None:
                new[name] = ranks[new[name]]
        if new.get("proc") is not None:
            new["proc"] = procs[new["proc"]]
        return new

    return _changed(rows, change)


def _changed(rows: Rows, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Rows:
    return {key: [change(row) for row in every] for key, every in rows.items()}


def _step(build: RunBuilder, draw: random.Random, rank: int, step: int) -> None:
    begin, end = step * STEP_MS, (step + 1) * STEP_MS
    for _ in range(draw.randrange(6)):
        start = begin + draw.randrange(STEP_MS)
        build.span(rank, step, draw.choice(KINDS), start, start + draw.randrange(15))
    for number in range(2):
        seq, issued = 2 * step + number, begin + 20 * number + draw.randrange(10)
        done = begin + 20 * number + 10 + draw.randrange(8)
        waited = (issued + 1, done) if draw.random() < 0.8 and issued < done else None
        is_lost = draw.random() < 0.05
        build.collective(rank, seq, issued, None if is_lost else waited, None if is_lost else done, step=step,
                         group_id=WORLD, bytes_in=1000 * (number + 1))  # fmt: skip
        row = build.rows["collective", 0][-1]  # two ranks never come at the same nanosecond: who is last is no tie
        row["issued_ns"] += draw.randrange(MS)
        if not is_lost:
            row["completed_ns"] += draw.randrange(MS)
    build.fact("sample_batch", rank, step=step, epoch=0, loader="Text", time_ns=(begin + 9) * MS,
               wait_ns=draw.randrange(9) * MS, num_samples=4)  # fmt: skip
    build.fact("memory", rank, step=step, time_ns=end * MS, rss_bytes=draw.randrange(10**6), device_uuid=None)
    build.fact("metric", rank, step=step, time_ns=end * MS, name="loss", value=draw.random())
    if step == 2:
        build.fact("checkpoint", rank, step=step, action="save", mode="sync", format="torch", path=f"/c/{rank}",
                   start_ns=(end - 5) * MS, blocking_end_ns=end * MS, end_ns=end * MS, bytes=100, num_files=1,
                   outcome="ok")  # fmt: skip
    build.step(rank, step, begin, end)
