"""Does the training wait for its data, and does it see every sample once an epoch?

Waits are those of the process that trains: a loader whose workers keep up shows microseconds. The stall fraction is
U(waits for data) / time from the first step to the last, per rank and over all; saturation is the share of batches for
which the step waited more than 1 ms. Samples per epoch: see `epochs`.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

from rankscope.schema.measurement import Measurement

from .buckets import Histogram, quantile
from .epochs import Drawn, Share, drawn, repeats
from .evidence import Evidence
from .partials import Pair, Partial
from .profile import SPANS, has_any
from .run import Run
from .statements import statement

ANALYZER: Final = "loading"
STALL: Final = Pair(ANALYZER, "stall", (Partial(ANALYZER, "stall_partial", ("span", "sample_batch"), ("part_stall",)),))
PAIRS: Final = (STALL,)
"""What this analyzer asks of the large tables."""
SLOW_NS: Final = 1_000_000
"""A wait that counts for the saturation (3-metrics: 1 ms)."""
SERIES_COLUMNS: Final = 30
_NO_BATCH: Final = "no batch of a data loader was recorded"


@dataclass(frozen=True, slots=True)
class Loader:
    """One loader over all ranks. waits: (p50, p99, longest), ns. mean_depth: batches ready when asked, None unknown.

    empty_ratio: share of batches for which none was ready. series: longest wait by group of batches.
    """

    name: str
    num_batches: int
    num_samples: int | None
    num_workers: int | None
    waits: tuple[int | None, int | None, int | None]
    saturation: Measurement
    mean_depth: float | None
    empty_ratio: float | None
    series: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EpochLine:
    """One epoch of one loader over its shares. duplicated, missing: data.duplicated and data.missing."""

    incarnation: int
    loader: str
    epoch: int
    dataset_size: int | None
    drawn: Drawn
    duplicated: Measurement
    missing: Measurement


@dataclass(frozen=True, slots=True)
class Loading:
    """The answer. stall: over all ranks; by_rank: the same of each rank, most first. repeated: loaders of which each
    rank draws the same in every epoch, although they shuffle.
    """

    stall: Measurement
    saturation: Measurement
    by_rank: tuple[Measurement, ...]
    loaders: tuple[Loader, ...]
    epochs: tuple[EpochLine, ...]
    repeated: tuple[str, ...]

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        samples = (item for line in self.epochs for item in (line.duplicated, line.missing))
        return (self.stall, *self.by_rank, self.saturation, *(item.saturation for item in self.loaders), *samples)


def loading(run: Run, coverage: float | None = None) -> Loading:
    """Waits for data and samples of `run`."""
    stall, by_rank = _stall(run, coverage)
    sql = statement(ANALYZER, "loaders").replace("{slow_ns}", str(SLOW_NS))
    told = Evidence(run, ANALYZER, sql, ("sample_batch",), coverage, predicate="wait_ns >= 0")
    rows = run.rows(sql)
    batches, slow = sum(row[1] for row in rows), sum(row[4] for row in rows)
    saturation = _ratio(told, "data.saturation", slow, batches, {}, batches, _NO_BATCH)
    return Loading(stall, saturation, by_rank, _loaders(run, told, rows), *_epochs(run, coverage))


def _stall(run: Run, coverage: float | None) -> tuple[Measurement, tuple[Measurement, ...]]:
    told = Evidence(
        run, ANALYZER, STALL.definition, ("span", "sample_batch", "step"), coverage, window="first to last step"
    )
    is_there = bool(run.size("sample_batch").num_rows) or has_any(run, SPANS, "kind = 'data' AND num_closed > 0")
    rows = [row for row in STALL.rows(run) if row[2]] if is_there else []
    name, waits, total = "data.stall_fraction", sum(row[1] for row in rows), sum(row[2] for row in rows)
    why = "no wait for data was recorded inside the steps of a rank"
    by_rank = [_ratio(told, name, row[1], row[2], {"rank": row[0]}, row[3], why) for row in rows]
    by_rank.sort(key=lambda item: -float(item.value or 0))
    return _ratio(told, name, waits, total, {}, sum(row[3] for row in rows), why), tuple(by_rank)


def _loaders(run: Run, told: Evidence, rows: list[tuple[Any, ...]]) -> tuple[Loader, ...]:
    waits: dict[str, Histogram] = defaultdict(list)
    for loader, bucket, number in run.rows(statement(ANALYZER, "waits")):
        waits[loader].append((bucket, number))
    series: dict[str, dict[int, int]] = defaultdict(dict)
    for loader, part, wait_ns in run.rows(statement(ANALYZER, "series").replace("{columns}", str(SERIES_COLUMNS))):
        series[loader][part] = wait_ns
    found = []
    for loader, batches, samples, workers, slow, longest, depth, num_depths, empty in rows:
        name = loader or "unknown"
        found.append(Loader(
            name, batches, samples, workers,
            (quantile(waits[loader], 0.5, longest), quantile(waits[loader], 0.99, longest), longest),
            _ratio(told, "data.saturation", slow, batches, {"loader": name}, batches, _NO_BATCH),
            depth / num_depths if num_depths else None, empty / num_depths if num_depths else None,
            tuple(series[loader].get(part, 0) for part in range(max(series[loader], default=-1) + 1)),
        ))  # fmt: skip
    return tuple(found)


def _epochs(run: Run, coverage: float | None) -> tuple[tuple[EpochLine, ...], tuple[str, ...]]:
    sql = statement(ANALYZER, "epochs")
    told = Evidence(run, ANALYZER, sql, ("sample_epoch",), coverage)
    num_ranks: dict[int, int] = dict(run.rows(statement(ANALYZER, "world")))
    groups: dict[tuple[int, str, int], list[Share]] = defaultdict(list)
    loaders: dict[tuple[int, str], list[Share]] = defaultdict(list)
    for row in run.rows(sql):
        share = Share(*row)
        groups[share.incarnation, share.loader, share.epoch].append(share)
        loaders[share.incarnation, share.loader].append(share)
    lines = tuple(_epoch(told, key, rows, num_ranks.get(key[0], 0)) for key, rows in sorted(groups.items()))
    return lines, tuple(sorted({loader for (_, loader), rows in loaders.items() if repeats(rows)}))


def _epoch(told: Evidence, key: tuple[int, str, int], rows: list[Share], num_ranks: int) -> EpochLine:
    incarnation, loader, epoch = key
    found = drawn(rows, num_ranks)
    scope = {"epoch": epoch, "loader": loader, "incarnation": incarnation}
    n = found.num_samples or 0
    caveats = (f"padding by the sampler left apart: {found.num_padded}",) if found.num_padded is not None else ()
    measured = [
        told.measurement(name, value, scope, n, reason="" if value is not None else found.reason, caveats=caveats)
        for name, value in (("data.duplicated", found.duplicated), ("data.missing", found.missing))
    ]
    return EpochLine(incarnation, loader, epoch, rows[0].dataset_size, found, *measured)


def _ratio(
    told: Evidence, name: str, part: int, whole: int, scope: dict[str, Any], n: int, why: str
) -> Measurement:  # fmt: skip
    if not whole:
        return told.measurement(name, None, scope, 0, reason=why)
    return told.measurement(name, part / whole, scope, n)
