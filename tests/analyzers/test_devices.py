"""Devices against answers worked out by hand."""

from pathlib import Path
from typing import Any

import pytest
from run_builder import MS, NODE, RunBuilder, proc_of

from rankscope.analyzers.device_headlines import device_headlines
from rankscope.analyzers.devices import devices
from rankscope.analyzers.memory import memory
from rankscope.analyzers.run import Run

S = 1000 * MS


def sampled(build: RunBuilder, uuid: str, time_s: int, **columns: Any) -> None:
    """A reading of a device, `time_s` seconds after the start."""
    build.add("device_sample", 0, node=NODE, device_uuid=uuid, time_ns=time_s * S, **columns)


def two_devices(root: Path) -> Path:
    """GPU-1 of rank 0 counts energy and is slowed down; GPU-2 has only power, and is lost at the end."""
    build = RunBuilder(root)
    for rank in (0, 1):
        for step in range(4):
            build.step(rank, step, 100 * step, 100 * step + 100)
    reasons = ["gpu_idle", "hw_thermal_slowdown,sw_power_cap", "sw_power_cap", ""]
    for second, reason in enumerate(reasons):
        sampled(build, "GPU-1", second, sm_utilisation_ratio=0.2 * second, memory_used_bytes=100 + second,
                power_watts=100.0, energy_joules=5000.0 + 120 * second, temperature_celsius=50.0 + second,
                sm_clock_hertz=(1980 - 100 * second) * 1e6, throttle_reasons=reason, ecc_uncorrected=3,
                last_xid=None, reason={"last_xid": "none since sampling began"})  # fmt: skip
        lost = second == 3
        why = dict.fromkeys(("power_watts", "memory_used_bytes", "throttle_reasons"), "the GPU is lost") if lost else {}
        sampled(build, "GPU-2", second, power_watts=None if lost else 100.0 + 100 * second,
                last_xid=79 if lost else None, memory_used_bytes=None if lost else 7,
                reason={"energy_joules": "not supported by this device", **why})  # fmt: skip
    for number, uuid in enumerate(("GPU-1", "GPU-2")):
        build.add("device", device_uuid=uuid, node=NODE, name="Stub", memory_bytes=1000, power_limit_watts=700.0)
        build.add("process", proc=proc_of(number), incarnation=0, device_uuid=uuid, rank=number)
    build.entities()
    return build.seal()


def test_each_device_by_hand(tmp_path: Path) -> None:
    with Run.open(str(two_devices(tmp_path / "run"))) as run:
        found = devices(run)
        said = [headline.text for headline in device_headlines(found, memory(run))]
    one, two = found.devices
    assert (one.uuid, one.ranks, one.memory_bytes, one.power_limit_watts, two.ranks) == ("GPU-1", (0,), 1000, 700, (1,))
    assert [round(float(item.value or 0), 6) for item in one.utilisation] == [0.3, 0.6]
    assert [item.value for item in one.temperature] == [51.5, 53] and one.memory_used.value == 103
    assert one.clock_range_hertz == (1.68e9, 1.98e9) and one.silent == "" and one.num_uncorrected == 0
    assert one.energy.value == 360  # counted, although its power says 300
    assert {item.scope["reason"]: item.value for item in one.throttled} == {
        "sw_power_cap": 0.5,
        "hw_thermal_slowdown": 0.25,
    }
    assert two.energy.value == 150 + 250 and "from power" in two.energy.provenance.caveats[-1]
    assert two.silent == "the GPU is lost" and two.last_xid == 79
    assert two.utilisation[0].value is None and two.throttled[0].value is None
    assert [item.value for item in found.energy] == [760, 190]  # four steps
    assert said == [
        "Device GPU-1 (rank 0) was slowed down in 25 % of the readings: hw_thermal_slowdown.",
        "Device GPU-2 (rank 1) told nothing at the end: the GPU is lost.",
        "Device GPU-2 (rank 1) reported Xid 79.",
    ]


def test_energy_of_all_is_none_if_one_is_not_known(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for second in range(2):
        sampled(build, "GPU-1", second, power_watts=10.0)
        sampled(build, "GPU-2", second, reason={"power_watts": "no permission", "energy_joules": "no permission"})
    for is_on, why in ((True, "GPU-3 is read by another agent of this node"), (False, "no AMD SMI here")):
        build.add("capture", 0, proc=5, time_ns=1, hook="nvml" if is_on else "amd_smi", is_on=is_on, why=why)
    build.entities()
    with Run.open(str(build.seal())) as run:
        found = devices(run)
    assert found.notes == ("GPU-3 is read by another agent of this node",)
    assert found.devices[1].energy.reason == "no permission" == found.devices[1].power[0].reason
    assert found.energy[0].value is None and "1 of 2 devices" in found.energy[0].reason


def test_parts_of_a_divided_device_do_not_count_twice(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for second in range(2):
        sampled(build, "GPU-1", second, energy_joules=100.0 * second)
        sampled(build, "MIG-1", second, memory_used_bytes=5)
    build.add("device", device_uuid="MIG-1", node=NODE, mig="GPU-1")
    build.add("device", device_uuid="GPU-1", node=NODE, mig="enabled")
    build.entities()
    with Run.open(str(build.seal())) as run:
        found = devices(run)
    assert found.energy[0].value == 100 and found.devices[1].mig == "GPU-1"


def test_the_same_to_the_last_bit_on_any_number_of_threads(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for second in range(20_000):
        sampled(build, "GPU-1", second, power_watts=0.1 * second, sm_utilisation_ratio=second / 30_000)
    build.entities()
    root, found = str(build.seal()), []
    for threads in (1, 2, 4):
        with Run.open(root, threads=threads) as run:
            (device,) = devices(run).devices
            found.append([item.value for item in device.measurements])
    assert found[0] == found[1] == found[2] and found[0][0] == pytest.approx(19_999 / 60_000, abs=1e-6)


def test_nothing_sampled_is_no_device(tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    build.step(0, 0, 0, 1)
    build.entities()
    with Run.open(str(build.seal())) as run:
        assert devices(run).devices == () and devices(run).measurements == ()
