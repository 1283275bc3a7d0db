"""The report's section on numerics, whole; and its curve."""

import json
import re
from pathlib import Path

from command_line import Command
from run_builder import MS, RunBuilder
from syrupy.assertion import SnapshotAssertion

from rankscope.cli.plots import curve


def _run(root: Path) -> Path:
    build = RunBuilder(root)
    for step in range(120):
        for rank in (0, 1):
            build.step(rank, step, 10 * step, 10 * step + 10, is_skipped=step == 50)
            loss = 4 * 0.98**step + (step % 3) * 0.02 + (12 if step == 90 else 0)
            told = {
                "loss": float("nan") if step == 70 and rank else loss,
                "grad_norm": float("inf") if step == 50 else 1 + (step % 5) * 0.1,
                "loss_scale": 65536.0 / 2 ** max(0, step - 100),
            }
            for name, value in told.items():
                build.fact(
                    "metric", rank, step=step, name=name, value=value, time_ns=10 * step * MS, is_replicated=False
                )
            build.fact("metric", rank, step=step, name="sum", value=1.0 + (step > 60) * rank, time_ns=10 * step * MS,
                       is_replicated=True)  # fmt: skip
    build.entities()
    return build.seal()


def test_the_section(rankscope: Command, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    ran = rankscope("report", str(_run(tmp_path / "run")))
    assert ran.status == 0
    section = re.search(r"^ *Numerics\n.*?\n\n(?=\S)", ran.out, re.DOTALL | re.MULTILINE)
    assert section is not None
    about = ("finite", "collapsed", "spiked", "equal on all ranks")
    said = [line for line in ran.out.splitlines() if line[1:2] in "✖▲·" and any(word in line for word in about)]
    assert section[0].rstrip() + "\n" == snapshot
    assert "\n".join(said) == snapshot(name="headlines")


def test_its_measurements(rankscope: Command, tmp_path: Path) -> None:
    document = json.loads(rankscope("report", str(_run(tmp_path / "run")), "--json").out)
    found = {
        (item["name"], item["scope"].get("metric")): item["value"]
        for item in document["measurements"]
        if item["name"].startswith("numerics.")
    }
    assert found == {
        ("numerics.nonfinite_steps", "loss"): 1, ("numerics.nonfinite_steps", "grad_norm"): 1,
        ("numerics.spikes", "loss"): 1, ("numerics.spikes", "grad_norm"): 0,
        ("numerics.loss_scale_collapses", "loss_scale"): 1, ("numerics.replicated_drift", "sum"): 59,
        ("numerics.skipped_steps", None): 1,
    }  # fmt: skip


def test_a_fused_skip_counts_as_skipped(rankscope: Command, tmp_path: Path) -> None:
    build = RunBuilder(tmp_path / "run")
    for step in range(4):
        build.step(0, step, step, step + 1, is_skipped=step == 1)
        build.fact("metric", 0, step=step, name="found_inf", value=float(step == 2), time_ns=step, is_replicated=False)
    build.entities()
    document = json.loads(rankscope("report", str(build.seal()), "--json").out)
    (skipped,) = [item for item in document["measurements"] if item["name"] == "numerics.skipped_steps"]
    assert skipped["value"] == 2


def test_a_curve() -> None:
    assert curve([]) == []
    assert curve([0.0, 1.0], height=1) == ["1 ┤▁█"]
    assert curve([1.0, 0.5, 0.0], height=2) == ["1 ┤█▁ ", "0 ┤██▁"]
    assert {len(line) for line in curve([1e-9, 123456.0, 5.0])} == {len(curve([1e-9, 123456.0, 5.0])[0])}
    flat = curve([3.0, 3.0])
    assert flat[0].startswith("3 ┤") and "██" in flat[-1]
