"""The sections "Memory" and "Devices" of the report; nothing is computed here."""

from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rankscope.analyzers.devices import Devices, DeviceUse
from rankscope.analyzers.groups import ranks_in_words
from rankscope.analyzers.memory import Memory, RankMemory
from rankscope.schema.measurement import Measurement

from .tables import FittingTable
from .words import NONE, bar, share, size, sparkline

MAX_ROWS: Final = 16
BAR_COLUMNS: Final = 12


def memory_section(memory: Memory) -> RenderableType | None:
    """One row per rank, the fullest first; None where no rank left a reading."""
    if not memory.ranks:
        return None
    has_allocator = any(rank.allocated[0].value is not None for rank in memory.ranks)
    names = ("allocated", "peak reserved", "of its device", "", "in pieces", "grows a step") if has_allocator else ()
    right = (0, 1, 2, 3, 5, 6, 7, 8) if has_allocator else (0, 1, 2)
    table = _table("rank", *names, "process", "grows a step", right=right)
    ranked = sorted(memory.ranks, key=lambda rank: -float(rank.peak_reserved.value or rank.rss[1].value or 0))
    for rank in ranked[:MAX_ROWS]:
        cells = _allocator(rank) if has_allocator else ()
        table.add_row(Text(NONE if rank.rank is None else str(rank.rank)), *cells, *_process(rank))
    lines = [_held_over_time(rank) for rank in ranked[:MAX_ROWS] if rank.series]
    notes = [] if has_allocator else [memory.ranks[0].allocated[0].reason]
    notes += [f"and {len(ranked) - MAX_ROWS:,} more ranks"] if len(ranked) > MAX_ROWS else []
    return Group(table, *lines, *(Text(note, style="dim") for note in notes))


def devices_section(devices: Devices) -> RenderableType | None:
    """One row per device, and how it went over time; None where no device was sampled and nobody says why."""
    if not devices.devices:
        return Group(*(Text(note, style="dim") for note in devices.notes)) if devices.notes else None
    table = _table("device", "ranks", "busy", "max", "memory", "power", "max", "energy", "hottest", "SM clock",
                   "slowed down by", right=(2, 3, 4, 5, 6, 7, 8, 9))  # fmt: skip
    for device in devices.devices[:MAX_ROWS]:
        table.add_row(*_device(device))
    lines = [line for device in devices.devices[:MAX_ROWS] for line in _over_time(device)]
    notes = [_energy(devices)] if devices.energy and devices.energy[0].value is not None else []
    more = len(devices.devices) - MAX_ROWS
    notes += [f"and {more:,} more devices"] if more > 0 else []
    notes += devices.notes[:MAX_ROWS]
    return Group(table, *lines, *(Text(note, style="dim") for note in notes))


def _allocator(rank: RankMemory) -> tuple[Text, ...]:
    peak, whole = _number(rank.peak_reserved), rank.device_bytes
    ratio = peak / whole if peak is not None and whole else None
    return (
        Text(size(_number(rank.allocated[1]))),
        Text(size(peak)),
        Text(share(ratio)),
        Text(bar(ratio or 0, BAR_COLUMNS), style="cyan"),
        Text(share(_number(rank.fragmentation[0]))),
        _growth(rank.creep),
    )


def _process(rank: RankMemory) -> tuple[Text, ...]:
    return Text(size(_number(rank.rss[1]))), _growth(rank.rss_creep)


def _held_over_time(rank: RankMemory) -> Text:
    """From the least to the most over the counted steps: what is allocated, else what the process holds."""
    least, most = min(rank.series), max(rank.series)
    name = "process" if rank.allocated[0].value is None else "allocated"
    line = Text(f"rank {NONE if rank.rank is None else rank.rank}  {name} ", style="dim").append(f"{size(least)} ")
    return line.append(sparkline([value - least for value in rank.series]), style="cyan").append(f" {size(most)}")


def _growth(creep: Measurement) -> Text:
    """The slope if its interval leaves 0 out; else that there is none to see."""
    if creep.value is None or creep.interval is None:
        return Text(NONE)
    if creep.interval.low <= 0 <= creep.interval.high:
        return Text("no")
    return Text(f"{size(float(creep.value))}", style="yellow" if float(creep.value) > 0 else "")


def _device(device: DeviceUse) -> tuple[Text, ...]:
    name = Text(
        device.uuid if len(device.uuid) <= 14 else f"{device.uuid[:12]}…", style="bold red" * bool(device.silent)
    )
    low, high = device.clock_range_hertz
    clocks = (
        NONE if low is None or high is None else f"{low / 1e6:.0f}" + ("" if low == high else f" to {high / 1e6:.0f}")
    )
    hottest = _number(device.temperature[1])
    return (
        name,
        Text(ranks_in_words(device.ranks) if device.ranks else NONE),
        *(Text(share(_number(item), 0)) for item in device.utilisation),
        Text(size(_number(device.memory_used))),
        *(Text(_watts(_number(item))) for item in device.power),
        Text(_joules(_number(device.energy))),
        Text(NONE if hottest is None else f"{hottest:.0f} °C"),
        Text(NONE if clocks == NONE else f"{clocks} MHz"),
        _throttled(device),
    )


def _throttled(device: DeviceUse) -> Text:
    if device.silent:
        return Text(f"at the end: {device.silent}", style="bold red")
    first = device.throttled[0]
    if first.value is None:
        return Text(f"{NONE} {first.reason}", style="dim")
    found = [f"{item.scope['reason']} {share(_number(item), 0)}" for item in device.throttled if item.value]
    return Text(", ".join(found) or "nothing", style="yellow" if found else "")


def _over_time(device: DeviceUse) -> list[Text]:
    if not device.utilisation_series and not device.power_series:
        return []
    line = Text(f"{device.uuid[:12]}", style="dim")
    for name, series in (("busy", device.utilisation_series), ("power", device.power_series),
                         ("heat", device.temperature_series)):  # fmt: skip
        if series:
            line.append(f"  {name} ", style="dim").append(sparkline(_thinned(series)), style="cyan")
    return [line]


def _thinned(series: tuple[int, ...]) -> list[int]:
    """Half as many: three drawings share the line."""
    return [max(series[at : at + 2]) for at in range(0, len(series), 2)]


def _energy(devices: Devices) -> str:
    whole, step = devices.energy
    text = f"energy of all: {_joules(_number(whole))}"
    return text if step.value is None else f"{text}, {_joules(_number(step))} a step"


def _watts(value: float | None) -> str:
    return NONE if value is None else f"{value:.0f} W"


def _joules(value: float | None) -> str:
    if value is None:
        return NONE
    for factor, unit in ((1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.3g} J"


def _number(measurement: Measurement) -> float | None:
    return None if measurement.value is None else float(measurement.value)


def _table(*headers: str, right: tuple[int, ...]) -> Table:
    table = FittingTable(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim", show_edge=False)
    for index, header in enumerate(headers):
        is_whole = index in right or not header
        table.add_column(header, justify="right" if index in right else "left", overflow="fold", no_wrap=is_whole)
    return table
