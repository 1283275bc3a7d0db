"""Which link is slow: transfers of one group against those of its like, and the place that only the slow ones share.

Compared are matched operations of one kind (mesh dimension, op, size class) between as many ranks on as many nodes; of
sends and receives each pair of ranks by itself. In each quarter of the steps (of few steps: in all) a group is slow
whose median transfer is `SLOW` times that of the lower quartile of its like, by more than the clocks' error; it is fine
if it never takes `FINE` times as long. To blame are the nodes of slow groups that no fine group has; where every node
is cleared, ranks (one NIC of several), else the groups themselves (a path between nodes). Groups inside one node are
compared with those inside others. What then holds in `CHRONIC` of the steps (Wilson, 95 %), of the run or of the part
of it in which it mostly does, and adds at least `MIN_COST` to their time, is named. Example: transfers of 1 ms in three
stages of a pipeline and of 4 ms in the fourth, and its sends and receives slow on the side of node 7: node 7, 4 times.

It cannot see a link that all groups of a kind share: then nothing tells what its transfers should take. Two nodes that
are always in one group are named together. Cost: medians of the matched operations, by group and step.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, TypeVar

from rankscope.schema.measurement import Measurement, Verdict

from .evidence import Evidence
from .groups import Group, named_ranks, ranks_in_words
from .headline import Headline, percent, verdict_headline
from .late_ranks import CHRONIC, densest, wilson
from .late_ranks import MIN_STEPS as MIN_PART
from .matched import SOURCE, TABLES, Matching
from .placement import nodes_of

ANALYZER: Final = "slow_links"
SLOW_LINK: Final = "slow_link"
SLOW: Final = 1.5
FINE: Final = 1.25
MIN_EXCESS_NS: Final = 50_000
"""Below it a host's scheduler explains everything."""
MIN_COST: Final = 0.01
"""Of the time of the steps, that the excess has to be, whether or not computation hides it."""
MIN_TIMES: Final = 5
"""Operations of a group in a quarter of the steps, from which its median counts."""
MIN_STEPS: Final = 8
"""Steps of a run: 8 of 8 are more than CHRONIC with a confidence of 95 %. Of a part of it MIN_PART, which is chosen."""
MAX_NAMED: Final = 4
MAX_NODES: Final = 4
"""Nodes that are named in words."""
NODE, NODES, INSIDE, RANKS, PATH = "node", "nodes", "inside", "ranks", "path"
_OTHERS: Final = {
    NODE: "those of other nodes", NODES: "those of other nodes", INSIDE: "inside others",
    RANKS: "those of others on the same nodes", PATH: "those of their like",
}  # fmt: skip
T = TypeVar("T", bound=Hashable)
_Step = tuple[int, int]
"""Incarnation and step."""


@dataclass(frozen=True, slots=True)
class _Path:
    """What is compared: one kind of operation of one group, or between two ranks of it. ranks: who takes part."""

    group: Group
    op: str
    size_class: int
    pair: tuple[int, int] | None
    ranks: frozenset[int]
    nodes: frozenset[str]

    @property
    def like(self) -> tuple[Any, ...]:
        """Equal for those that should take as long."""
        return self.group.kind, self.op, self.size_class, len(self.ranks), len(self.nodes)

    @property
    def is_inside(self) -> bool:
        """All on one node."""
        return len(self.nodes) == 1


@dataclass(frozen=True, slots=True)
class SlowLink:
    """One finding. how: NODE (it is one), NODES (one of them, or between them), INSIDE (of a node), RANKS (of a node on
    which others are fine), PATH (between ranks that are fine elsewhere).

    slowdown: median over the steps in which it holds. The verdict's cost: excess of the group that has most of it.
    """

    how: str
    nodes: tuple[str, ...]
    verdict: Verdict
    slowdown: Measurement


@dataclass(frozen=True, slots=True)
class _Compared:
    """All paths, by how they did. typical: of the like of a path in a quarter of the steps, ns."""

    slow: frozenset[_Path]
    fine: frozenset[_Path]
    typical: dict[tuple[Any, ...], int]


@dataclass(frozen=True, slots=True)
class _Blame:
    """Slow paths and what they have in common: nodes or ranks."""

    how: str
    paths: frozenset[_Path]
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()

    def subject(self) -> str:
        """Whose transfers."""
        if self.how == INSIDE:
            return f"inside node {self.nodes[0]}"
        if self.how == NODE:
            return f"of node {self.nodes[0]}"
        if self.how == NODES:
            more = f" and {len(self.nodes) - MAX_NODES} more" if len(self.nodes) > MAX_NODES else ""
            return f"of nodes {', '.join(self.nodes[:MAX_NODES])}{more}, which nothing tells apart,"
        pairs = [path.pair for path in self.paths if path.pair is not None]
        if self.how == PATH and pairs:
            return f"from rank {pairs[0][0]} to rank {pairs[0][1]}"
        return f"of {named_ranks(self.ranks)}"


@dataclass(frozen=True, slots=True)
class _Seen:
    """A set of slow paths over the counted steps. ratio and excess_ns: by step; duration_ns: of each step."""

    steps: list[_Step]
    ratio: list[float]
    excess_ns: list[int]
    duration_ns: list[int]
    num: int

    def window(self) -> tuple[int, int] | None:
        """First step and the one after the last between which they are slow; None if that is too seldom."""
        late = [ratio >= SLOW for ratio in self.ratio]
        for (first, end), least in (((0, len(late)), MIN_STEPS), (densest(late), MIN_PART)):
            num = end - first
            if num >= least and wilson(sum(late[first:end]) / num, num) >= CHRONIC:
                return first, end
        return None


def slow_links(matching: Matching, groups: dict[str | None, Group], coverage: float | None) -> tuple[SlowLink, ...]:
    """The slow links of a run, the dearest first."""
    nodes = nodes_of(matching)
    compared = _compared(matching, groups, nodes)
    if not compared.slow:
        return ()
    reader = _Reader(matching, groups, nodes, compared)
    told = Evidence(matching.run, ANALYZER, matching.statement("link_steps"), (*TABLES, "step"), coverage,
                    predicate=SOURCE, window=matching.window, clock_error_ns=matching.error_ns)  # fmt: skip
    named = (_named(told, reader.over(blame.paths), blame, nodes) for blame in _to_blame(compared))
    found = [item for item in named if item is not None]
    return tuple(sorted(found, key=lambda item: (-(item.verdict.cost_ns or 0), item.verdict.ranks))[:MAX_NAMED])


def headlines(found: Iterable[SlowLink]) -> tuple[Headline, ...]:
    """A sentence for each."""
    return tuple(verdict_headline(item.verdict, "collectives") for item in found)


def _compared(matching: Matching, groups: dict[str | None, Group], nodes: dict[int, str]) -> _Compared:
    by_like: dict[tuple[Any, ...], dict[_Path, int]] = defaultdict(dict)
    matching.rows("link")
    for group_id, op, size_class, src, dst, part, num, typical_ns in matching.rows("links"):
        path = _path(groups.get(group_id), op, size_class, src, dst, nodes)
        if path is not None and num >= MIN_TIMES:
            by_like[(*path.like, part)][path] = typical_ns
    least = max(MIN_EXCESS_NS, matching.error_ns)
    ratios: dict[_Path, list[float]] = defaultdict(list)
    typical: dict[tuple[Any, ...], int] = {}
    for key, paths in by_like.items():
        if len({path.nodes if path.is_inside else path for path in paths}) < 2:
            continue  # nobody is like it
        usual = typical[key] = max(1, sorted(paths.values())[(len(paths) - 1) // 4])
        for path, ns in paths.items():
            ratios[path].append(ns / usual if ns - usual > least else 1.0)
    slow = frozenset(path for path, found in ratios.items() if max(found) >= SLOW)
    fine = frozenset(path for path, found in ratios.items() if max(found) < FINE)
    return _Compared(slow, fine, typical)


def _path(
    group: Group | None, op: str, size_class: int, src: int | None, dst: int | None, nodes: dict[int, str]
) -> _Path | None:
    if group is None or group.size is None:
        return None
    pair = None if src is None or dst is None else (src, dst)
    ranks = frozenset(group.members if pair is None else pair)
    if len(ranks) < 2 or not ranks <= nodes.keys():
        return None
    return _Path(group, op, size_class, pair, ranks, frozenset(nodes[rank] for rank in ranks))


def _to_blame(found: _Compared) -> Iterator[_Blame]:
    inside, rest = (frozenset(path for path in found.slow if path.is_inside is told) for told in (True, False))
    between = frozenset(path for path in found.fine if not path.is_inside)
    for nodes, paths in _shared(inside, frozenset(), lambda path: path.nodes):
        yield _Blame(INSIDE, paths, nodes=nodes)
    for nodes, paths in _shared(rest, between, lambda path: path.nodes):
        rest -= paths
        yield _Blame(NODE if len(nodes) == 1 else NODES, paths, nodes=nodes)
    for ranks, paths in _shared(rest, between, lambda path: path.ranks):
        rest -= paths
        yield _Blame(RANKS, paths, ranks=ranks)
    for path in sorted(rest, key=str):
        yield _Blame(PATH, frozenset((path,)), ranks=tuple(sorted(path.ranks)))


def _shared(
    slow: frozenset[_Path], fine: frozenset[_Path], parts: Callable[[_Path], frozenset[T]]
) -> Iterator[tuple[tuple[T, ...], frozenset[_Path]]]:
    """Parts that no fine path has, with the slow paths that have them: the most shared first; alike ones together."""
    cleared = {part for path in fine for part in parts(path)}
    has: dict[T, set[_Path]] = defaultdict(set)
    for path in slow:
        for part in parts(path) - cleared:
            has[part].add(path)
    while has:
        most = max(len(paths) for paths in has.values())
        first = min((part for part, paths in has.items() if len(paths) == most), key=str)
        explained = frozenset(has[first])
        alike = tuple(sorted((part for part, paths in has.items() if paths == explained), key=lambda one: (str(one),)))
        yield alike, explained
        has = {part: left for part, paths in has.items() if (left := paths - explained)}


class _Reader:
    """Reads what slow paths did step by step."""

    def __init__(
        self, matching: Matching, groups: dict[str | None, Group], nodes: dict[int, str], compared: _Compared
    ) -> None:
        self._by_path: dict[_Path, dict[_Step, tuple[float, int, int]]] = defaultdict(dict)
        for incarnation, step, part, group_id, op, size_class, src, dst, num, ns, total in matching.rows("link_steps"):
            path = _path(groups.get(group_id), op, size_class, src, dst, nodes)
            if path is None or path not in compared.slow or (usual := compared.typical.get((*path.like, part))) is None:
                continue
            self._by_path[path][incarnation, step] = (ns / usual, int(total) - num * usual, num)
        self._duration_ns = {(row[0], row[1]): int(row[2]) for row in matching.rows("link_durations")}

    def over(self, paths: frozenset[_Path]) -> _Seen:
        """What `paths` did in the steps in which one of them did anything."""
        seen = [self._by_path[path] for path in sorted(paths, key=str)]
        steps = sorted({step for one in seen for step in one})
        at = [[one[step] for one in seen if step in one] for step in steps]
        return _Seen(
            steps, [median(ratio for ratio, _, _ in told) for told in at],
            [max(0, *(excess for _, excess, _ in told)) for told in at], [self._duration_ns[step] for step in steps],
            sum(num for told in at for _, _, num in told),
        )  # fmt: skip


def _named(told: Evidence, seen: _Seen, blame: _Blame, nodes: dict[int, str]) -> SlowLink | None:
    window = seen.window()
    if window is None:
        return None
    first, end = window
    cost = sum(seen.excess_ns[first:end])
    share = cost / max(1, sum(seen.duration_ns[first:end]))
    if share < MIN_COST:
        return None
    every = {rank for path in blame.paths for rank in path.ranks}
    ranks = blame.ranks or tuple(sorted(rank for rank in every if nodes[rank] in blame.nodes))
    where = blame.nodes or tuple(sorted({nodes[rank] for rank in ranks}))
    ratio = median(seen.ratio[first:end])
    num_late = sum(value >= SLOW for value in seen.ratio[first:end])
    since = None if first == 0 else seen.steps[first][1]
    kinds = ", ".join(sorted({f"{path.group.kind} {path.op}" for path in blame.paths}))
    text = (
        f"transfers {blame.subject()} take {ratio:.1f} times as long as {_OTHERS[blame.how]} ({kinds}), "
        f"{_often(seen, first, end, num_late)}; {percent(share)} of the time, as far as nothing hides it"
    )
    sure = round(wilson(num_late / (end - first), end - first) * (1.0 if told.coverage is None else told.coverage), 3)
    ids = ", ".join(f"'{group_id}'" for group_id in sorted({path.group.group_id for path in blame.paths}))
    verdict = Verdict(
        SLOW_LINK, ranks, text, sure, "", since, float(cost),
        ({"table": "collective", "predicate": f"group_id IN ({ids})"},),
    )  # fmt: skip
    scope = {"nodes": ", ".join(where), "ranks": ranks_in_words(ranks)}
    return SlowLink(blame.how, where, verdict, told.measurement("placement.slowdown", ratio, scope, seen.num))


def _often(seen: _Seen, first: int, end: int, num_late: int) -> str:
    often = f"in {num_late} of {end - first} counted steps"
    if end < len(seen.steps):
        return f"from step {seen.steps[first][1]} to {seen.steps[end - 1][1]}, {often} there"
    return often if first == 0 else f"since step {seen.steps[first][1]}, {often} from there"
