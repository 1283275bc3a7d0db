"""Why is a rank late? Its own rows in the time in which it was late, against those of the ranks that were not.

The time: on its way to each operation to which it came late, from the group's operation before, which all left
together (or began one after the other, where both are in flight). What a rank did then is painted from its spans, each
instant once (a collection inside the forward pass is a collection), and compared with the median of the others: what it
did longer than they. A cause is named if it covers at least `COVERS` of the lateness, the particular before the
general: collector, compiler, checkpoint, data, network (transfers of its other groups' operations, without the waiting
in them); then, of time in computation or in nothing recorded, waiting for a CPU, page faults or a throttled device,
where readings show them; then computation. Else unknown, with what is known.

Readings come once a second: they are compared as rates (a rank that waits 0.3 s of each second for a CPU longer than
the others, and is late by 0.35 s of each second, is so for 86 %). It cannot see work outside spans, and counts a page
fault as `FAULT_NS`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low
from typing import Any, Final

from .clocks import align
from .lateness import Step, common_clock
from .run import Run
from .statements import statement

ANALYZER: Final = "causes"
LOOKED_AT: Final = 0.5
"""Share of the lateness that the operations have to make which are looked into."""
COVERS: Final = 0.80
"""Share of the lateness that a cause has to cover."""
WAKING: Final = 0.25
"""Share of the lateness up to which longer transfers are counted with the work: who comes last wakes the others up."""
MAX_STEPS: Final = 40
"""Late steps that are looked into, spread over all of them."""
MAX_PEERS: Final = 16
FAULT_NS: Final = 100_000
"""What a major page fault is taken to cost: a read from a local solid-state disk."""
THROTTLED, NOT_THROTTLED = 0.8, 0.2
"""Shares of the readings from which, and up to which, a device counts as throttled, or as not."""
MIN_READINGS: Final = 3
GC, COMPILE, CHECKPOINT, DATA, NETWORK, CPU, FAULTS, THROTTLE, COMPUTE, UNKNOWN = (
    "gc", "compile", "checkpoint", "data", "network", "cpu_contention", "page_faults", "throttle", "compute", "unknown",
)  # fmt: skip
_PAINT: Final = {
    "gc": GC, "compile": COMPILE, "checkpoint": CHECKPOINT, "data": DATA, "h2d": DATA, "forward": COMPUTE,
    "backward": COMPUTE, "optimizer": COMPUTE, "microbatch_forward": COMPUTE, "microbatch_input_gradient": COMPUTE,
    "microbatch_weight_gradient": COMPUTE,
}  # fmt: skip
_WAITING: Final = "waiting"
_ORDER: Final = (GC, COMPILE, CHECKPOINT, DATA, NETWORK, _WAITING, COMPUTE)
_PARTICULAR: Final = (GC, COMPILE, CHECKPOINT, DATA, NETWORK)
_SHIFT: Final = 4_294_967_296
"""Incarnation and step as one number: incarnation * 2**32 + step."""
Interval = tuple[int, int]
Span = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Cause:
    """The answer. share: of lateness_ns, that the cause covers; the best of all for "unknown".

    parts: what the rank did longer than the others, in ns over the steps looked into, most first; names are causes, or
    those of spans of the user. evidence: table and predicate of the rows.
    """

    name: str
    share: float
    lateness_ns: int
    parts: tuple[tuple[str, int], ...]
    num_steps: int
    evidence: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class _Window:
    """One late operation: from when to when the late rank, and others by their process, were on the way to it.

    own_ns: own lateness after the median of the others, as what they did is compared with the median, too.
    """

    key: int
    own_ns: int
    proc: int
    way: Interval
    peers: dict[int, Interval]


def cause(
    run: Run, rank: int, late: Sequence[Step], others: Sequence[int], rate: float,
    own_ns: Mapping[Step, int] | None = None,
) -> Cause:  # fmt: skip
    """Why `rank` was late in the steps `late`, after `lateness` has been asked of `run`.

    others: ranks to compare with. rate: its lateness over the time of its steps (a ratio). own_ns: its lateness in
    each: operations that make less than LOOKED_AT of it say nothing of the rest.
    """
    chosen = _spread(late, MAX_STEPS)
    windows = _windows(run, rank, [step.incarnation * _SHIFT + step.step for step in chosen], set(others))
    total = sum(window.own_ns for window in windows)
    if not total or total < LOOKED_AT * sum((own_ns or {}).get(step, 0) for step in chosen):
        return Cause(UNKNOWN, 0.0, 0, (), 0)
    parts = _longer(run, windows)
    told = tuple(sorted(parts.items(), key=lambda item: (-item[1], item[0])))
    shares = {name: amount / total for name, amount in parts.items()}
    proc, keys = windows[0].proc, [window.key for window in windows]
    name = next((item for item in _PARTICULAR if shares.get(item, 0.0) >= COVERS), "")
    if not name:
        if shares.get(NETWORK, 0.0) <= WAKING:
            shares[COMPUTE] = shares.get(COMPUTE, 0.0) + shares.pop(NETWORK, 0.0)
        vague = 1 - sum(max(0.0, shares.get(item, 0.0)) for item in _PARTICULAR)
        read = _readings(run, windows, rate) if vague >= COVERS else {}
        shares |= read
        name = next((item for item in (*read, COMPUTE) if shares.get(item, 0.0) >= COVERS), UNKNOWN)
    share = shares[name] if name != UNKNOWN else max([0.0, *shares.values()])
    return Cause(name, min(1.0, share), total, told, len(set(keys)), _evidence(name, proc, keys))


def _spread(items: Sequence[Step], number: int) -> list[Step]:
    """At most `number` of the items, evenly spread."""
    if len(items) <= number:
        return list(items)
    return [items[i * len(items) // number] for i in range(number)]


def _windows(run: Run, rank: int, keys: list[int], others: set[int]) -> list[_Window]:
    """The operations that matter: of each step, in the group to which the rank came latest, all but small change."""
    by_step: dict[int, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for incarnation, step, team, operation, own in run.rows(
        statement(ANALYZER, "late_operations"), {"rank": rank, "keys": keys}
    ):
        by_step[incarnation * _SHIFT + step][team].append((operation, own))
    chosen: dict[int, tuple[int, int]] = {}
    for key, teams in by_step.items():
        team = max(teams.values(), key=lambda items: sum(own for _, own in items))
        whole = sum(own for _, own in team)
        chosen |= {operation: (key, own) for operation, own in team if own * 10 >= whole}
    ways: dict[int, dict[int, tuple[int, Interval]]] = defaultdict(dict)
    for operation, member, proc, start, begin in run.rows(
        statement(ANALYZER, "arrivals"), {"operations": sorted(chosen)}
    ):
        ways[operation][member] = (proc, (start, begin))
    return [_window(chosen[operation], members, rank, others) for operation, members in ways.items()]


def _window(
    late: tuple[int, int], members: Mapping[int, tuple[int, Interval]], rank: int, others: set[int]
) -> _Window:  # fmt: skip
    proc, way = members[rank]
    peers = [member for member in members if member in others] or [member for member in members if member != rank]
    near = [members[member] for member in sorted(peers, key=lambda member: (abs(member - rank), member))[:MAX_PEERS]]
    longer = way[1] - way[0] - median_low([until - start for _, (start, until) in near])
    key, own = late
    return _Window(key, max(0, min(own, longer)), proc, way, dict(near))


def _longer(run: Run, windows: list[_Window]) -> dict[str, int]:
    """By name: how much longer the late rank did it than the median of the others, over all windows."""
    spans = _spans(run, windows)
    found: dict[str, int] = defaultdict(int)
    for window in windows:
        own = painted(spans[window.proc], window.way)
        theirs = [painted(spans[proc], way) for proc, way in window.peers.items()]
        for name in {*own, *(name for item in theirs for name in item)}:
            usual = median_low([item.get(name, 0) for item in theirs]) if theirs else 0
            found[name] += own.get(name, 0) - usual
    return {name: amount for name, amount in found.items() if amount > 0 and name != _WAITING}


def _spans(run: Run, windows: list[_Window]) -> dict[int, list[Span]]:
    procs = sorted({proc for window in windows for proc in (window.proc, *window.peers)})
    keys = sorted({window.key for window in windows})
    clocks = align(run)
    found: dict[int, list[Span]] = defaultdict(list)
    work = statement(ANALYZER, "work").format(**common_clock(clocks, "c.start_ns"))
    for proc, kind, name, start, end in run.rows(work, {"procs": procs, "keys": keys}):
        found[proc].append((_PAINT.get(kind) or f'span "{name or kind}"', start, end))
    for proc, begin, end, last in run.rows(statement(ANALYZER, "transfers"), {"procs": procs, "keys": keys}):
        found[proc] += [(_WAITING, begin, min(end, last)), (NETWORK, max(begin, last), end)]
    if run.size("checkpoint").num_rows:
        saves = statement(ANALYZER, "saves").format(**common_clock(clocks, "c.start_ns"))
        for proc, start, end in run.rows(saves, {"procs": procs}):
            found[proc].append((CHECKPOINT, start, end))
    return found


def painted(spans: Iterable[Span], window: Interval) -> dict[str, int]:
    """Time inside `window` by name, each instant once: the particular before the general, own spans of the user last.

    Example: forward 0..10 and gc 4..6 in the window 2..8 are compute 4 and gc 2.
    """
    inside = [(_priority(name), name, max(start, window[0]), min(end, window[1])) for name, start, end in spans
              if start < min(end, window[1]) and end > window[0]]  # fmt: skip
    edges = sorted({edge for _, _, start, end in inside for edge in (start, end)})
    found: dict[str, int] = defaultdict(int)
    for start, end in pairwise(edges):
        covering = [(order, name) for order, name, begin, until in inside if begin <= start and until >= end]
        if covering:
            found[min(covering)[1]] += end - start
    return dict(found)


def _priority(name: str) -> int:
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)


def _readings(run: Run, windows: list[_Window], rate: float) -> dict[str, float]:
    """Share of the lateness by what readings of the process and its device show, over the time of the windows."""
    procs = sorted({proc for window in windows for proc in (window.proc, *window.peers)})
    given = {"procs": procs, "first_ns": min(item.way[0] for item in windows),
             "last_ns": max(item.way[1] for item in windows)}  # fmt: skip
    clock = common_clock(align(run), "c.time_ns")
    proc = windows[0].proc
    waiting, faults = _rates(run.rows(statement(ANALYZER, "readings").format(**clock), given))
    found = {}
    if rate > 0:
        found = {CPU: _beyond(waiting, proc) / rate, FAULTS: _beyond(faults, proc) * FAULT_NS / rate}
    held = {row[0]: row[2] / row[1] for row in run.rows(statement(ANALYZER, "throttled").format(**clock), given)
            if row[1] >= MIN_READINGS}  # fmt: skip
    peers = [share for other, share in held.items() if other != proc]
    if held.get(proc, 0.0) >= THROTTLED and peers and median_low(peers) <= NOT_THROTTLED:
        found[THROTTLE] = held[proc]
    return found


def _rates(rows: Iterable[tuple[Any, ...]]) -> tuple[dict[int, float], dict[int, float]]:
    """By process: time waited for a CPU, and major page faults, per ns."""
    by_proc: dict[int, list[tuple[int, int | None, int | None]]] = defaultdict(list)
    for proc, *reading in rows:
        by_proc[proc].append((reading[0], reading[1], reading[2]))
    waiting, faults = {}, {}
    for proc, readings in by_proc.items():
        first, last = readings[0], readings[-1]
        if len(readings) < MIN_READINGS or last[0] <= first[0]:
            continue
        if first[1] is not None and last[1] is not None:
            waiting[proc] = (last[1] - first[1]) / (last[0] - first[0])
        if first[2] is not None and last[2] is not None:
            faults[proc] = (last[2] - first[2]) / (last[0] - first[0])
    return waiting, faults


def _beyond(rates: dict[int, float], proc: int) -> float:
    peers = [rate for other, rate in rates.items() if other != proc]
    return max(0.0, rates[proc] - median_low(peers)) if proc in rates and peers else 0.0


def _evidence(name: str, proc: int, keys: list[int]) -> tuple[dict[str, Any], ...]:
    steps = f"step BETWEEN {min(keys) % _SHIFT} AND {max(keys) % _SHIFT}"
    if name in (CPU, FAULTS):
        return ({"table": "process_sample", "predicate": f"proc = {proc}"},)
    if name == NETWORK:
        return ({"table": "collective", "predicate": f"proc = {proc} AND {steps} AND wait_end_ns > wait_begin_ns"},)
    if name == THROTTLE:
        device = f"device_uuid = (SELECT min(device_uuid) FROM process WHERE proc = {proc})"
        return ({"table": "device_sample", "predicate": f"{device} AND throttle_reasons <> ''"},)
    if name == UNKNOWN:
        return ({"table": "span", "predicate": f"proc = {proc} AND {steps}"},)
    kinds = ", ".join(f"'{kind}'" for kind, painted_as in _PAINT.items() if painted_as == name)
    return ({"table": "span", "predicate": f"proc = {proc} AND kind IN ({kinds}) AND {steps}"},)
