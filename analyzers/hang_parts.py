"""What a hang consists of: unfinished operations, groups that do not go on, ranks that wait for one another."""

from dataclasses import dataclass
from typing import NamedTuple

from .endings import LINGERED_NS
from .groups import Group


class Open(NamedTuple):
    """An operation that did not end, or failed. src, dst: P2P only; age_ns: until the last moment known of its host, or
    until it failed; None if not known.
    """

    group_id: str
    rank: int
    seq: int
    op: str | None
    src: int | None
    dst: int | None
    tag: int | None
    issued_ns: int | None
    boot_id: str | None
    age_ns: int | None
    has_failed: bool

    @property
    def failed_at_once(self) -> bool:
        """Not by a timeout."""
        return self.has_failed and self.age_ns is not None and self.age_ns < LINGERED_NS


@dataclass(frozen=True, slots=True)
class Blocked:
    """One group that does not go on, at its first unfinished operation.

    missing: members behind the highest number issued; of these, empty: those without any operation in their record.
    unrecorded: members of which the run has no process. is_behind: it only waits for what another group waits for.
    """

    group: Group
    seq: int
    op: str | None
    since_ns: int | None
    age_ns: int | None
    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    empty: tuple[int, ...]
    unrecorded: tuple[int, ...]
    is_behind: bool = False


@dataclass(frozen=True, slots=True)
class Peers:
    """P2P operations that one rank waits in for another. is_recv: receives, else sends."""

    group: Group
    rank: int
    peer: int
    is_recv: bool
    num_operations: int
    is_unsent: bool
