"""`rankscope doctor`: what holds here, why not, how to mend it; nothing is left behind."""

import json
import os
from pathlib import Path

import pytest
from command_line import Command

from rankscope.hooks.registry import SAMPLERS
from rankscope.schema.errors import CaptureError
from rankscope.tracer import doctor_torch, ring_file
from rankscope.tracer.check import FINE, LIMITED, MISSING, STATES

TORCH = {"torch": "2.14.1", "is_distributed": True, "tier": "native", "backends": ["gloo", "nccl"], "cuda": "12.8",
         "num_devices": 8, "unseen": [], "can_wait": True, "is_observed": True}  # fmt: skip
"""What a machine with devices answers; this one may have none."""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What the child that imports torch is said to have found."""
    found: dict[str, object] = dict(TORCH)
    monkeypatch.setattr(doctor_torch, "_ask", lambda: found)
    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)
    for name in ("RANKSCOPE", "RANKSCOPE_DIR", "RANKSCOPE_AGENT", "RANKSCOPE_HOOKS"):
        monkeypatch.delenv(name, raising=False)
    return found


def checks(rankscope: Command, status: int = 0) -> dict[str, dict[str, str]]:
    """status: 1 where nothing at all would be captured."""
    ran = rankscope("doctor", "--json")
    assert ran.status == status and ran.err == ""
    found = json.loads(ran.out)["checks"]
    assert all(set(check) == {"name", "state", "finding", "fix"} and check["state"] in STATES for check in found)
    return {check["name"]: check for check in found}


@pytest.mark.slow
def test_this_machine(rankscope: Command, tmp_path: Path) -> None:
    """Torch is really asked, in a child, as a job under `rankscope run` would load it."""
    found = checks(rankscope)
    assert found["torch"]["state"] == found["rankscope run"]["state"] == FINE
    assert "gloo" in found["backends"]["finding"]
    assert {spec.name for spec in SAMPLERS} <= set(found)
    assert not [check for check in found.values() if "could not be looked at" in check["finding"]]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_devices_and_what_forbids_their_times(
    rankscope: Command, told: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checks(rankscope)["device times"]["state"] == FINE
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    told |= {"unseen": ["deep_ep"], "tier": "dispatcher"}
    found = checks(rankscope)
    assert found["device times"]["state"] == MISSING and "CUDA_DEVICE_MAX_CONNECTIONS" in found["device times"]["fix"]
    assert found["other communication"]["state"] == LIMITED and "deep_ep" in found["other communication"]["finding"]
    assert "dispatcher" in found["torch"]["finding"] and "CUDA graphs" in found


def test_what_is_in_the_way_is_said_with_its_remedy(
    rankscope: Command, told: dict[str, object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told.clear()
    told["why"] = "ModuleNotFoundError: No module named 'torch'"
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / f"rankscope-{os.getuid()}").write_text("in the way")
    for name, value in (("AGENT", "off"), ("HOOKS", "-nic"), ("DIR", "/proc/nowhere")):
        monkeypatch.setenv(f"RANKSCOPE_{name}", value)
    monkeypatch.setenv("RANKSCOPE_PROC", str(tmp_path / "here"))
    found = checks(rankscope, status=1)
    assert found["torch"]["state"] == found["host"]["state"] == found["nic"]["state"] == MISSING
    assert found["agent"]["state"] == found["run directory"]["state"] == found["local disk"]["state"] == LIMITED
    assert all(found[name]["fix"] for name in ("torch", "agent", "run directory", "local disk", "nic", "pressure"))


def test_wrong_settings_and_off(rankscope: Command, told: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_CALIBRATE", "1")
    assert "at least 2" in checks(rankscope, status=1)["settings"]["finding"]
    monkeypatch.setenv("RANKSCOPE_CALIBRATE", "")
    monkeypatch.setenv("RANKSCOPE", "0")
    assert checks(rankscope, status=1)["settings"]["state"] == MISSING
    assert rankscope("doctor").status == 1


def test_without_a_place_for_rings_nothing_would_be_captured(
    rankscope: Command, told: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise CaptureError("no room")

    monkeypatch.setattr(ring_file, "create", refuse)
    assert checks(rankscope, status=1)["ring"]["state"] == MISSING


def test_the_table_names_every_check(rankscope: Command, told: dict[str, object]) -> None:
    ran = rankscope("doctor")
    assert ran.status == 0
    for name in ("settings", "torch", "ring", "local disk", "agent", "nvml", "rdma", "cgroup", "clock"):
        assert any(line.startswith(f"{name} ") for line in ran.out.splitlines())
