"""Operations matched over the ranks: who arrived when, who was waited for, when it was over, what cannot be matched.

Matched by (group, seq), sends and receives by (group, source, destination, tag, seq). Device times are taken where all
members have them, else the host's. Which rank makes which wait depends on the kind of operation: after an all_reduce
all go on together; of a broadcast the others wait for the root, of a reduce the root for the others, a receive for its
send. Example: arrivals at 0, 5 and 9 ms and ends at 12, 12 and 12.1 ms: waits 9, 4 and 0, transfer 3, end skew 0.1 ms.

The ends of a synchronous operation coincide, so what they differ by is how far its times can be trusted. The last rank
is named only if it came later than the last but one by more than the end skew and the error between the hosts' clocks;
then no error of that size can have made it the last. Ranks on several hosts are matched on aligned clocks.

Two tables are kept in the run's connection: `_member` (rank and operation) and `_operation`. Cost: one sort of the
collectives; of very many rows blocks of steps are taken (`sampled`).
"""

import re
from dataclasses import dataclass
from typing import Final

from .clocks import align
from .run import Row, Run
from .sampled import Sample, few_sampled
from .statements import statement

ANALYZER: Final = "collectives"
TABLES: Final = ("collective", "process", "process_group")
SOURCE: Final = (
    "_member and _operation are left in the reader's connection by rankscope.analyzers.matched: statements member and "
    "operation of collectives.sql"
)
NOBODY: Final = 1 << 62
"""A clock error that names nobody, ns."""
_KEPT: Final = "matching"
_ALIGNED: Final = re.compile(r"aligned_ns\(([^()]*)\)")
_CORRECTED: Final = r"(\1) - k.offset_ns - ((\1) - k.from_ns) * k.drift_ppb // 1000000000"
_CORRECTION: Final = (
    "LEFT JOIN clock_correction k ON k.boot_id = h.boot_id AND coalesce(c.device_start_ns, c.issued_ns) >= k.from_ns "
    "AND coalesce(c.device_start_ns, c.issued_ns) < k.until_ns "
)
_ENDED: Final = "done_ns AS ended_ns"
_ENDED_TOGETHER: Final = (
    "CASE WHEN kind = 'all' AND is_polled THEN min(done_ns) OVER (PARTITION BY incarnation, group_id, op, seq, pair) "
    "ELSE done_ns END AS ended_ns"
)


@dataclass(frozen=True, slots=True)
class Matching:
    """The matched operations of a run, or of a sample of it.

    error_ns: between the clocks of any two hosts; 0 on one host. is_polled: some ends are only known to have been seen.
    """

    run: Run
    sample: Sample
    error_ns: int
    is_polled: bool

    def rows(self, name: str, **values: int) -> list[Row]:
        """The rows of a statement of `collectives.sql` over `_member` and `_operation`."""
        return self.run.rows(self._told(statement(ANALYZER, name)).format(**values))

    def statement(self, name: str) -> str:
        """The statement itself, for provenance: short, since every measurement carries it. `SOURCE` says over what."""
        return self._told(statement(ANALYZER, name))

    @property
    def window(self) -> str:
        """Which operations were taken, in words; "" for all."""
        return self.sample.window

    def make_tables(self) -> None:
        """Fill `_member` and `_operation`."""
        self.run.rows(f"CREATE OR REPLACE TEMP TABLE _member AS {self._member()}")
        sql = self._told(statement(ANALYZER, "operation"))
        self.run.rows(f"CREATE OR REPLACE TEMP TABLE _operation AS {sql}")

    def _member(self) -> str:
        sql = self._told(statement(ANALYZER, "member")).replace("FROM collective c", f"FROM {self.sample.source} c")
        return sql if self.sample.stride == 1 else f"{sql} QUALIFY {self.sample.is_told}"

    def _told(self, sql: str) -> str:
        """With what is known of clocks and ends put in: on one host nothing is to be aligned."""
        several, error = self.error_ns != 0, self.error_ns or 0
        sql = _ALIGNED.sub(_CORRECTED if several else r"(\1)", sql)
        if several:
            sql = sql.replace("WHERE true", f"{_CORRECTION}WHERE true")
        if self.is_polled:
            sql = sql.replace(_ENDED, _ENDED_TOGETHER)
        told = f"(CASE WHEN is_one_host THEN 0 ELSE {error} END)" if several else "0"
        return sql.replace("clock_error_ns(is_one_host)", told)


def matched(run: Run) -> Matching:
    """Match the operations of `run`, once for each reading of it; the tables stay in its connection."""
    return run.anew(lambda: _matched(run))


def _matched(run: Run) -> Matching:
    known = run.kept.get(_KEPT)
    if isinstance(known, Matching):
        return known
    sample = few_sampled(run)
    [[is_polled]] = run.rows(f"SELECT EXISTS (FROM {sample.table} WHERE timing_source = 'poll')")
    found = Matching(run, sample, _clock_error_ns(run), is_polled)
    found.make_tables()
    run.kept[_KEPT] = found
    return found


def _clock_error_ns(run: Run) -> int:
    """How wrong the difference of two hosts' times may be; NOBODY where that is not known. Aligns the clocks."""
    alignment = align(run)
    if alignment.is_one_host:
        return 0
    errors = [host.error_ns for host in alignment.hosts]
    known = sorted(error for error in errors if error is not None)
    return max(1, sum(known[-2:])) if len(known) == len(errors) else NOBODY
