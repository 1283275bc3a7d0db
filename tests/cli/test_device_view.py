"""The sections "Memory" and "Devices" of the report, whole."""

import re
from pathlib import Path
from typing import Any

from command_line import Command
from run_builder import MS, NODE, RunBuilder, proc_of
from syrupy.assertion import SnapshotAssertion

S = 1000 * MS
GIB = 1 << 30


def _section(text: str, name: str) -> str:
    """The lines of one section: up to the next blank line behind its table."""
    found = re.search(rf"^{name}\n(.*?)(?=\n\n\S|\Z)", text, re.DOTALL | re.MULTILINE)
    assert found, text
    return found[0]


def _run(root: Path, *, has_device: bool) -> Path:
    build = RunBuilder(root)
    for rank in (0, 1):
        for step in range(20):
            build.step(rank, step, 100 * step, 100 * step + 100)
            held: dict[str, Any] = {
                "allocated_bytes": (20 + step * (rank == 1)) * GIB, "reserved_bytes": 50 * GIB,
                "inactive_split_bytes": 5 * GIB, "peak_reserved_bytes": 50 * GIB if step == 9 else None,
                "device_uuid": f"GPU-0000000{rank}-0000",
            }  # fmt: skip
            build.fact("memory", rank, step=step, time_ns=(100 * step + 100) * MS, rss_bytes=3_000_000_000 + rank,
                       **(held if has_device else {}))  # fmt: skip
        if has_device:
            _device(build, rank)
    build.entities()
    return build.seal()


def _device(build: RunBuilder, rank: int) -> None:
    uuid = f"GPU-0000000{rank}-0000"
    build.add("device", device_uuid=uuid, node=NODE, name="Stub", memory_bytes=80 * GIB, power_limit_watts=700.0)
    build.add("process", proc=proc_of(rank), incarnation=0, device_uuid=uuid, rank=rank)
    for second in range(12):
        is_lost = rank == 1 and second == 11
        told = {
            "sm_utilisation_ratio": 0.5 + 0.04 * second, "memory_used_bytes": 60 * GIB, "power_watts": 300.0 + second,
            "energy_joules": 1e6 + 310.0 * second, "temperature_celsius": 60.0 + second, "sm_clock_hertz": 1.98e9,
            "throttle_reasons": "sw_thermal_slowdown" if second > 8 else "",
        }  # fmt: skip
        why = dict.fromkeys(told, "the GPU is lost")
        build.add("device_sample", 0, node=NODE, device_uuid=uuid, time_ns=second * S,
                  **({"reason": why, "last_xid": 79} if is_lost else told))  # fmt: skip


def test_memory_and_devices(rankscope: Command, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    text = rankscope("report", str(_run(tmp_path / "run", has_device=True))).out
    headlines = [line for line in text.splitlines() if re.match(r"\s*[✖▲]", line)]
    assert "\n".join([*headlines, "", _section(text, "Memory"), "", _section(text, "Devices")]) == snapshot


def test_memory_of_processes_only(rankscope: Command, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    text = rankscope("report", str(_run(tmp_path / "run", has_device=False))).out
    assert "\nDevices\n" not in text and _section(text, "Memory") == snapshot
