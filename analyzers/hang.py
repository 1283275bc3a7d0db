"""Which ranks does everybody else wait for? For dumps of the flight recorder and for runs with unfinished operations.

Per group, the highest sequence number that anyone issued; the members behind it are missing. A rank whose record is
empty is one of them, since silence is what a locked interpreter looks like; a rank of which there is no record at all
is named apart. A missing rank that itself waits in a group for another missing rank is a victim, not a cause. Where
every member issued an operation and nobody finished it, the record does not tell whose device or link stopped: that is
said.
P2P: a receive waits for its sender; only live runs number both ends alike, so dumps name the peer, not the guilty.

A live operation counts once it is older than the patience, by the last moment of its host that the run knows: what is
merely in flight is no hang. Imported dumps were taken because of one, so there every unfinished operation counts; one
that failed counts where somebody never came (gloo raises when a peer is gone). How a missing rank ended, and whether
before the others waited for it or afterwards, tells a death from a hang (`endings`).
Cannot see: communication outside torch.distributed, and operations that could not be watched (timing_source none).
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

from rankscope.schema.measurement import Measurement, Verdict

from .endings import Ending, endings, in_words
from .evidence import Evidence
from .groups import Group, named_ranks, ranks_in_words, read_groups
from .hang_headlines import hang_headlines
from .hang_parts import Blocked, Open, Peers
from .headline import Headline
from .mismatch import Mismatch, mismatches
from .partials import Given, Pair, Partial
from .profile import COLLECTIVES
from .run import Run
from .statements import statement

PROGRESS, PROCESSES, LAST_SEEN = (Pair("hang", name, (COLLECTIVES,)) for name in ("progress", "processes", "last_seen"))
_OPEN: Final = Partial("hang", "open", relations=("part_profile",), needs="part_open")
_GIVEN: Final = (Given("open_operation", f"SELECT DISTINCT * FROM {_OPEN.table}", (_OPEN,)),)
UNFINISHED: Final = Pair(
    "hang",
    "unfinished",
    (Partial("hang", "unfinished_partial", relations=("part_profile",), needs="part_open"), COLLECTIVES),
)
CALLS, SENDS = (
    Pair("hang", name, (Partial("hang", f"{name}_partial", given=_GIVEN), COLLECTIVES)) for name in ("calls", "sends")
)
PAIRS: Final = (PROGRESS, PROCESSES, LAST_SEEN, UNFINISHED)
"""What this analyzer asks of the large tables; calls and sends only where something is unfinished, in a second reading.
"""
PATIENCE_NS: Final = 60 * 1_000_000_000
"""How long an operation of a live run may be unfinished (RANKSCOPE_PATIENCE_SECONDS has the same default)."""
MAX_CLAUSES: Final = 4
"""Missing ranks of which it is told what they wait for themselves."""
NAMED, NOT_DECIDED = 0.9, 0.5
"""Confidence where the record names ranks, and where it only narrows them down."""


@dataclass(frozen=True, slots=True)
class Hang:
    """The answer. missing: the causes as far as the record names them; undecided: sets that hold a cause, not which."""

    blocked: tuple[Blocked, ...]
    peers: tuple[Peers, ...]
    mismatches: tuple[Mismatch, ...]
    missing: tuple[int, ...]
    empty: tuple[int, ...]
    undecided: tuple[Blocked, ...]
    num_young: int
    verdicts: tuple[Verdict, ...]
    measurements: tuple[Measurement, ...]
    groups: dict[str | None, Group] = field(repr=False)

    @property
    def headlines(self) -> tuple[Headline, ...]:
        """Each verdict; the first one with the operation that everybody waits in."""
        return hang_headlines(self)


@dataclass(frozen=True, slots=True)
class _Ends:
    """What is known of the missing ranks: what those that wait themselves wait for, in words, and how the rest ended.

    is_telling: not every rank of the job was killed, or an operation failed at once: else their deaths say nothing.
    """

    stuck: dict[int, str]
    ended: dict[int, Ending]
    is_telling: bool

    def are_deaths(self, missing: tuple[int, ...]) -> bool:
        """They went first, all of them."""
        return self.is_telling and all(rank in self.ended and self.ended[rank].is_death for rank in missing)

    @property
    def words(self) -> str:
        """Clauses to go on with; "" where nothing is known."""
        clauses = [f"rank {rank} {text}" for rank, text in sorted(self.stuck.items())][:MAX_CLAUSES]
        if more := len(self.stuck) - len(clauses):
            clauses.append(f"{more} more ranks wait for others")
        return "".join(f"; {clause}" for clause in (*clauses, in_words(self.ended)) if clause)


@dataclass(frozen=True, slots=True)
class _Record:
    """What the run tells: how far each rank came by group, and of which ranks there is a process and any operation."""

    high: dict[str, dict[int, int]]
    exits: dict[int, str | None]
    is_silent: dict[int, bool]
    is_imported: bool
    groups: dict[str | None, Group]


def hang(
    run: Run, coverage: float | None = None, *, patience_ns: int = PATIENCE_NS, now_ns: dict[str, int] | None = None
) -> Hang:
    """Who is missing. now_ns: the present moment by boot id, where the analysis runs on a host of the run."""
    return run.anew(lambda: _hang(run, coverage, patience_ns, now_ns or {}))


def _hang(run: Run, coverage: float | None, patience_ns: int, now_ns: dict[str, int]) -> Hang:
    record = _record(run)
    everything = _unfinished(run, now_ns, is_imported=record.is_imported)
    failed = {_operation(item) for item in everything if item.has_failed}  # who has not heard of it waits in it, too
    old = [
        item
        for item in everything
        if record.is_imported or _operation(item) in failed or (item.age_ns is not None and item.age_ns >= patience_ns)
    ]
    found = _blocked(record, [item for item in old if item.src is None and item.dst is None])
    peers = _peers(run, record, [item for item in old if item.src is not None and item.dst is not None])
    suspects = {rank for item in found for rank in item.missing} | {item.peer for item in peers if item.is_unsent}
    missing = _causes(suspects, found, peers)
    blocked = _in_order(found, missing)
    differing = mismatches(CALLS.rows(run)) if old else ()
    undecided = _undecided(blocked, old, missing, {item.group_id for item in differing})
    empty = tuple(rank for rank in missing if record.is_silent.get(rank, False))
    told = Evidence(run, "hang", statement("hang", "unfinished"), ("collective", "process", "process_group"), coverage)
    reason = "" if record.exits else "the run has no process"
    num = told.measurement(
        "collective.unfinished", len(old) if record.exits else None, {}, len(everything), reason=reason
    )
    ends = _Ends(
        _stuck(missing, blocked, peers),
        {} if record.is_imported else _endings(run, missing, old),
        any(kind != "killed" for kind in record.exits.values()) or any(item.failed_at_once for item in old),
    )
    verdicts = _verdicts(record, blocked, peers, differing, missing, ends, undecided)
    return Hang(blocked, peers, differing, missing, empty, undecided, len(everything) - len(old), verdicts, (num,),
                record.groups)  # fmt: skip


def _operation(item: Open) -> tuple[Any, ...]:
    return item.group_id, item.src, item.dst, item.tag, item.seq


def _record(run: Run) -> _Record:
    high: dict[str, dict[int, int]] = defaultdict(dict)
    for group_id, rank, seq in PROGRESS.rows(run):
        high[group_id][rank] = seq
    processes = PROCESSES.rows(run)
    imported = any(row[3] for row in processes)
    silent = {row[0]: row[2] == 0 for row in processes}
    return _Record(high, {row[0]: row[1] for row in processes}, silent, imported, read_groups(run))


def _unfinished(run: Run, now_ns: dict[str, int], *, is_imported: bool) -> list[Open]:
    unfinished = UNFINISHED.rows(run)
    if not unfinished:
        return []
    seen: dict[str, int] = {row[0]: row[1] for row in LAST_SEEN.rows(run)}
    found = []
    for *operation, issued_ns, boot_id, exit_kind, has_failed, failed_ns in unfinished:
        last = failed_ns if has_failed else seen.get(boot_id)
        if exit_kind == "running" and boot_id in now_ns and not has_failed:
            last = max(now_ns[boot_id], last or 0)
        age = None if is_imported or last is None or issued_ns is None else last - issued_ns
        found.append(Open._make((*operation, issued_ns, boot_id, age, has_failed)))
    return found


def _stuck(missing: tuple[int, ...], blocked: tuple[Blocked, ...], peers: tuple[Peers, ...]) -> dict[int, str]:
    """What missing ranks wait for themselves: they did not go away, whatever ended them later."""
    found: dict[int, str] = {}
    for pair in peers:
        did = "never sent" if pair.is_unsent else "did not finish"
        what = f"waits to receive from rank {pair.peer}, which {did}" if pair.is_recv else f"sends to rank {pair.peer}"
        if pair.rank in missing:
            found.setdefault(pair.rank, what)
    for item in blocked:
        for rank in set(item.waiting) & set(missing):
            others = tuple(other for other in item.missing if other != rank)
            found.setdefault(rank, f"waits {f'for {named_ranks(others)} ' if others else ''}in {item.group.label}")
    return found


def _endings(run: Run, missing: tuple[int, ...], unfinished: list[Open]) -> dict[int, Ending]:
    """How those ended that wait in no operation."""
    waits: dict[str, int] = {}
    failures: dict[str, int] = {}
    for item in unfinished:
        if item.rank not in missing and item.boot_id is not None and item.issued_ns is not None:
            waits[item.boot_id] = min(item.issued_ns, waits.get(item.boot_id, item.issued_ns))
            if item.has_failed and item.age_ns is not None:
                failed_ns = item.issued_ns + item.age_ns
                failures[item.boot_id] = min(failed_ns, failures.get(item.boot_id, failed_ns))
    gone = set(missing) - {item.rank for item in unfinished}
    return endings(run, gone, waits, failures) if gone else {}


def _blocked(record: _Record, unfinished: list[Open]) -> list[Blocked]:
    by_group: dict[str, list[Open]] = defaultdict(list)
    for item in unfinished:
        by_group[item.group_id].append(item)
    told = [_group(record, record.groups.get(key) or Group.unknown(key), items) for key, items in by_group.items()]
    return [item for item in told if item.missing or item.unrecorded
            or not all(one.has_failed for one in by_group[item.group.group_id])]  # fmt: skip


def _group(record: _Record, group: Group, items: list[Open]) -> Blocked:
    high = record.high.get(group.group_id, {})
    top = max(high.values())
    members = group.members or tuple(sorted(high))
    recorded = [rank for rank in members if rank in record.exits]
    missing = tuple(rank for rank in recorded if high.get(rank, -1) < top)
    # what a missing rank has not seen end is over, if the others went on from there: nobody asked it since
    waited_in = [item for item in items if item.rank not in missing] or items
    first = min(waited_in, key=lambda item: (item.seq, item.issued_ns or 0))
    times = [item.issued_ns for item in waited_in if item.issued_ns is not None]
    ages = [item.age_ns for item in waited_in if item.age_ns is not None]
    return Blocked(
        group, first.seq, first.op, min(times, default=None), max(ages, default=None),
        tuple(sorted({item.rank for item in items} - set(missing))), missing,
        tuple(rank for rank in missing if record.is_silent.get(rank, False)),
        tuple(rank for rank in members if rank not in record.exits),
    )  # fmt: skip


def _peers(run: Run, record: _Record, unfinished: list[Open]) -> tuple[Peers, ...]:
    sent = set() if record.is_imported or not unfinished else set(SENDS.rows(run))
    found: dict[tuple[str, int, int, bool], list[bool]] = defaultdict(list)
    for item in unfinished:
        is_recv = item.op == "recv"
        peer = item.src if is_recv else item.dst
        if peer is None:
            continue
        is_unsent = (not record.is_imported and is_recv and peer in record.exits
                     and (item.group_id, item.src, item.dst, item.tag, item.seq) not in sent)  # fmt: skip
        found[item.group_id, item.rank, peer, is_recv].append(is_unsent)
    return tuple(
        Peers(record.groups.get(key) or Group.unknown(key), rank, peer, is_recv, len(unsent), any(unsent))
        for (key, rank, peer, is_recv), unsent in sorted(found.items(), key=lambda entry: entry[0][1:])
    )


def _causes(suspects: set[int], blocked: list[Blocked], peers: tuple[Peers, ...]) -> tuple[int, ...]:
    """Suspects that wait for no other suspect; all of them where they wait for one another in a circle."""
    waits_for: dict[int, set[int]] = defaultdict(set)
    for item in blocked:
        for rank in item.waiting:
            waits_for[rank] |= set(item.missing) - {rank}
    for pair in peers:
        if pair.is_unsent:
            waits_for[pair.rank].add(pair.peer)
    causes = {rank for rank in suspects if not waits_for[rank] & suspects}
    return tuple(sorted(causes or suspects))


def _in_order(blocked: list[Blocked], missing: tuple[int, ...]) -> tuple[Blocked, ...]:
    """The groups that wait for a cause, earliest first, then those that are blocked behind them."""

    def place(item: Blocked) -> tuple[bool, int, str]:
        return item.is_behind, item.since_ns or 0, item.group.label

    told = [_behind(item, bool(missing) and not set(item.missing) & set(missing)) for item in blocked]
    return tuple(sorted(told, key=place))


def _behind(item: Blocked, is_behind: bool) -> Blocked:
    return Blocked(item.group, item.seq, item.op, item.since_ns, item.age_ns, item.waiting, item.missing, item.empty,
                   item.unrecorded, is_behind)  # fmt: skip


def _undecided(
    blocked: tuple[Blocked, ...], old: list[Open], missing: tuple[int, ...], differing: set[str]
) -> tuple[Blocked, ...]:
    """Groups in which all came and nobody ended, and which are the first thing that some member waits in.

    A member that is a cause explains its group, and so do members that called different operations, and an earlier wait
    of the same rank in another group.
    """
    first: dict[int, Open] = {}
    for item in sorted(old, key=lambda item: item.issued_ns or 0):
        first.setdefault(item.rank, item)
    begun = {item.group_id for item in first.values() if item.src is None}
    return tuple(item for item in blocked if not item.missing and not item.unrecorded
                 and item.group.group_id in begun and item.group.group_id not in differing
                 and not set(item.group.members) & set(missing))  # fmt: skip


def _verdicts(
    record: _Record, blocked: tuple[Blocked, ...], peers: tuple[Peers, ...], differing: tuple[Mismatch, ...],
    missing: tuple[int, ...], ends: _Ends, undecided: tuple[Blocked, ...],
) -> tuple[Verdict, ...]:  # fmt: skip
    found = [_differs(item, record.groups) for item in differing]
    if missing:
        kind = "dead_rank" if ends.are_deaths(missing) else "hang"
        in_groups = {rank for item in blocked for rank in item.waiting}
        waiting = tuple(sorted((in_groups | {pair.rank for pair in peers if pair.is_unsent}) - set(missing)))
        silent = [rank for rank in missing if record.is_silent.get(rank, False)]
        empty = f"; no operation in the record of {ranks_in_words(tuple(silent))}" if silent else ""
        behind = f" missing: {named_ranks(waiting)} waiting for {_them(missing)}"
        others = behind if waiting else " wait for one another"
        text = f"{named_ranks(missing)}{others}{empty}{ends.words}"
        found.append(Verdict(kind, missing, text, NAMED, evidence=tuple(_evidence(item) for item in blocked)))
    unrecorded = tuple(sorted({rank for item in blocked for rank in item.unrecorded}))
    if unrecorded:
        are = "it is" if len(unrecorded) == 1 else "they are"
        text = f"there is no record of {named_ranks(unrecorded)}: whether {are} missing cannot be decided"
        found.append(Verdict("hang", (), text, NOT_DECIDED, evidence=({"ranks": list(unrecorded)},)))
    if undecided:
        where = ", ".join(item.group.label for item in undecided)
        text = (f"in {where} every member came and nobody finished: whose device or link stopped cannot be decided "
                "from the record")  # fmt: skip
        found.append(Verdict("hang", (), text, NOT_DECIDED, evidence=tuple(_evidence(item) for item in undecided)))
    if peers and not found:
        text = "unfinished sends and receives only: which end is missing cannot be decided from the record"
        pairs = tuple({"rank": item.rank, "waits_for": item.peer} for item in peers)
        found.append(Verdict("hang", (), text, NOT_DECIDED, evidence=pairs))
    return tuple(found)


def _differs(item: Mismatch, groups: dict[str | None, Group]) -> Verdict:
    label = (groups.get(item.group_id) or Group.unknown(item.group_id)).label
    said = "; ".join(f"{value} on {named_ranks(ranks)}" for value, ranks in item.said.items())
    who = (
        f"{named_ranks(item.ranks)} differ{'s' if len(item.ranks) == 1 else ''}"
        if item.ranks
        else "no majority, so who is wrong cannot be decided"
    )
    text = f"{label} at operation {item.seq}: different {item.what} ({said}); {who}"
    evidence: dict[str, Any] = {"group_id": item.group_id, "seq": item.seq, "what": item.what}
    return Verdict("mismatch", item.ranks, text, NAMED if item.ranks else NOT_DECIDED, evidence=(evidence,))


def _evidence(item: Blocked) -> dict[str, Any]:
    return {"table": "collective", "group_id": item.group.group_id, "group": item.group.label, "seq": item.seq,
            "op": item.op, "waiting": list(item.waiting), "missing": list(item.missing), "empty": list(item.empty),
            "is_behind": item.is_behind}  # fmt: skip


def _them(ranks: tuple[int, ...]) -> str:
    return "it" if len(ranks) == 1 else "them"
