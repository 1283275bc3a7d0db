"""What the run's devices did: how busy, how much power and energy, how hot, and what held their clocks down.

Energy is the device's own counter, last minus first reading; where it has none, power integrated by trapezoids. A
throttle reason counts by the share of readings in which it was set; "gpu_idle" is none. A device whose last reading
tells neither power nor memory was lost or silent at the end, for the reason that stands in that reading.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rankscope.schema.measurement import Measurement

from .evidence import Evidence
from .run import Row, Run
from .statements import statement

ANALYZER: Final = "devices"
NOT_A_REASON: Final = "gpu_idle"
_ENDS: Final = ("between the first and the last reading",)
_INTEGRATED: Final = (*_ENDS, "from power, the device has no energy counter")


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """One device. utilisation, power, temperature: mean and max. throttled: one for each reason that occurred.

    silent: why its last reading told nothing, else "". Series are means in equal parts of the sampled time:
    thousandths, milliwatts, thousandths of a degree.
    """

    uuid: str
    node: str
    name: str
    ranks: tuple[int, ...]
    mig: str
    memory_bytes: int | None
    power_limit_watts: float | None
    utilisation: tuple[Measurement, ...]
    memory_used: Measurement
    power: tuple[Measurement, ...]
    energy: Measurement
    temperature: tuple[Measurement, ...]
    clock_range_hertz: tuple[float | None, float | None]
    throttled: tuple[Measurement, ...]
    num_uncorrected: int | None
    last_xid: int | None
    silent: str
    utilisation_series: tuple[int, ...]
    power_series: tuple[int, ...]
    temperature_series: tuple[int, ...]

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        return (*self.utilisation, self.memory_used, *self.power, self.energy, *self.temperature, *self.throttled)


@dataclass(frozen=True, slots=True)
class Devices:
    """The answer; no devices where nothing was sampled. energy: of all devices, of one step.

    notes: what the samplers could not do, and why.
    """

    devices: tuple[DeviceUse, ...]
    energy: tuple[Measurement, ...]
    notes: tuple[str, ...] = ()

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """All of them, in the order of the report."""
        return (*(item for device in self.devices for item in device.measurements), *self.energy)


def devices(run: Run, coverage: float | None = None) -> Devices:
    """The devices of `run`."""
    told = Evidence(run, ANALYZER, statement(ANALYZER, "devices"), ("device_sample",), coverage)
    about = {row[0]: row[1:] for row in run.rows(statement(ANALYZER, "about"))}
    joules: dict[str, float] = dict(run.rows(statement(ANALYZER, "integrated")))
    throttling, series = _by_device(run, "throttling"), _by_device(run, "series")
    found = [
        _device(told, row, about.get(row[0], (None,) * 6), joules.get(row[0]), throttling[row[0]], series[row[0]])
        for row in run.rows(statement(ANALYZER, "devices"))
    ]
    notes = tuple(row[0] for row in run.rows(statement(ANALYZER, "notes")))
    return Devices(tuple(found), _energy_of_all(run, told, found), notes)


def _by_device(run: Run, name: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in run.rows(statement(ANALYZER, name)):
        found[row[0]].append(row[1:])
    return found


def _device(
    told: Evidence, row: Row, about: Row, joules: float | None, throttling: list[Row], series: list[Row]
) -> DeviceUse:  # fmt: skip
    uuid, node, num, _, *rest = row
    (mean_use, most_use, memory, mean_power, most_power, energy, num_energy, mean_heat, most_heat, least_clock,
     most_clock, num_throttle, *_links, uncorrected, xid, reason, is_silent) = rest  # fmt: skip
    name, memory_bytes, limit, mig, _, ranks = about
    scope = {"device": uuid}
    why: dict[str, str] = json.loads(reason) if reason else {}

    def both(measure: str, column: str, values: tuple[float | None, float | None]) -> tuple[Measurement, ...]:
        return tuple(
            told.measurement(measure, value, {**scope, "statistic": statistic}, num,
                             reason="" if value is not None else why.get(column, "not told"))
            for statistic, value in zip(("mean", "max"), values, strict=True)
        )  # fmt: skip

    return DeviceUse(
        uuid, node, name or "", tuple(ranks or ()), mig or "", memory_bytes, limit,
        both("device.utilisation", "sm_utilisation_ratio", (mean_use, most_use)),
        told.measurement("device.memory_used", memory, scope, num,
                         reason="" if memory is not None else why.get("memory_used_bytes", "not told")),
        both("device.power", "power_watts", (mean_power, most_power)),
        _energy(told, scope, energy if num_energy > 1 else None, joules, num, why),
        both("device.temperature", "temperature_celsius", (mean_heat, most_heat)),
        (least_clock, most_clock), _throttled(told, scope, throttling, num_throttle, why), uncorrected, xid,
        why.get("memory_used_bytes", "") if is_silent else "",
        *(tuple(part[column] for part in series if part[column] is not None) for column in (1, 2, 3)),
    )  # fmt: skip


def _energy(
    told: Evidence, scope: dict[str, str], counted: float | None, joules: float | None, num: int, why: dict[str, str]
) -> Measurement:  # fmt: skip
    value = counted if counted is not None else joules
    reason = "" if value is not None else why.get("energy_joules", "no two readings of energy or power")
    caveats = _ENDS if counted is not None else _INTEGRATED
    return told.measurement("energy.run", value, scope, num, reason=reason, caveats=caveats)


def _throttled(
    told: Evidence, scope: dict[str, str], throttling: list[Row], num: int, why: dict[str, str]
) -> tuple[Measurement, ...]:  # fmt: skip
    """Share of the readings by reason, largest first; a single 0 where there was no reason, none where nobody says."""
    if not num:
        reason = why.get("throttle_reasons", "not told")
        return (told.measurement("device.throttled", None, {**scope, "reason": "any"}, 0, reason=reason),)
    counts = sorted(((name, count) for name, count in throttling if name != NOT_A_REASON), key=lambda item: -item[1])
    if not counts:
        return (told.measurement("device.throttled", 0.0, {**scope, "reason": "any"}, num),)
    return tuple(
        told.measurement("device.throttled", count / num, {**scope, "reason": name}, num) for name, count in counts
    )


def _energy_of_all(run: Run, told: Evidence, found: Sequence[DeviceUse]) -> tuple[Measurement, ...]:
    """Of all devices together, and of one step; none as soon as one device's energy is not known. Parts of a divided
    device have none of their own and are left out."""
    whole = [device for device in found if not device.mig.startswith("GPU-")]
    if not whole:
        return ()
    values = [device.energy.value for device in whole]
    unknown = sum(value is None for value in values)
    total = None if unknown else sum(float(value) for value in values if value is not None)
    reason = f"the energy of {unknown} of {len(whole)} devices is not known" if unknown else ""
    num_steps = int(run.rows(statement(ANALYZER, "steps"))[0][0])
    per_step = total / num_steps if total is not None and num_steps else None
    return (
        told.measurement("energy.run", total, {}, len(whole), reason=reason, caveats=_ENDS),
        told.measurement("energy.step", per_step, {}, num_steps, caveats=_ENDS,
                         reason="" if per_step is not None else reason or "no step ended"),
    )  # fmt: skip
