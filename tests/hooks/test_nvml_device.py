"""A real NVIDIA device, where there is one: `nvidia-smi` is the witness of what the sampler says."""

import csv
import shutil
import subprocess
from pathlib import Path

import pytest

from rankscope.hooks.sampling import LocalProcess, Surroundings

pytestmark = pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA device at hand (nvidia-smi)")

FIELDS = ("uuid", "name", "pci.bus_id", "memory.total", "memory.used", "power.limit", "temperature.gpu")
MIB = 1 << 20


def _witness() -> list[dict[str, str]]:
    command = ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return [dict(zip(FIELDS, row, strict=True)) for row in csv.reader(done.stdout.splitlines(), skipinitialspace=True)]


def test_devices_are_those_of_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rankscope.hooks.nvml import make

    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(tmp_path))
    process = LocalProcess(proc=1, rank=0, incarnation=0, pid=None, local_rank=0)
    rows = make(Surroundings("node", Path("/sys"), Path("/proc"), lambda: (process,))).sample(1)
    devices = {row["device_uuid"]: row for row in rows["device"]}
    samples = {row["device_uuid"]: row for row in rows["device_sample"]}
    known = _witness()
    assert [row["uuid"] for row in known] == [
        row["device_uuid"] for row in rows["device"] if not str(row["mig"]).startswith("GPU-")
    ]
    for told in known:
        device, sample = devices[told["uuid"]], samples[told["uuid"]]
        assert device["name"] == told["name"]
        assert told["pci.bus_id"].lower().endswith(device["pci_bus_id"])
        assert device["memory_bytes"] == pytest.approx(int(told["memory.total"]) * MIB, rel=0.01)
        assert sample["memory_used_bytes"] == pytest.approx(int(told["memory.used"]) * MIB, abs=2048 * MIB)
        if told["power.limit"].replace(".", "").isdigit():
            assert device["power_limit_watts"] == pytest.approx(float(told["power.limit"]), rel=0.01)
        assert sample["temperature_celsius"] == pytest.approx(float(told["temperature.gpu"]), abs=15)
        missing = {name for name, value in sample.items() if value is None and name != "reason"}
        assert missing <= set(sample["reason"] or {}), "null without a reason"
