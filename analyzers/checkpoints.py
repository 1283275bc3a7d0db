"""What checkpoints cost and whether they can be relied on: times, bandwidth, interval, and what loads found.

The rows of all ranks for one save (same path, same ordinal there) are one operation: it blocks as long as its longest
rank. Its files and bytes are those of the checkpoint on disk: of a save they add up over the ranks; of a load, whose
ranks open some files several times and others not at all, the rank that planned it says what the whole is, and which
share of it was asked for. A file of its own (torch, safetensors) is one file, however many ranks wrote or read it.

A load is compared with the last save of that path in the run: files and bytes of the whole, and digest where the rank
read all of it; a change of world size is named. See `checkpoint_interval` for the optimum and `recovery` for restarts.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from rankscope.schema.measurement import Interval, Measurement

from .checkpoint_interval import LEVEL, daly, poisson_interval, young
from .evidence import Evidence
from .recovery import Recovery, recovery
from .run import Run
from .statements import statement

ANALYZER: Final = "checkpoints"
DIGEST_MODULUS: Final = 1 << 64
Number = TypeVar("Number", int, float)
SHARED: Final = "dcp"
"""The format of which one checkpoint is written and read by all ranks together, each its own files."""


@dataclass(frozen=True, slots=True)
class Part:
    """One process's row, in the order of the statement `operations`."""

    incarnation: int
    proc: int
    rank: int | None
    step: int | None
    global_step: int | None
    action: str
    mode: str | None
    format: str | None
    path: str | None
    start_ns: int
    blocking_end_ns: int | None
    end_ns: int | None
    num_bytes: int | None
    num_files: int | None
    world_size: int | None
    layout: str | None
    digest: str | None
    outcome: str | None
    boot_id: str | None
    whole_files: int | None
    whole_bytes: int | None
    read_ratio: float | None


@dataclass(frozen=True, slots=True)
class Operation:
    """A save or load over its ranks. blocking_ns, total_ns: of the longest rank.

    num_bytes, num_files: of the checkpoint on disk; None where they are not known. read_ratio: share of it that a load
    asked for. finding: what is wrong or worth knowing; "" if nothing. digest: sum over the ranks, None unless all have
    one.
    """

    parts: tuple[Part, ...]
    blocking_ns: int | None
    total_ns: int | None
    num_bytes: int | None
    num_files: int | None
    digest: int | None
    outcome: str
    read_ratio: float | None = None
    finding: str = ""

    @property
    def first(self) -> Part:
        """The part that began first."""
        return self.parts[0]


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The answer. Operations in the order of time."""

    operations: tuple[Operation, ...]
    times: tuple[Measurement, ...]
    stall: Measurement
    interval: Measurement
    optimum: Measurement
    young_ns: float | None
    recovery: Recovery

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        return (*self.times, self.stall, self.interval, self.optimum, *self.recovery.measurements)

    def time(self, name: str, action: str) -> Measurement | None:
        """The measurement `name` for saves or loads."""
        return next((item for item in self.times if item.name == name and item.scope["action"] == action), None)


def checkpoints(run: Run, coverage: float | None = None) -> Checkpoints:
    """The checkpoints of `run`."""
    sql = statement(ANALYZER, "operations")
    told = Evidence(run, ANALYZER, sql, ("checkpoint",), coverage, caveats=("mean over operations, longest rank each",))
    operations = _compared(_grouped([Part(*row) for row in run.rows(sql)]))
    held = run.rows(statement(ANALYZER, "blocking"))
    by_incarnation: dict[int, int] = defaultdict(int)
    for incarnation, _, blocking_ns, _ in held:
        by_incarnation[incarnation] = max(by_incarnation[incarnation], blocking_ns)
    cost = recovery(run, sum(by_incarnation.values()), coverage)
    times = tuple(item for action in ("save", "load") for item in _times(told, operations, action))
    optimum, by_young = _optimum(told, operations, cost)
    return Checkpoints(
        operations, times, _stall(run, held, bool(operations), coverage), _interval(told, operations), optimum,
        by_young, cost,
    )  # fmt: skip


def _grouped(parts: list[Part]) -> list[Operation]:
    """Rows of several processes for one path are one operation: the nth of each belongs to the nth of the others."""
    ordinals: dict[tuple[Any, ...], int] = defaultdict(int)
    groups: dict[tuple[Any, ...], list[Part]] = defaultdict(list)
    for part in parts:
        key = (part.incarnation, part.action, part.mode, part.format, part.path)
        groups[(*key, ordinals[(*key, part.proc)])].append(part)
        ordinals[(*key, part.proc)] += 1
    return [_operation(tuple(found)) for found in groups.values()]


def _operation(parts: tuple[Part, ...]) -> Operation:
    blocking = [part.blocking_end_ns - part.start_ns for part in parts if part.blocking_end_ns is not None]
    total = [part.end_ns - part.start_ns for part in parts if part.end_ns is not None]
    outcomes = {part.outcome or "unfinished" for part in parts}
    outcome = next((name for name in ("failed", "unfinished") if name in outcomes), "ok")
    digests = [int(part.digest, 16) for part in parts if part.digest]
    return Operation(
        parts, max(blocking, default=None), max(total) if len(total) == len(parts) else None,
        _size(parts, "bytes"), _size(parts, "files"),
        sum(digests) % DIGEST_MODULUS if len(digests) == len(parts) else None, outcome,
        _largest([part.read_ratio for part in parts]),
    )  # fmt: skip


def _size(parts: tuple[Part, ...], unit: str) -> int | None:
    """Files or bytes of the checkpoint on disk."""
    own = [part.num_bytes if unit == "bytes" else part.num_files for part in parts]
    whole = [part.whole_bytes if unit == "bytes" else part.whole_files for part in parts]
    if parts[0].format != SHARED:
        return _largest(own)
    return _sum(own) if parts[0].action == "save" else _largest(whole)


def _compared(operations: list[Operation]) -> tuple[Operation, ...]:
    saves: dict[str | None, Operation] = {}
    found = []
    for item in operations:
        finding = _outcome_finding(item)
        if item.first.action == "save":
            saves[item.first.path] = item
        else:
            finding = finding or _load_finding(item, saves.get(item.first.path))
        found.append(Operation(item.parts, item.blocking_ns, item.total_ns, item.num_bytes, item.num_files,
                               item.digest, item.outcome, item.read_ratio, finding))  # fmt: skip
    return tuple(found)


def _outcome_finding(item: Operation) -> str:
    if item.outcome == "ok":
        return ""
    ranks = sum((part.outcome or "unfinished") == item.outcome for part in item.parts)
    what = "failed" if item.outcome == "failed" else "never ended"
    return f"{what} on {ranks} of {len(item.parts)} ranks"


def _load_finding(load: Operation, save: Operation | None) -> str:
    if save is not None and save.outcome != "ok":
        return f"the save it reads {'failed' if save.outcome == 'failed' else 'never ended'}"
    if save is not None and None not in (load.num_bytes, save.num_bytes) and load.num_bytes != save.num_bytes:
        return f"{load.num_bytes:,} bytes found, {save.num_bytes:,} were saved"
    for part in load.parts:
        if save is None or part.num_files is None or part.num_files != save.num_files:
            continue  # a part of the files: nothing to compare with
        if None not in (part.num_bytes, save.num_bytes) and part.num_bytes != save.num_bytes:
            return f"{part.num_bytes:,} bytes read, {save.num_bytes:,} were saved"
        if part.digest and save.digest is not None and int(part.digest, 16) != save.digest:
            return "the files are not those that were saved (digest)"
    written = load.first.world_size or (save.first.world_size if save else None)
    is_shared = load.first.format == SHARED
    if is_shared and written is not None and written != len(load.parts):
        return f"written by {written} ranks, read by {len(load.parts)}"
    return ""


def _times(told: Evidence, operations: tuple[Operation, ...], action: str) -> list[Measurement]:
    done = [item for item in operations if item.first.action == action and item.outcome == "ok"]
    scope, why = {"action": action}, f"no {action} that ended well was recorded"
    blocking = [item.blocking_ns for item in done if item.blocking_ns is not None]
    total = [item.total_ns for item in done if item.total_ns is not None]
    sized = [(_moved(item), item.total_ns) for item in done if item.num_bytes is not None and item.total_ns]
    spent = sum(time for _, time in sized)
    speed = sum(size for size, _ in sized) * 1e9 / spent if spent else None
    no_size = why if not done else "the size of the files is not known"
    return [
        told.measurement("checkpoint.blocking", _mean(blocking), scope, len(blocking), reason="" if blocking else why),
        told.measurement("checkpoint.total", _mean(total), scope, len(total), reason="" if total else why),
        told.measurement("checkpoint.bandwidth", speed, scope, len(sized), reason="" if speed is not None else no_size),
    ]


def _moved(item: Operation) -> float:
    """Bytes of the checkpoint that were written, or asked for by a load; each once, however many ranks read it."""
    return (item.num_bytes or 0) * (1.0 if item.read_ratio is None else item.read_ratio)


def _stall(run: Run, held: list[tuple[Any, ...]], is_seen: bool, coverage: float | None) -> Measurement:
    told = Evidence(run, ANALYZER, statement(ANALYZER, "blocking"), ("checkpoint", "step"), coverage,
                    window="first to last step")  # fmt: skip
    whole = sum(row[3] for row in held)
    if not is_seen or not whole:
        reason = "no step ended" if is_seen else "no checkpoint was recorded"
        return told.measurement("checkpoint.stall_fraction", None, {}, 0, reason=reason)
    return told.measurement("checkpoint.stall_fraction", sum(row[2] for row in held) / whole, {}, len(held))


def _interval(told: Evidence, operations: tuple[Operation, ...]) -> Measurement:
    """Mean time between the begins of saves in different steps of one incarnation."""
    begins: dict[tuple[int, int | None], int] = {}
    for item in operations:
        if item.first.action == "save":
            begins.setdefault((item.first.incarnation, item.first.step), item.first.start_ns)
    times = [after[1] - before[1] for before, after in zip(begins.items(), list(begins.items())[1:], strict=False)
             if before[0][0] == after[0][0]]  # fmt: skip
    reason = "" if times else "fewer than two saves in different steps"
    return told.measurement("checkpoint.interval", _mean(times), {"statistic": "mean"}, len(times), reason=reason)


def _optimum(
    told: Evidence, operations: tuple[Operation, ...], cost: Recovery
) -> tuple[Measurement, float | None]:  # fmt: skip
    name = "checkpoint.interval_optimum"
    saves = [item.blocking_ns for item in operations
             if item.first.action == "save" and item.outcome == "ok" and item.blocking_ns]  # fmt: skip
    price = _mean(saves)
    if price is None:
        return told.measurement(name, None, {}, 0, reason="what a save costs is not known: none ended well"), None
    if not cost.num_failures or not cost.time_ns:
        return told.measurement(name, None, {}, 0, reason="no failure was observed: its rate is not known"), None
    low, high = poisson_interval(cost.num_failures)
    between = cost.time_ns / cost.num_failures
    value = daly(price, between)
    bounds = [daly(price, cost.time_ns / failures) for failures in (high, low)]
    method = "exact Poisson interval of the number of failures"
    interval = Interval(min(value, *bounds), max(value, *bounds), LEVEL, method)
    caveats = (f"{cost.num_failures} failures observed", "Daly's higher-order estimate")
    by_young = young(price, between)
    return told.measurement(name, value, {}, cost.num_failures, interval=interval, caveats=caveats), by_young


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if values and len(known) == len(values) else None


def _largest(values: Sequence[Number | None]) -> Number | None:
    return max((value for value in values if value is not None), default=None)


def _mean(values: list[int]) -> int | None:
    return sum(values) // len(values) if values else None
