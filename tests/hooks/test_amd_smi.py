"""AMD devices, against a stand-in of the package amdsmi (version 7.0.2): not a device, and not ROCm's library."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rankscope.hooks.amd_smi import AmdLibrary, make
from rankscope.hooks.device_library import READ_COLUMNS, DeviceLibraryError
from rankscope.hooks.sampling import Surroundings
from rankscope.schema.errors import HookUnavailable


class SmiError(Exception):
    def get_error_info(self, detailed=True):
        return "AMDSMI_STATUS_NOT_SUPPORTED"


def _fail(*_):
    raise SmiError


@pytest.fixture
def smi():
    """The functions of the package that are used, with the units of its documentation."""
    return SimpleNamespace(
        AmdSmiException=SmiError,
        AmdSmiTemperatureType=SimpleNamespace(HOTSPOT=1),
        AmdSmiTemperatureMetric=SimpleNamespace(CURRENT=0),
        AmdSmiClkType=SimpleNamespace(GFX=1, MEM=5),
        amdsmi_init=lambda: None,
        amdsmi_get_processor_handles=lambda: ["a"],
        amdsmi_get_gpu_device_uuid=lambda handle: "11ff-00",
        amdsmi_get_gpu_asic_info=lambda handle: {"market_name": "MI300X"},
        amdsmi_get_gpu_activity=lambda handle: {"gfx_activity": 75, "umc_activity": "N/A", "mm_activity": 0},
        amdsmi_get_gpu_vram_usage=lambda handle: {"vram_total": 196_592, "vram_used": 1000},
        amdsmi_get_power_info=lambda handle: {"current_socket_power": "N/A", "average_socket_power": 301},
        amdsmi_get_energy_count=lambda handle: {"energy_accumulator": 2_000_000, "counter_resolution": 15.3},
        amdsmi_get_temp_metric=lambda handle, kind, metric: 61,
        amdsmi_get_clock_info=lambda handle, kind: {"clk": 2100 if kind == 1 else 1300},
        amdsmi_get_violation_status=lambda handle: {"active_ppt_pwr": True, "active_hbm_thrm": False},
        amdsmi_get_gpu_total_ecc_count=_fail,
        amdsmi_get_gpu_device_bdf=lambda handle: "0000:C1:00.0",
        amdsmi_get_power_cap_info=lambda handle: {"power_cap": 750_000_000},
        amdsmi_topo_get_numa_node_number=_fail,
    )


def test_every_column_or_why_not(smi):
    (device,) = AmdLibrary(smi).open().devices
    reading = device.read()
    told = {name: value for name, value in reading.columns.items() if value is not None}
    assert told == {
        "sm_utilisation_ratio": 0.75, "memory_used_bytes": 1000 << 20, "power_watts": 301.0,
        "energy_joules": pytest.approx(30.6), "temperature_celsius": 61.0, "sm_clock_hertz": 2.1e9,
        "memory_clock_hertz": 1.3e9, "throttle_reasons": "sw_power_cap",
    }  # fmt: skip
    assert set(told) | set(reading.reasons) == set(READ_COLUMNS) and not set(told) & set(reading.reasons)
    assert reading.reasons["ecc_corrected"] == "AMD SMI: AMDSMI_STATUS_NOT_SUPPORTED"
    assert reading.reasons["memory_utilisation_ratio"] == "not told by this device"
    assert device.describe() == {
        "device_uuid": "GPU-11ff-00", "name": "MI300X", "pci_bus_id": "0000:c1:00.0", "memory_bytes": 196_592 << 20,
        "power_limit_watts": 750.0,
    }  # fmt: skip


def test_a_library_that_does_not_start(smi):
    smi.amdsmi_init = _fail
    with pytest.raises(DeviceLibraryError, match="NOT_SUPPORTED"):
        AmdLibrary(smi).open()


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    with pytest.raises(HookUnavailable, match="no AMD SMI here"):
        make(Surroundings("node", Path("/sys"), Path("/proc"), tuple))
