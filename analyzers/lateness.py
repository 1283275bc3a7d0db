"""How late is each rank at the operations that it shares with others, and by whose work: one number per step and rank.

arrival = max(begin, end of the group's operation before): what is queued behind its predecessor has not been late.
wait of a rank = last arrival (over those on which causality makes others wait) - its own arrival; of several operations
in flight each instant is charged once, to the one that the rank came to first, so waits never exceed the time. lateness
of a rank = its arrival after the first arrival of those who wait; inherited = what it waited in other groups since the
group's last operation, beyond what the first rank waited (at most the lateness); own = the rest. Example (ranks 0, 1
and 2, 3 share tensors; 0, 2 and 1, 3 share data; rank 0 takes 30 ms longer): rank 1 waits 30 ms for rank 0, then both
come 30 ms late to 2 and 3; rank 0's 30 ms are own, rank 1's 30 ms inherited.

Ranks that issue operations one after the other without waiting meet at none of them: until all have waited (where no
wait is seen, as in DDP's reducer: until the next step) the operations are in flight together, and of lateness and waits
only what grows from one to the next counts. Twenty buckets 200 ms late are 200 ms late.

blame: the waits charged to an operation fall on its last rank; its inherited share goes on, operation by operation, to
whoever caused it (`MAX_PASSES` times at most). Over all ranks blame = waits, to the nanosecond.

Where a member left no row (its node is lost) the others are compared without it. What they wait there after the last of
them may have been for it: that much of their lateness elsewhere is inherited, so that nobody is blamed in its place.

Ends known by poll are only upper bounds: there an operation counts as over when the last member began it, so that a
delay between the buckets of one backward pass is still seen. Stages of a pipeline are not meant to arrive together:
between them lateness is only inherited. It cannot see: single operations of which a member left no row, and on
accelerators those of which only the launch is known. What comes out has a row per step and rank. Of a large run blocks
of steps are taken (`sampled`), of giant steps the operations of some groups (`focus`).
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .clocks import Alignment, align
from .focus import Focus, focus, forget
from .groups import unfold
from .lateness_waits import waits
from .run import Run
from .statements import statement

ANALYZER: Final = "lateness"
BLINK_NS: Final = 100_000
"""A wait that is shorter had nothing to wait for."""
MAX_PASSES: Final = 6
"""How often blame is handed on: a chain of as many kinds of groups."""
_BEGIN: Final = "coalesce(c.device_start_ns, c.issued_ns)"
_ROWS: Final = ("steps", "rows")
_ARRIVALS: Final = ("operations", "arrivals")
_LAST: Final = ("last", "missing", "missing_last")
_AFTER: Final = ("shares", "edges", "blame")
Ints = NDArray[np.int64]


class Step(NamedTuple):
    """A counted step."""

    incarnation: int
    step: int


class Inheritance(NamedTuple):
    """Waits, in ns over the run, for which `heir` came last because it had waited for `source` itself."""

    heir: int
    source: int
    amount_ns: int


@dataclass(frozen=True, slots=True)
class Lateness:
    """Arrays by (step, rank), in ns: own and inherited lateness, wait, blame. duration_ns: median over ranks, by step.

    is_known: the rank has compared operations in the step (else all four are 0). num_matched of num_operations could
    be compared. compared: what was. error_ns: of the difference of two hosts' clocks, the largest; None where
    nothing is known of it. silent: members of groups that left no row of what was compared.
    """

    ranks: tuple[int, ...]
    steps: tuple[Step, ...]
    duration_ns: Ints
    own_ns: Ints
    inherited_ns: Ints
    wait_ns: Ints
    blame_ns: Ints
    is_known: NDArray[np.bool_]
    inheritance: tuple[Inheritance, ...]
    num_matched: int
    num_operations: int
    compared: Focus
    error_ns: int | None
    silent: tuple[int, ...]

    @property
    def num_ranks(self) -> int:
        """Ranks with operations that could be compared."""
        return len(self.ranks)


def lateness(run: Run) -> Lateness:
    """The lateness of each rank of `run` in its counted steps. Leaves temporary tables _late_operation,
    _late_arrival, _late_last and _late_share for `causes`.

    Computed once for each reading of the run.
    """
    known = run.kept.get(ANALYZER)
    return known if isinstance(known, Lateness) else run.anew(lambda: _lateness(run))


def common_clock(clocks: Alignment, time: str) -> dict[str, str]:
    """What brings times of a statement to the common clock: `moved` is to be subtracted, `aligned` a join it needs.

    time: the column that says which window of the host's clock holds; the host is p.boot_id.
    """
    if clocks.is_one_host:
        return {"moved": "0", "aligned": ""}
    join = f"JOIN clock_correction z ON z.boot_id = p.boot_id AND {time} >= z.from_ns AND {time} < z.until_ns"
    return {"moved": f"(z.offset_ns + ({time} - z.from_ns) * z.drift_ppb // 1000000000)", "aligned": join}


def _lateness(run: Run) -> Lateness:
    clocks = align(run)
    compared = focus(run)
    sample = compared.sample
    error = _error(clocks)
    words = {
        "source": sample.source,
        "is_chosen": sample.of_steps.chosen,
        "is_told": sample.of_steps.is_told,
        "error_ns": error or 0,
        "blink_ns": BLINK_NS,
        **common_clock(clocks, _BEGIN),
    }
    silent = _find_silent(run, sample.source)
    for name in _ROWS:
        run.rows(statement(ANALYZER, name).format(**words))
    forget(run, compared)
    for name in _ARRIVALS:
        run.rows(statement(ANALYZER, name).format(**words))
    ((num_matched, num_operations),) = run.rows(statement(ANALYZER, "matched"))
    run.rows("DROP TABLE _late_row")
    for name in _LAST:
        run.rows(statement(ANALYZER, name))
    run.attempt(lambda: _charge(run))
    for name in _AFTER:
        run.rows(statement(ANALYZER, name).format(**words))
    _hand_on(run)
    sources = tuple(Inheritance(*row) for row in run.rows(statement(ANALYZER, "inheritance")))
    by_step = statement(ANALYZER, "by_step")
    rows = run.attempt(lambda: run.connection.sql(by_step).to_arrow_table())
    run.rows("DROP TABLE _late_wait")
    found = _as_arrays(rows, sources, (num_matched, num_operations), compared, error, silent)
    run.kept[ANALYZER] = found
    return found


def _find_silent(run: Run, source: str) -> tuple[int, ...]:
    """`_late_gone`: the members of each group that left no row of what is compared. All of them."""
    run.rows(statement(ANALYZER, "gone"))
    there: dict[int, set[int]] = defaultdict(set)
    for incarnation, rank in run.rows(f"SELECT DISTINCT incarnation, rank FROM {source} WHERE rank IS NOT NULL"):
        there[incarnation].add(rank)
    groups = run.rows(statement("clocks", "groups"))
    gone = [[rank for rank in unfold(*members) if rank not in there[number]] for _, number, *members in groups]
    told = [(group[1], group[0], ranks) for group, ranks in zip(groups, gone, strict=True) if ranks]
    if told:
        run.rows("INSERT INTO _late_gone SELECT unnest(?::BIGINT[]), unnest(?::VARCHAR[]), unnest(?::INTEGER[][])",
                 [list(column) for column in zip(*told, strict=True)])  # fmt: skip
    return tuple(sorted({rank for ranks in gone for rank in ranks}))


def _charge(run: Run) -> None:
    """`_late_wait`: the arrivals, each with what the rank waits there."""
    rows = run.connection.sql(statement(ANALYZER, "waiting")).to_arrow_table()
    charged = waits(rows)
    for name in charged.column_names:
        rows = rows.append_column(name, charged.column(name))
    run.connection.register("_charged", rows)
    run.connection.execute(statement(ANALYZER, "waits"))
    run.connection.unregister("_charged")


def _hand_on(run: Run) -> None:
    """Split the blame until nothing is handed on any more; what the last pass would hand on stays where it is."""
    run.rows(
        "CREATE OR REPLACE TEMP TABLE _late_kept (incarnation BIGINT, step BIGINT, rank INTEGER, amount_ns BIGINT)"
    )
    run.rows("CREATE OR REPLACE TEMP TABLE _late_handed (heir INTEGER, source INTEGER, amount_ns BIGINT)")
    for turn in range(MAX_PASSES + 1):
        run.rows(statement(ANALYZER, "passed"))
        if turn == MAX_PASSES:
            run.rows("DELETE FROM _late_passed")
        run.rows(statement(ANALYZER, "kept"))
        if not run.rows("SELECT 1 FROM _late_passed WHERE amount_ns > 0 LIMIT 1"):
            return
        run.rows(statement(ANALYZER, "handed"))
        run.rows(statement(ANALYZER, "next"))


def _error(clocks: Alignment) -> int | None:
    """The largest error of a difference between hosts; hosts that nothing ties take no part."""
    known = sorted(host.error_ns for host in clocks.hosts if host.error_ns is not None)
    return sum(known[-2:]) if known else None


def _as_arrays(
    rows: pa.Table, sources: tuple[Inheritance, ...], matched: tuple[int, int], compared: Focus, error_ns: int | None,
    silent: tuple[int, ...],
) -> Lateness:  # fmt: skip
    """rows: those of the statement `by_step`, in its order."""
    columns = {name: rows.column(name).to_numpy().astype(np.int64) for name in rows.column_names}
    incarnation, step, rank = (columns[name] for name in ("incarnation", "step", "rank"))
    is_head = np.ones(len(step), np.bool_)
    is_head[1:] = (incarnation[1:] != incarnation[:-1]) | (step[1:] != step[:-1])
    heads, ranks = np.flatnonzero(is_head), np.unique(rank)
    at, shape = (np.cumsum(is_head) - 1, np.searchsorted(ranks, rank)), (len(heads), len(ranks))

    def spread(name: str) -> Ints:
        found = np.zeros(shape, np.int64)
        found[at] = columns[name]
        return found

    is_known = np.zeros(shape, np.bool_)
    is_known[at] = True
    return Lateness(
        tuple(ranks.tolist()), tuple(map(Step, incarnation[heads].tolist(), step[heads].tolist())),
        columns["duration_ns"][heads], spread("own_ns"), spread("inherited_ns"), spread("wait_ns"), spread("blame_ns"),
        is_known, sources, *matched, compared, error_ns, silent,
    )  # fmt: skip
