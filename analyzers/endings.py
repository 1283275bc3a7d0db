"""How missing ranks ended: gone before the others gave up, or alive while they waited.

The first is a death that stalls the job, the second a hang, whatever ended the rank afterwards: a launcher ends those
who hang, too. All moments are of one host's clock; where nobody else of its host waits, this is not decided.
A rank that ended by itself wrote when: it went first unless another had already failed. One that was killed lived at
least until the last reading of its process: it hung if it lived for long after another had begun to wait.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from .groups import named_ranks
from .run import Run
from .statements import statement

LINGERED_NS: Final = 5 * 1_000_000_000
"""A rank that lived for so long did not go first: processes take seconds to end, and are read every 1 to 10 s."""


@dataclass(frozen=True, slots=True)
class Ending:
    """exit_kind and exit_error as in table process.

    lived_ns: for how long it still lived after the first of its host had failed, or, of a rank that was killed, had
    begun to wait; None if not known.
    """

    exit_kind: str
    exit_error: str | None
    lived_ns: int | None

    @property
    def has_lingered(self) -> bool:
        """It was there while the others waited."""
        return self.lived_ns is not None and self.lived_ns > LINGERED_NS

    @property
    def is_death(self) -> bool:
        """It went first, and not of its own will."""
        return self.exit_kind in ("killed", "failed") and not self.has_lingered

    @property
    def words(self) -> str:
        """What follows the rank's name; empty for one of which nothing says that it ended."""
        name = f" ({self.exit_error})" if self.exit_error else ""
        how = {"failed": f"ended by an exception that nothing caught{name}", "killed": "died without a clean end",
               "clean": "left by itself, without an exception"}.get(self.exit_kind, "")  # fmt: skip
        if not how or not self.has_lingered:
            return how
        when = "while they waited" if self.exit_kind == "killed" else "after they had failed"
        return f"lived for {(self.lived_ns or 0) / 1e9:.0f} s {when} and then {how}"


def endings(
    run: Run, ranks: Iterable[int], first_wait_ns: Mapping[str, int], first_failure_ns: Mapping[str, int]
) -> dict[int, Ending]:
    """By rank. The moments: by boot id, of the other ranks."""
    found = {}
    asked = ", ".join(map(str, sorted(ranks)))
    for rank, boot_id, exit_kind, exit_error, seen_ns in run.rows(statement("hang", "ends").replace("{ranks}", asked)):
        since_ns = (first_wait_ns if exit_kind == "killed" else first_failure_ns).get(boot_id)
        lived_ns = None if since_ns is None or seen_ns is None else seen_ns - since_ns
        found[rank] = Ending(exit_kind or "unknown", exit_error, lived_ns)
    return found


def in_words(ended: Mapping[int, Ending]) -> str:
    """One clause for all ranks that ended alike: rank 2 died without a clean end."""
    alike: dict[str, list[int]] = defaultdict(list)
    for rank, ending in sorted(ended.items()):
        if ending.words:
            alike[ending.words].append(rank)
    if len(alike) == 1 and sum(map(len, alike.values())) == len(ended):
        return f"{'it' if len(ended) == 1 else 'they'} {next(iter(alike))}"
    return "; ".join(f"{named_ranks(tuple(ranks))} {words}" for words, ranks in alike.items())
