"""NVIDIA devices: the real pynvml over a stand-in for the driver's library, in processes of their own."""

import json
import os
import subprocess
import sys

import nvml_stub
import pytest
from nvml_stub import NvmlStub, gpu, mig

from rankscope.hooks import nvml
from rankscope.hooks.device_library import READ_COLUMNS
from rankscope.hooks.nvml_calls import Question
from rankscope.hooks.visible_devices import ListedDevice
from rankscope.schema.arrow import rows_to_table

HOLDER = """
import fcntl, pathlib, sys, time
path = pathlib.Path(sys.argv[1])
path.parent.mkdir(parents=True)
file = path.open("w")
fcntl.flock(file, fcntl.LOCK_EX)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    return NvmlStub.compile(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def stub(compiled, tmp_path):
    """The library, with a control file and locks of this test's own."""
    (tmp_path / "libnvidia-ml.so.1").symlink_to(compiled.folder / "libnvidia-ml.so.1")
    made = NvmlStub(tmp_path, tmp_path / "control")
    made.control.write_text("")
    return made


def _by_uuid(rows):
    return {row["device_uuid"]: row for row in rows["device_sample"]}


def test_every_column_with_its_unit_for_eight_devices(stub, tmp_path):
    for index in range(8):
        device = tmp_path / f"bus/pci/devices/0000:1{index}:00.0"
        device.mkdir(parents=True)
        (device / "numa_node").write_text(f"{index // 4 if index != 7 else -1}\n")
    (rows,) = stub.sample({"control": "xid 3 79"}, sysfs=str(tmp_path))
    samples = _by_uuid(rows)
    assert list(samples) == [gpu(index) for index in range(8)]
    throttling = ["", "gpu_idle", "sw_power_cap", "sw_power_cap,sw_thermal_slowdown", "hw_slowdown,hw_thermal_slowdown",
                  "hw_power_brake_slowdown", "sw_power_cap,bit_15", "display_clock_setting"]  # fmt: skip
    for index in range(8):
        assert samples[gpu(index)] == {
            "node": "node-1", "device_uuid": gpu(index), "time_ns": 1,
            "sm_utilisation_ratio": pytest.approx((10 * index + 5) / 100),
            "memory_utilisation_ratio": pytest.approx(3 * index / 100), "memory_used_bytes": 1_000_000 * (index + 1),
            "power_watts": pytest.approx(100.5 + index / 1000), "energy_joules": 5e9 + 0.25 + index / 1000,
            "temperature_celsius": 40 + index, "sm_clock_hertz": 1.98e9 - 1e6 * index, "memory_clock_hertz": 2.619e9,
            "throttle_reasons": throttling[index], "pcie_rx_bytes": 9000 + index, "pcie_tx_bytes": 7000 + index,
            "nvlink_rx_bytes": 1024 * (1000 + index), "nvlink_tx_bytes": 1024 * (2000 + index),
            "ecc_corrected": 11 + index, "ecc_uncorrected": index, "last_xid": 79 if index == 3 else None,
            "reason": None if index == 3 else {"last_xid": "none since sampling began"},
        }  # fmt: skip
        assert rows["device"][index] == {
            "node": "node-1", "device_uuid": gpu(index), "name": "Stub A100", "mig": "disabled",
            "pci_bus_id": f"0000:1{index}:00.0", "numa_node": None if index == 7 else index // 4,
            "memory_bytes": 80 << 30, "power_limit_watts": 700.0,
            "nvlink_peers": {"0000:a0:00.0": 2, "0000:b0:00.0": 1},
        }  # fmt: skip
    assert rows_to_table("device_sample", rows["device_sample"]).to_pylist()[0]["energy_joules"] == 5e9 + 0.25
    assert {name for name in samples[gpu(3)] if name in READ_COLUMNS} == set(READ_COLUMNS)


@pytest.mark.parametrize(
    ("variable", "devices"),
    [
        ("2,0", [2, 0]),
        (f"{gpu(5)},{gpu(1)}", [5, 1]),
        ("GPU-000000a6,GPU-000000a7", [6, 7]),
        ("1,3,-1,4", [1, 3]),
    ],
)
def test_cuda_visible_devices(stub, variable, devices):
    (rows,) = stub.sample({}, processes=[{"visible_devices": variable}] * 2)
    assert [(row["proc"], row["device_uuid"]) for row in rows["process"]] == [
        (100, gpu(devices[0])),
        (101, gpu(devices[1])),
    ]
    assert list(_by_uuid(rows)) == [gpu(index) for index in sorted(devices)]


def test_a_device_each_a_current_device_and_no_device(stub):
    processes = [{"visible_devices": "4"}, {"visible_devices": "6"}, {"device_index": 7}, {"visible_devices": ""}]
    (rows,) = stub.sample({}, processes=processes)
    assert [row["device_uuid"] for row in rows["process"]] == [gpu(4), gpu(6), gpu(7)]
    assert [row["why"] for row in rows["capture"]] == ["rank 3: no device of its own"]


def test_ordinals_of_several_kinds_are_not_guessed(stub):
    (unknown,) = stub.sample({"control": "mixed"}, processes=[{"visible_devices": "1"}])
    assert "process" not in unknown and len(unknown["device_sample"]) == 8
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in unknown["capture"][0]["why"]
    by_bus = {"visible_devices": "1", "device_order": "PCI_BUS_ID"}
    (known,) = stub.sample({"control": "mixed"}, processes=[by_bus])
    assert [row["device_uuid"] for row in known["process"]] == [gpu(1)] == list(_by_uuid(known))


def test_parts_of_a_divided_device(stub):
    processes = [{"visible_devices": mig(1, 0)}, {"visible_devices": f"MIG-000000a1-0000-0000-0000-00000000000{1}"}]
    (rows,) = stub.sample({"control": "mig 1"}, processes=processes)
    assert [row["device_uuid"] for row in rows["process"]] == [mig(1, 0), mig(1, 1)]
    samples = _by_uuid(rows)
    assert list(samples) == [gpu(1), mig(1, 0), mig(1, 1)]
    part, whole = samples[mig(1, 1)], samples[gpu(1)]
    assert part["memory_used_bytes"] == 2 * 1_000_002 and "power_watts" not in part
    assert set(part["reason"]) == set(READ_COLUMNS) - {"memory_used_bytes"}
    assert set(part["reason"].values()) == {f"not told of a part, see {gpu(1)}"}
    assert whole["power_watts"] == pytest.approx(100.501)
    assert {row["device_uuid"]: row["mig"] for row in rows["device"]} == {
        gpu(1): "enabled", mig(1, 0): gpu(1), mig(1, 1): gpu(1),
    }  # fmt: skip
    (ordinal,) = stub.sample({"control": "mig 1"}, processes=[{"visible_devices": "1"}])
    assert "process" not in ordinal and "divided into MIG devices" in ordinal["capture"][0]["why"]


def test_what_is_not_told_is_null_with_its_reason(stub):
    control = "fail nvmlDeviceGetPowerUsage 4 0\nfail nvmlDeviceGetUtilizationRates 3\nfail nvmlEventSetCreate 4\n"
    first, second = stub.sample({"control": control}, {"control": ""}, processes=[{"visible_devices": "0,1"}])
    forbidden, other = (_by_uuid(first)[gpu(index)] for index in (0, 1))
    assert forbidden["reason"] == {
        "power_watts": "no permission", "last_xid": "no permission",
        "sm_utilisation_ratio": "not supported by this device",
        "memory_utilisation_ratio": "not supported by this device",
    }  # fmt: skip
    assert "power_watts" not in forbidden and other["power_watts"] == pytest.approx(100.501)
    # what a device does not support is asked once; a permission may be given later
    again = _by_uuid(second)[gpu(0)]
    assert again["power_watts"] == 100.5 and "sm_utilisation_ratio" in again["reason"]


def test_functions_that_the_driver_lacks(tmp_path):
    stub = NvmlStub.compile(
        tmp_path / "old", "-DNO_nvmlDeviceGetTemperature", "-DNO_nvmlDeviceGetFieldValues", "-DOLD_NAMES"
    )
    (rows,) = stub.sample({}, processes=[{"visible_devices": "3"}])
    row = _by_uuid(rows)[gpu(3)]
    missing = ("temperature_celsius", "pcie_rx_bytes", "pcie_tx_bytes", "nvlink_rx_bytes", "nvlink_tx_bytes")
    assert {name: row["reason"][name] for name in missing} == dict.fromkeys(missing, "this driver has no such function")
    assert row["throttle_reasons"] == "sw_power_cap,sw_thermal_slowdown" and row["power_watts"] == pytest.approx(
        100.503
    )


def test_counters_of_single_links_and_counters_that_wrap(stub):
    control = {"control": "links_only 1\nwraps 1\n"}
    rows = stub.sample(control, control, control, processes=[{"visible_devices": "2"}])
    seen = [_by_uuid(row)[gpu(2)] for row in rows]
    assert {(row["nvlink_rx_bytes"], row["nvlink_tx_bytes"]) for row in seen} == {(40 * (1 + 2 + 3), 50 * (1 + 2 + 3))}
    start = 0xFFFFFFF0
    assert [row["pcie_rx_bytes"] - start for row in seen] == [0, 10, 20]


def test_a_device_that_is_lost_on_the_way(stub):
    before, after, later = stub.sample(
        {}, {"control": "lost 1\nxid 1 79"}, {"control": "lost 1"}, processes=[{"visible_devices": "0,1"}]
    )
    assert _by_uuid(before)[gpu(1)]["power_watts"] == pytest.approx(100.501)
    row = _by_uuid(after)[gpu(1)]
    assert row["last_xid"] == 79 and row["reason"] == {
        name: "the GPU is lost" for name in READ_COLUMNS if name != "last_xid"
    }
    assert not set(row) & (set(READ_COLUMNS) - {"last_xid"})
    assert _by_uuid(later)[gpu(1)]["last_xid"] == 79
    assert _by_uuid(later)[gpu(0)]["power_watts"] == 100.5


def test_a_call_that_does_not_come_back_holds_up_its_device_only(stub):
    blocked = {"control": "block nvmlDeviceGetPowerUsage 2.5 1"}
    rows = stub.sample(
        {}, blocked, {**blocked, "after": 1}, {**blocked, "after": 2}, processes=[{"visible_devices": "0,1"}]
    )
    silent = [_by_uuid(row)[gpu(1)] for row in rows]
    assert silent[0]["power_watts"] == pytest.approx(100.501) == silent[3]["power_watts"]
    assert silent[1]["reason"].keys() == set(READ_COLUMNS) == silent[2]["reason"].keys()
    assert all(row["reason"]["power_watts"].startswith("no answer for ") for row in silent[1:3])
    assert {_by_uuid(row)[gpu(0)]["power_watts"] for row in rows} == {100.5}
    seconds = [
        int(row["reason"]["power_watts"].removeprefix("no answer for ").removesuffix(" s")) for row in silent[1:3]
    ]
    assert seconds[0] < seconds[1] <= 3


def test_a_driver_that_does_not_start(stub):
    slow, there = stub.sample({"control": "block nvmlInitWithFlags 1"}, {"after": 1.2})
    assert slow["capture"][0]["why"] == "the driver does not answer" and "device_sample" not in slow
    assert len(there["device_sample"]) == 8
    (refused,) = stub.sample({"control": "fail nvmlInitWithFlags 9"})
    assert refused["capture"][0]["why"] == "the NVIDIA driver is not loaded" and "device_sample" not in refused
    (partly,) = stub.sample({"control": "fail nvmlDeviceGetHandleByIndex_v2 15 5"})
    assert gpu(5) not in _by_uuid(partly) and len(partly["device_sample"]) == 7
    assert partly["capture"][0]["why"] == "device 5: the GPU is lost"


def test_without_nvidia(tmp_path):
    script = json.dumps({"readings": [{}], "processes": [{}], "sysfs": "/sys"})
    environment = {**os.environ, "NVML_STUB_CONTROL": str(tmp_path / "control"), "LD_LIBRARY_PATH": ""}
    command = [sys.executable, nvml_stub.__file__, script]
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True, timeout=60)
    (found,) = json.loads(done.stdout)
    if "unavailable" in found:
        assert found["unavailable"] == "no NVIDIA driver here: libnvidia-ml.so.1 is not found"
    else:
        assert found.get("device_sample") or found["capture"]  # a machine with NVIDIA's driver


def test_a_device_has_one_reader_on_the_node(stub):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(stub.folder / f"local/rankscope-{os.getuid()}/device-{gpu(1)}.lock")],
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"ready\n"
        (rows,) = stub.sample({}, processes=[{"visible_devices": "0,1"}])
    finally:
        holder.kill()
        holder.communicate()
    assert list(_by_uuid(rows)) == [gpu(0)] and {row["device_uuid"] for row in rows["device"]} == {gpu(0), gpu(1)}
    assert [row["why"] for row in rows["capture"]] == [f"{gpu(1)} is read by another agent of this node"]
    (rows,) = stub.sample({}, processes=[{"visible_devices": "0,1"}])
    assert len(rows["device_sample"]) == 2


def test_a_pynvml_that_does_not_know_an_answer_costs_its_columns_only(monkeypatch, tmp_path):
    def unknown(asked):
        raise AttributeError("no member usVal")

    questions = (
        Question(("pcie_rx_bytes", "pcie_tx_bytes"), unknown),
        Question(("power_watts",), lambda asked: (1.0,)),
    )
    monkeypatch.setattr(nvml, "QUESTIONS", questions)
    reading = nvml.NvmlDevice(None, ListedDevice("GPU-1", "kind"), tmp_path).read()
    assert reading.columns == {"power_watts": 1.0}
    why = "pynvml cannot read it: no member usVal"
    assert reading.reasons == {"pcie_rx_bytes": why, "pcie_tx_bytes": why}
