"""The scaling example as a user runs it, and the commands over its runs; FLOPs of a known model."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
CHECKPOINTED = """
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import rankscope

layers = nn.Sequential(nn.Linear(32, 64, bias=False), nn.Linear(64, 16, bias=False))
optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
rankscope.attach(flops_per_sample=1e6, flops_source="counted", activation_checkpointing="on", peak_flops=1e15,
                 hooks="-memory", agent="off", run_dir=sys.argv[1])
for _ in range(12):
    inputs = torch.randn(10, 32, requires_grad=True)
    checkpoint(layers, inputs, use_reentrant=False).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    rankscope.step(samples=10)
"""
LINEAR = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Sequential(nn.Linear(32, 64, bias=False), nn.Linear(64, 16, bias=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (batch,) in DataLoader(TensorDataset(torch.randn(400, 32)), batch_size=10):
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("never reached")
"""


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of the runs, and what the example printed."""
    folder = tmp_path_factory.mktemp("series")
    environment = {**os.environ, "STEPS": "24", "REPEATS": "a", "RANKSCOPE_LOCAL_DIR": str(folder / "local"),
                   "RANKSCOPE_AGENT": "now"}  # fmt: skip
    done = subprocess.run(
        [str(ROOT / "examples/scaling.sh"), str(BIN), str(folder / "runs")],
        capture_output=True, text=True, timeout=380, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return folder / "runs", done.stdout


def rankscope(*words: str, folder: Path, status: int = 0) -> Any:
    environment = {**os.environ, "RANKSCOPE_LOCAL_DIR": str(folder.parent / "local")}
    done = subprocess.run(
        [str(BIN / "rankscope"), *words], capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout) if "--json" in words else done.stdout + done.stderr


def test_the_example_tells_strong_from_weak_and_why_the_curve_bends(series: tuple[Path, str]) -> None:
    folder, printed = series
    assert "strong scaling" in printed and "weak scaling" in printed
    if (os.cpu_count() or 1) < 4:
        assert "ranks share each CPU" in printed
    for mode in ("strong", "weak"):
        runs = sorted(str(path) for path in folder.glob(f"{mode}-*"))
        (found,) = rankscope("scale", *runs, "--at", "8", "--json", folder=folder)["runs"]
        assert found["mode"] == mode
        assert [(size["world_size"], size["num_runs"]) for size in found["sizes"]] == [(1, 1), (2, 1), (4, 1)]
        assert found["grade"] == "mostly controlled", found["grade_reasons"]


def test_the_efficiency_is_that_of_the_steps(series: tuple[Path, str]) -> None:
    folder, _ = series
    runs = [str(folder / f"weak-{ranks}a") for ranks in (1, 4)]
    answer = rankscope("scale", *runs, "--json", folder=folder)
    steps = [rankscope("query", run, "SELECT avg(end_ns - start_ns) FROM step WHERE step > 0", "--json", folder=folder)
             for run in runs]  # fmt: skip
    small, large = (table["rows"][0][0] for table in steps)
    measured = answer["measurements"][1]
    assert measured["name"] == "scaling.efficiency"
    assert measured["value"] == pytest.approx(small / large, rel=1e-3)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("scale", "{weak-1a}"), "at least two sizes"),
        (("scale", "{weak-1a}", "{strong-1a}"), "at least two sizes"),
        (("scale",), "either runs or --points"),
        (("scale", "--points", "missing.csv"), "missing.csv"),
        (("compare", "{weak-1a}", "missing"), "no such run"),
        (("diff", "missing", "{weak-1a}"), "no such run"),
        (("check", "{weak-1a}", "--policy", "missing.toml"), "missing.toml"),
        (("efficiency", "missing"), "no such run"),
        (("flops", "missing.py"), "no such script"),
    ],
)
def test_what_cannot_be_asked_is_one_line(series: tuple[Path, str], words: tuple[str, ...], says: str) -> None:
    folder, _ = series
    given = [str(folder / word[1:-1]) if word.startswith("{") else word for word in words]
    said = rankscope(*given, folder=folder, status=2)
    assert says in said
    assert len(said.strip().splitlines()) == 1


def test_an_image_is_drawn(series: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = series
    runs = sorted(str(path) for path in folder.glob("strong-*a"))
    rankscope("scale", *runs, "--image", str(tmp_path / "curve.png"), folder=folder)
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "xyz" in rankscope("scale", *runs, "--image", str(tmp_path / "curve.xyz"), folder=folder, status=2)


def test_flops_of_a_known_model(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(LINEAR)
    found = rankscope("flops", str(script), "--json", folder=tmp_path / "runs")
    forward = 2 * 10 * (32 * 64 + 64 * 16)
    backward = forward + 2 * 10 * 64 * 16  # weights of both, and the input of the second
    assert found["flops_per_step"] == forward + backward
    assert found["samples_per_step"] == 10
    assert found["flops_per_sample"] == (forward + backward) / 10
    assert found["recomputes"] is False


def test_recomputation_is_counted_and_told(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(CHECKPOINTED)
    own = tmp_path / "run"  # of the job: what is only counted leaves nothing there, and finds its own samples
    found = rankscope("flops", str(script), "--json", "--", str(own), folder=tmp_path / "runs")
    assert (own.exists(), found["samples_per_step"]) == (False, 10)
    forward = 2 * 10 * (32 * 64 + 64 * 16)
    again = 2 * 10 * 32 * 64  # the last layer's output is not needed backward, so it is not computed again
    assert (found["flops_per_step"], found["recomputes"]) == (forward + again + 2 * forward, True)
    printed = rankscope("flops", str(script), "--", str(own), folder=tmp_path / "runs")
    assert 'flops_source="counted", activation_checkpointing="on")' in printed and "is HFU, not MFU" in printed
    environment = {**os.environ, "RANKSCOPE_LOCAL_DIR": str(tmp_path / "local")}
    subprocess.run([sys.executable, str(script), str(own)], env=environment, timeout=100, check=True)
    told = rankscope("efficiency", str(own), folder=tmp_path / "runs")
    assert "HFU" in told and "MFU" not in told and "(counted)" in told


def test_a_step_of_nothing_that_is_counted_is_no_zero(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\np = torch.nn.Parameter(torch.ones(4))\no = torch.optim.SGD([p], lr=0.1)\n"
                      "for _ in range(5):\n    (p * 2).sum().backward()\n    o.step()\n")  # fmt: skip
    said = rankscope("flops", str(script), folder=tmp_path / "runs", status=2)
    assert "nothing to count" in said and len(said.strip().splitlines()) == 1
