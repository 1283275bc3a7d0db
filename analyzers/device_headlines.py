"""What readings of devices and memory say in plain sentences: lost devices, errors, throttling, growing memory."""

from collections.abc import Iterator
from typing import Final

from .devices import Devices, DeviceUse
from .groups import named_ranks
from .headline import CRITICAL, WARNING, Headline
from .memory import Memory

SLOWING: Final = frozenset({
    "hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "socket_thermal",
    "vr_thermal", "hbm_thermal",
})  # fmt: skip
"""Reasons that a device in order does not show; a power cap under full load is how it is built to work."""
OFTEN: Final = 0.05
"""Share of readings from which throttling is worth a warning: one in twenty."""


def device_headlines(devices: Devices, memory: Memory) -> Iterator[Headline]:
    """One sentence per finding."""
    for device in devices.devices:
        if device.silent:
            yield Headline(CRITICAL, f"{_who(device)} told nothing at the end: {device.silent}.")
        if device.last_xid is not None:
            yield Headline(WARNING, f"{_who(device)} reported Xid {device.last_xid}.")
        if device.num_uncorrected:
            yield Headline(CRITICAL, f"{_who(device)} had {device.num_uncorrected:,} uncorrected memory errors.")
        for item in device.throttled:
            if item.scope["reason"] in SLOWING and float(item.value or 0) >= OFTEN:
                share = 100 * float(item.value or 0)
                yield Headline(
                    WARNING, f"{_who(device)} was slowed down in {share:.0f} % of the readings: {item.scope['reason']}."
                )
    yield from _memory(memory)


def _memory(memory: Memory) -> Iterator[Headline]:
    for rank in memory.ranks:
        if rank.num_ooms:
            yield Headline(WARNING, f"Rank {rank.rank} ran out of device memory {rank.num_ooms:,} times.")
    ending = [rank for rank in memory.ranks if rank.exhaustion.value is not None]
    if ending:
        first = min(ending, key=lambda rank: float(rank.exhaustion.value or 0))
        others = f" and {len(ending) - 1} more ranks" if len(ending) > 1 else ""
        at, growth = float(first.exhaustion.value or 0), float(first.creep.value or 0)
        yield Headline(
            WARNING,
            f"Allocated memory of rank {first.rank}{others} grows, by {growth / 1e6:.3g} MB a step: "
            f"its device is full at about step {at:,.0f}.",
        )


def _who(device: DeviceUse) -> str:
    ranks = f" ({named_ranks(device.ranks)})" if device.ranks else ""
    return f"Device {device.uuid}{ranks}"
