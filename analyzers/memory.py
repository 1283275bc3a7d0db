"""How much memory the ranks hold at step ends, how much of it is in pieces, and whether it grows.

Creep is the median slope of *allocated* bytes over the counted steps (reserved bytes are a staircase), of resident
memory for the host. Where its interval lies above 0 and the device's memory is known, the step is given at which what
others leave of the device is full: last step + (memory - used by others - allocated) / slope. Fragmentation is inactive
split / reserved bytes; 1 - peak allocated / peak reserved is only a bound, as the peaks fall at different moments.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from rankscope.schema.measurement import Interval, Measurement

from .evidence import Evidence
from .run import Row, Run
from .statements import statement
from .theil_sen import LEVEL, METHOD, MIN_POINTS, Trend, theil_sen

ANALYZER: Final = "memory"
MAX_POINTS: Final = 80
"""Readings per rank that the trend is taken from: 3,160 slopes, about 0.2 ms."""
_NO_ALLOCATOR: Final = "no reading of a device's allocator: the ranks did not use torch.cuda"
_NO_RSS: Final = "the kernel does not say"
_FEW: Final = f"fewer than {MIN_POINTS} counted steps with a reading"
_AUTOCORRELATED: Final = ("neighbouring steps are not independent: the interval is somewhat too narrow",)


@dataclass(frozen=True, slots=True)
class RankMemory:
    """One rank. Series: allocated (else resident) bytes over the counted steps. device_bytes: memory of its device."""

    rank: int | None
    allocated: tuple[Measurement, ...]
    peak_reserved: Measurement
    fragmentation: tuple[Measurement, ...]
    creep: Measurement
    exhaustion: Measurement
    rss: tuple[Measurement, ...]
    rss_creep: Measurement
    num_retries: int | None
    num_ooms: int | None
    device_bytes: int | None
    series: tuple[int, ...]

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        return (*self.allocated, self.peak_reserved, *self.fragmentation, self.creep, self.exhaustion, *self.rss,
                self.rss_creep)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Memory:
    """The answer; empty where no rank left a reading."""

    ranks: tuple[RankMemory, ...]

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        return tuple(item for rank in self.ranks for item in rank.measurements)


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of one rank beside its readings in brief."""

    steps: tuple[int, ...]
    allocated: tuple[int, ...]
    rss: tuple[int, ...]
    device_bytes: int | None
    used_bytes: int | None


def memory(run: Run, coverage: float | None = None) -> Memory:
    """The memory of the ranks of `run`."""
    told = Evidence(run, ANALYZER, statement(ANALYZER, "ranks"), ("memory",), coverage)
    sql = statement(ANALYZER, "series").replace("{points}", str(MAX_POINTS))
    trend = Evidence(run, ANALYZER, sql, ("memory", "step"), coverage, window="counted steps of the last incarnation",
                     caveats=_AUTOCORRELATED)  # fmt: skip
    series: dict[int | None, list[Row]] = defaultdict(list)
    for row in run.rows(sql):
        series[row[0]].append(row)
    capacity = {row[0]: row[1:] for row in run.rows(statement(ANALYZER, "capacity"))}
    return Memory(tuple(
        _rank(told, trend, row, _known(series[row[0]], capacity.get(row[14], (None, None))))
        for row in run.rows(statement(ANALYZER, "ranks"))
    ))  # fmt: skip


def _known(series: list[Row], capacity: tuple[int | None, int | None]) -> _Known:
    return _Known(
        tuple(row[1] for row in series),
        tuple(row[2] for row in series if row[2] is not None),
        tuple(row[3] for row in series if row[3] is not None),
        *capacity,
    )


def _rank(told: Evidence, trend: Evidence, row: Row, known: _Known) -> RankMemory:
    (rank, _, num, last, most, reserved, peak_allocated, peak_reserved, pieces, last_rss, most_rss, num_rss, retries,
     ooms, _) = row  # fmt: skip
    why = "" if num else _NO_ALLOCATOR
    scope = {"rank": rank}
    bound = 1 - peak_allocated / peak_reserved if peak_reserved and peak_allocated is not None else None
    growth = theil_sen(known.steps, known.allocated) if len(known.allocated) == len(known.steps) else None
    rss_growth = theil_sen(known.steps, known.rss) if len(known.rss) == len(known.steps) else None

    def pair(name: str, values: dict[str, float | None], number: int, reason: str) -> tuple[Measurement, ...]:
        return tuple(
            told.measurement(name, value, {**scope, "statistic": statistic}, number,
                             reason="" if value is not None else reason or "not told")
            for statistic, value in values.items()
        )  # fmt: skip

    return RankMemory(
        rank,
        pair("memory.allocated", {"last": last, "max": most}, num, why),
        told.measurement("memory.peak_reserved", peak_reserved, scope, num,
                         reason="" if peak_reserved is not None else why or "not told"),
        pair("memory.fragmentation", {"mean": pieces, "bound": bound}, num, why),
        _creep(trend, "memory.creep", growth, scope, known, why),
        _exhaustion(trend, growth, scope, known, last, reserved),
        pair("memory.rss", {"last": last_rss, "max": most_rss}, num_rss, _NO_RSS),
        _creep(trend, "memory.rss_creep", rss_growth, scope, known, "" if num_rss else _NO_RSS),
        retries, ooms, known.device_bytes, known.allocated or known.rss,
    )  # fmt: skip


def _creep(
    trend: Evidence, name: str, growth: Trend | None, scope: dict[str, int | None], known: _Known, why: str
) -> Measurement:
    if growth is None:
        return trend.measurement(name, None, scope, len(known.steps), reason=why or _FEW)
    interval = Interval(growth.low, growth.high, LEVEL, METHOD)
    return trend.measurement(name, growth.slope, scope, len(known.steps), interval=interval)


def _exhaustion(
    trend: Evidence, growth: Trend | None, scope: dict[str, int | None], known: _Known, last: int | None,
    reserved: int | None,
) -> Measurement:  # fmt: skip
    """The step at which the device is full, if it goes on like this."""
    name, number = "memory.exhaustion", len(known.steps)
    if growth is None or last is None:
        return trend.measurement(name, None, scope, number, reason="the trend is not known")
    if not growth.is_rising:
        return trend.measurement(name, None, scope, number, reason="allocated memory does not grow: no end to foresee")
    if known.device_bytes is None or known.used_bytes is None:
        return trend.measurement(name, None, scope, number, reason="the device's memory and its use are not known")
    others = max(0, known.used_bytes - (reserved or 0))
    left = max(0, known.device_bytes - others - last)
    at, soonest, latest = (known.steps[-1] + left / slope for slope in (growth.slope, growth.high, growth.low))
    return trend.measurement(name, at, scope, number, interval=Interval(soonest, latest, LEVEL, METHOD))
