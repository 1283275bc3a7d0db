"""What is asked of one NVIDIA device, and in which unit it answers: one function per question, in columns of
`device_sample`.

Source: NVML API reference (nvml.h, driver 535 and later). Times and counters are the driver's own: energy and ECC
errors since the driver was loaded, link bytes since the reset of their counters.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pynvml

ALL_LINKS: Final = 0xFFFFFFFF
"""Scope of an NVLink field that means all links together."""
KIB: Final = 1024
MAX_LINKS: Final = int(pynvml.NVML_NVLINK_MAX_LINKS)
XID: Final = int(pynvml.nvmlEventTypeXidCriticalError)

THROTTLE_REASONS: Final = {
    0x1: "gpu_idle", 0x2: "applications_clocks_setting", 0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x10: "sync_boost",
    0x20: "sw_thermal_slowdown", 0x40: "hw_thermal_slowdown", 0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting", 0x200: "board_limit", 0x400: "reliability",
}  # fmt: skip
"""nvmlClocksEventReason* by bit."""

# Numbers of nvml.h that pynvml 12.535, which is supported, does not name.
PCIE_TX_BYTES, PCIE_RX_BYTES = 197, 198
LINK_TX_BYTES, LINK_RX_BYTES = 202, 204

_MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of a field's value by its type (nvmlValueType_t, from 0)."""
_WRAPPING: Final = {1: 32, 6: 16}
"""Bits of the types that are short enough to overflow in a training."""


class Question(NamedTuple):
    """columns: what the answer fills, in this order."""

    columns: tuple[str, ...]
    ask: "Callable[[Asked], tuple[object, ...]]"


class Asked:
    """A device's handle, and what must be remembered between readings of it."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.event_set: Any = None
        self.last_xid: int | None = None
        self._seen: dict[int, tuple[int, int]] = {}

    def unwrapped(self, field: int, value: int, bits: int) -> int:
        """A counter of `bits` bits that begins anew at 0 when it is full, as one that only grows."""
        last, base = self._seen.get(field, (value, 0))
        base += (1 << bits) if value < last else 0
        self._seen[field] = (value, base)
        return base + value


def throttle_names(bits: int) -> str:
    """The reasons in a bit mask, comma-separated, lowest bit first; "" for none; unknown ones as bit_<n>."""
    found = [THROTTLE_REASONS.get(1 << n, f"bit_{n}") for n in range(bits.bit_length()) if bits >> n & 1]
    return ",".join(found)


def _utilisation(asked: Asked) -> tuple[object, ...]:
    rates = pynvml.nvmlDeviceGetUtilizationRates(asked.handle)  # percent
    return rates.gpu / 100, rates.memory / 100


def _memory(asked: Asked) -> tuple[object, ...]:
    return (int(pynvml.nvmlDeviceGetMemoryInfo(asked.handle).used),)


def _power(asked: Asked) -> tuple[object, ...]:
    return (pynvml.nvmlDeviceGetPowerUsage(asked.handle) / 1000,)  # milliwatts


def _energy(asked: Asked) -> tuple[object, ...]:
    return (pynvml.nvmlDeviceGetTotalEnergyConsumption(asked.handle) / 1000,)  # millijoules


def _temperature(asked: Asked) -> tuple[object, ...]:
    try:
        return (float(pynvml.nvmlDeviceGetTemperature(asked.handle, pynvml.NVML_TEMPERATURE_GPU)),)
    except pynvml.NVMLError as error:  # deprecated in NVML 13; drivers may leave it out one day
        if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND or not hasattr(pynvml, "nvmlDeviceGetTemperatureV"):
            raise
        return (float(pynvml.nvmlDeviceGetTemperatureV(asked.handle, pynvml.NVML_TEMPERATURE_GPU)),)


def _sm_clock(asked: Asked) -> tuple[object, ...]:
    return (pynvml.nvmlDeviceGetClockInfo(asked.handle, pynvml.NVML_CLOCK_SM) * 1e6,)  # megahertz


def _memory_clock(asked: Asked) -> tuple[object, ...]:
    return (pynvml.nvmlDeviceGetClockInfo(asked.handle, pynvml.NVML_CLOCK_MEM) * 1e6,)


def _throttle(asked: Asked) -> tuple[object, ...]:
    try:
        return (throttle_names(pynvml.nvmlDeviceGetCurrentClocksEventReasons(asked.handle)),)
    except pynvml.NVMLError as error:  # its name before driver 535
        if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
        return (throttle_names(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(asked.handle)),)


def _pcie(asked: Asked) -> tuple[object, ...]:
    return tuple(_fields(asked, [(PCIE_RX_BYTES, 0), (PCIE_TX_BYTES, 0)]))


def _nvlink(asked: Asked) -> tuple[object, ...]:
    """Over all links: KiB counters; where there are none (Blackwell), the bytes that each link counted."""
    received, sent = pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX
    try:
        return tuple(KIB * value for value in _fields(asked, [(received, ALL_LINKS), (sent, ALL_LINKS)]))
    except pynvml.NVMLError as error:
        if error.value not in (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT):
            raise
        links = active_links(asked.handle)
        if not links:
            raise
    by_link = [_fields(asked, [(LINK_RX_BYTES, link), (LINK_TX_BYTES, link)]) for link in links]
    return sum(values[0] for values in by_link), sum(values[1] for values in by_link)


def active_links(handle: Any) -> list[int]:
    """The NVLinks that are up; none where the device has no NVLink."""
    found = []
    for link in range(MAX_LINKS):
        try:
            if pynvml.nvmlDeviceGetNvLinkState(handle, link) == pynvml.NVML_FEATURE_ENABLED:
                found.append(link)
        except pynvml.NVMLError:
            break
    return found


def _ecc_corrected(asked: Asked) -> tuple[object, ...]:
    return (_ecc(asked, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),)


def _ecc_uncorrected(asked: Asked) -> tuple[object, ...]:
    return (_ecc(asked, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),)


def _ecc(asked: Asked, kind: int) -> int:
    return int(pynvml.nvmlDeviceGetTotalEccErrors(asked.handle, kind, pynvml.NVML_VOLATILE_ECC))


def _xid(asked: Asked) -> tuple[object, ...]:
    """Xids are events: those that came since the last reading are taken without waiting, the last one is kept."""
    if asked.event_set is None:
        made = pynvml.nvmlEventSetCreate()
        pynvml.nvmlDeviceRegisterEvents(asked.handle, XID, made)
        asked.event_set = made
    try:
        while True:
            event = pynvml.nvmlEventSetWait_v2(asked.event_set, 0)
            if event.eventType & XID:
                asked.last_xid = int(event.eventData)
    except pynvml.NVMLError as error:
        if error.value != pynvml.NVML_ERROR_TIMEOUT:
            raise
    return (asked.last_xid,)


def _fields(asked: Asked, wanted: Sequence[tuple[int, int]]) -> list[int]:
    """The values of fields (id, scope), wrapping counters unwrapped. Raises NVMLError for the first that has none."""
    found = []
    for answer in pynvml.nvmlDeviceGetFieldValues(asked.handle, list(wanted)):
        if answer.nvmlReturn != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(answer.nvmlReturn)
        value = int(getattr(answer.value, _MEMBERS[answer.valueType]))
        bits = _WRAPPING.get(answer.valueType)
        key = answer.fieldId << 32 | answer.scopeId
        found.append(value if bits is None else asked.unwrapped(key, value, bits))
    return found


QUESTIONS: Final = (
    Question(("last_xid",), _xid),  # first: a lost device still has an Xid to tell
    Question(("sm_utilisation_ratio", "memory_utilisation_ratio"), _utilisation),
    Question(("memory_used_bytes",), _memory), Question(("power_watts",), _power),
    Question(("energy_joules",), _energy), Question(("temperature_celsius",), _temperature),
    Question(("sm_clock_hertz",), _sm_clock), Question(("memory_clock_hertz",), _memory_clock),
    Question(("throttle_reasons",), _throttle), Question(("pcie_rx_bytes", "pcie_tx_bytes"), _pcie),
    Question(("nvlink_rx_bytes", "nvlink_tx_bytes"), _nvlink), Question(("ecc_corrected",), _ecc_corrected),
    Question(("ecc_uncorrected",), _ecc_uncorrected),
)  # fmt: skip
