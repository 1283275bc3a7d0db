"""Delta temporality: what counters and histograms gained since the last export that arrived."""

from .meter import RunPoints, Snapshot
from .series import Attributes, HistogramValue, Point

Key = tuple[str, Attributes]


class Deltas:
    """Remembers what has arrived. One whose export failed is part of the next one."""

    def __init__(self) -> None:
        self._arrived: dict[Key, tuple[int, Point]] = {}
        self._offered: dict[Key, tuple[int, Point]] = {}

    def of(self, snapshot: Snapshot) -> Snapshot:
        """`snapshot` with differences in the place of counters and histograms; gauges as they are."""
        self._offered = {}
        runs = tuple(RunPoints(run.resource, tuple(self._point(point, snapshot.time_ns) for point in run.points))
                     for run in snapshot.runs)  # fmt: skip
        return Snapshot(snapshot.time_ns, runs)

    def arrived(self) -> None:
        """The last one that `of` gave is there. Series that were not in it are over."""
        self._arrived = self._offered

    def _point(self, point: Point, now_ns: int) -> Point:
        if point.instrument.kind not in ("counter", "histogram"):
            return point
        key = (point.instrument.name, point.attributes)
        self._offered[key] = (now_ns, point)
        before_ns, before = self._arrived.get(key, (0, None))
        if before is None or before.start_ns != point.start_ns:
            return point
        if isinstance(point.value, HistogramValue):
            assert isinstance(before.value, HistogramValue)
            return point._replace(start_ns=before_ns, value=_gained(point.value, before.value))
        assert not isinstance(before.value, HistogramValue)
        return point._replace(start_ns=before_ns, value=point.value - before.value)


def _gained(now: HistogramValue, before: HistogramValue) -> HistogramValue:
    """Least and most are those of the whole: of the difference nobody knows them."""
    counts = tuple(new - old for new, old in zip(now.counts, before.counts, strict=True))
    return HistogramValue(counts, now.num - before.num, now.total - before.total, now.least, now.most)
