"""Scaling series measured elsewhere, from a CSV: one row for a size of a workload and a metric.

Columns: series, n_accelerators, metric, value; mode (strong, weak, unknown), workload, hardware, source, note where
there are. Metrics are tried in the order of METRICS: throughput as it is, model FLOP utilisation times the size, the
inverse of step time and, where nothing else is there, of training time (which convergence makes noisy).
"""

import csv
import hashlib
import io
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from rankscope.schema.errors import NoEvidence, UnreadableFile

METRICS: Final = ("samples_per_s", "tokens_per_s", "mfu", "step_time_s", "time_to_train_min")
MODES: Final = ("strong", "weak", "unknown")
_NEEDED: Final = ("series", "n_accelerators", "metric", "value")
_MOST: Final = 1e100
"""Neither a value nor the inverse of one is above it: ratios of two stay numbers."""


@dataclass(frozen=True, slots=True)
class Series:
    """One workload over sizes. curve: (size, throughput) by size; metric: what the throughput was made from."""

    name: str
    mode: str
    workload: str
    hardware: str
    source: str
    metric: str
    curve: tuple[tuple[int, float], ...]

    @property
    def is_noisy(self) -> bool:
        """Made from training times, on which convergence luck shows."""
        return self.metric == METRICS[-1]


@dataclass(frozen=True, slots=True)
class Points:
    """What a file holds. digest: of its bytes."""

    series: tuple[Series, ...]
    digest: str


def read_points(path: str) -> Points:
    """The series of a CSV, in their order. Several values of one size are reduced to their median.

    Raises UnreadableFile (not there, not such a CSV, a value that is no positive number), NoEvidence (no row).
    """
    try:
        data = Path(path).read_bytes()  # once: it may be a pipe
        rows = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""))  # spreadsheets write the mark
        missing = [name for name in _NEEDED if name not in (rows.fieldnames or ())]
        if missing:
            raise UnreadableFile(f"{path}: no column {', '.join(missing)}; needed are {', '.join(_NEEDED)}")
        found = _gathered(path, rows)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UnreadableFile(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if not found:
        raise NoEvidence(f"{path}: no row")
    return Points(tuple(found), hashlib.blake2b(data, digest_size=16).hexdigest())


def _gathered(path: str, rows: "csv.DictReader[str]") -> list[Series]:
    values: dict[str, dict[str, dict[int, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    about: dict[str, dict[str, str]] = {}
    for row in rows:
        if not row["series"]:
            raise UnreadableFile(f"{path}, line {rows.line_num}: it names no series")
        about.setdefault(row["series"], row)
        size, value = _number(path, rows.line_num, row, "n_accelerators"), _number(path, rows.line_num, row, "value")
        if size != int(size):
            raise UnreadableFile(f"{path}, line {rows.line_num}: n_accelerators is {size:g}, not a whole number")
        values[row["series"]][row["metric"]][int(size)].append(value)
    return [_series(path, name, about[name], metrics) for name, metrics in values.items()]


def _number(path: str, line: int, row: dict[str, str], column: str) -> float:
    try:
        value = float(row[column])
    except (TypeError, ValueError):
        value = 0.0
    if not 1 / _MOST <= value <= _MOST:
        raise UnreadableFile(f"{path}, line {line}: {column} is {row[column]!r}, not a positive number")
    return value


def _series(path: str, name: str, about: dict[str, str], metrics: dict[str, dict[int, list[float]]]) -> Series:
    metric = next((known for known in METRICS if known in metrics), None)
    if metric is None:
        raise UnreadableFile(f"{path}: series {name} has none of the metrics {', '.join(METRICS)}")
    curve = tuple((size, _throughput(metric, size, median(found))) for size, found in sorted(metrics[metric].items()))
    mode = about.get("mode") or "unknown"
    return Series(
        name, mode if mode in MODES else "unknown", about.get("workload") or "", about.get("hardware") or "",
        about.get("source") or "", metric, curve,
    )  # fmt: skip


def _throughput(metric: str, size: int, value: float) -> float:
    if metric in METRICS[:2]:
        return value
    return value * size if metric == "mfu" else 1 / value
