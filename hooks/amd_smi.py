"""AMD devices through AMD SMI (`amdsmi`, which ROCm brings or PyPI has; ROCm 6.4 or later): table `device_sample`.

Not run on a device so far, nor with ROCm's library: written from the package's interface (amdsmi 7.0.2) and tested on a
stand-in of it. The package from PyPI cannot be imported where ROCm's libamd_smi.so is missing; then there is nothing to
read. Link bytes stay null: the bandwidth accumulators are not split into sent and received, and xGMI counts per link.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple

from rankscope.schema.errors import HookUnavailable
from rankscope.schema.paths import local_base

from .device_library import DeviceLibraryError, Listing, Reading
from .devices import DeviceSampler
from .sampling import Row, Surroundings
from .visible_devices import ListedDevice

MIB: Final = 1 << 20
NO_LINK_BYTES: Final = "AMD SMI counts no bytes by direction"
NO_XID: Final = "Xids are NVIDIA's"

_VIOLATIONS: Final = {
    "active_prochot_thrm": "hw_thermal_slowdown", "active_ppt_pwr": "sw_power_cap",
    "active_socket_thrm": "socket_thermal", "active_vr_thrm": "vr_thermal", "active_hbm_thrm": "hbm_thermal",
}  # fmt: skip
_NEVER: Final = {
    **dict.fromkeys(("pcie_rx_bytes", "pcie_tx_bytes", "nvlink_rx_bytes", "nvlink_tx_bytes"), NO_LINK_BYTES),
    "last_xid": NO_XID,
}  # fmt: skip


class Question(NamedTuple):
    """columns: what the answer fills, in this order."""

    columns: tuple[str, ...]
    ask: Callable[[Any, Any], tuple[object, ...]]


def make(surroundings: Surroundings) -> DeviceSampler:
    """See `sampling`. Raises HookUnavailable without the package or ROCm's library."""
    try:
        library = import_module("amdsmi")
    except Exception as error:  # noqa: BLE001 (without ROCm its import ends in a KeyError)
        raise HookUnavailable(f"no AMD SMI here: {type(error).__name__}: {error}") from None
    return DeviceSampler(surroundings, AmdLibrary(library), "amd_smi", local_base())


class AmdLibrary:
    """Implements `device_library.DeviceLibrary` over the module `amdsmi`."""

    def __init__(self, smi: Any) -> None:
        self._smi = smi

    def open(self) -> Listing:
        """Initialise AMD SMI and list the GPUs."""
        smi = self._smi
        try:
            smi.amdsmi_init()
            handles = list(smi.amdsmi_get_processor_handles())
        except smi.AmdSmiException as error:
            raise DeviceLibraryError(_reason(error)) from error
        devices, problems = [], []
        for index, handle in enumerate(handles):
            try:
                uuid = f"GPU-{smi.amdsmi_get_gpu_device_uuid(handle)}"
                name = str(smi.amdsmi_get_gpu_asic_info(handle).get("market_name") or "")
                devices.append(AmdDevice(smi, handle, ListedDevice(uuid, name)))
            except smi.AmdSmiException as error:
                problems.append(f"device {index}: {_reason(error)}")
        return Listing(devices, tuple(problems))


class AmdDevice:
    """Implements `device_library.Device`."""

    def __init__(self, smi: Any, handle: Any, listed: ListedDevice) -> None:
        self._smi, self._handle, self._listed = smi, handle, listed

    @property
    def listed(self) -> ListedDevice:
        """See `device_library.Device`."""
        return self._listed

    def read(self) -> Reading:
        """See `device_library.Device`."""
        columns: dict[str, object] = {}
        reasons = dict(_NEVER)
        for question in _QUESTIONS:
            try:
                columns.update(zip(question.columns, question.ask(self._smi, self._handle), strict=True))
            except self._smi.AmdSmiException as error:
                reasons |= dict.fromkeys(question.columns, _reason(error))
        reasons |= {name: "not told by this device" for name, value in columns.items() if value is None}
        return Reading(columns, reasons)

    def describe(self) -> Row:
        """See `device_library.Device`."""
        smi, handle = self._smi, self._handle
        row: Row = {"device_uuid": self._listed.uuid, "name": self._listed.name}
        asked: dict[str, Callable[[], object]] = {
            "pci_bus_id": lambda: str(smi.amdsmi_get_gpu_device_bdf(handle)).lower(),
            "memory_bytes": lambda: _scaled(smi.amdsmi_get_gpu_vram_usage(handle)["vram_total"], MIB, int),
            "power_limit_watts": lambda: _scaled(smi.amdsmi_get_power_cap_info(handle)["power_cap"], 1e-6),
            "numa_node": lambda: int(smi.amdsmi_topo_get_numa_node_number(handle)),
        }
        for column, ask in asked.items():
            try:
                row[column] = ask()
            except smi.AmdSmiException:  # entity columns that are not told stay null
                continue
        return row


def _utilisation(smi: Any, handle: Any) -> tuple[object, ...]:
    activity = smi.amdsmi_get_gpu_activity(handle)  # percent
    return _scaled(activity["gfx_activity"], 0.01), _scaled(activity["umc_activity"], 0.01)


def _memory(smi: Any, handle: Any) -> tuple[object, ...]:
    return (_scaled(smi.amdsmi_get_gpu_vram_usage(handle)["vram_used"], MIB, int),)


def _power(smi: Any, handle: Any) -> tuple[object, ...]:
    power = smi.amdsmi_get_power_info(handle)  # watts; devices fill one of the two
    return (next((_scaled(power.get(name)) for name in ("current_socket_power", "average_socket_power")
                  if _scaled(power.get(name)) is not None), None),)  # fmt: skip


def _energy(smi: Any, handle: Any) -> tuple[object, ...]:
    energy = smi.amdsmi_get_energy_count(handle)  # a count of steps of counter_resolution microjoules
    return (energy["energy_accumulator"] * energy["counter_resolution"] / 1e6,)


def _temperature(smi: Any, handle: Any) -> tuple[object, ...]:
    kind, metric = smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
    return (_scaled(smi.amdsmi_get_temp_metric(handle, kind, metric)),)


def _clock(kind: str, smi: Any, handle: Any) -> tuple[object, ...]:
    return (_scaled(smi.amdsmi_get_clock_info(handle, getattr(smi.AmdSmiClkType, kind))["clk"], 1e6),)  # megahertz


def _throttle(smi: Any, handle: Any) -> tuple[object, ...]:
    status = smi.amdsmi_get_violation_status(handle)
    known = {name: status[name] for name in _VIOLATIONS if isinstance(status.get(name), (bool, int))}
    return (",".join(_VIOLATIONS[name] for name, is_active in known.items() if is_active) if known else None,)


def _ecc(smi: Any, handle: Any) -> tuple[object, ...]:
    counts = smi.amdsmi_get_gpu_total_ecc_count(handle)
    return counts["correctable_count"], counts["uncorrectable_count"]


def _scaled(value: Any, factor: float = 1.0, kind: Callable[[float], Any] = float) -> Any:
    """AMD SMI says "N/A" where a device does not tell."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return kind(value * factor) if is_number else None


def _reason(error: Any) -> str:
    text = error.get_error_info(detailed=False) if hasattr(error, "get_error_info") else str(error)
    return f"AMD SMI: {text}"


_QUESTIONS: Final = (
    Question(("sm_utilisation_ratio", "memory_utilisation_ratio"), _utilisation),
    Question(("memory_used_bytes",), _memory), Question(("power_watts",), _power),
    Question(("energy_joules",), _energy), Question(("temperature_celsius",), _temperature),
    Question(("sm_clock_hertz",), partial(_clock, "GFX")), Question(("memory_clock_hertz",), partial(_clock, "MEM")),
    Question(("throttle_reasons",), _throttle), Question(("ecc_corrected", "ecc_uncorrected"), _ecc),
)  # fmt: skip
