"""`rankscope flops SCRIPT`: FLOPs of one training step, counted once outside the job."""

import json as documents
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from rankscope.schema.errors import NoEvidence, UnreadableFile

from .arguments import Argument, JsonOption, Option
from .printing import print_json

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_OPS: Final = 6


def command(
    script: Annotated[str, Argument(metavar="SCRIPT", help="The training script; its arguments follow after --.")],
    arguments: Annotated[list[str] | None, Argument(metavar="ARGS...", help="Arguments of the script.")] = None,
    timeout: Annotated[float, Option("--timeout", metavar="SECONDS", min=1, help="Give up after this long.")] = 600,
    json: JsonOption = False,
) -> int:
    """Count the FLOPs of one step of a script, in a process of its own, as a single rank.

    What is executed is counted, forward and backward: with activation checkpointing the recomputation is in it, and
    what is computed from it is HFU. The script runs for three steps and is stopped. Declare the result with
    attach(flops_per_sample=..., flops_source="counted").

    Example: rankscope flops train.py -- --batch 8
    """
    if not Path(script).is_file():
        raise UnreadableFile(f"{script}: no such script")
    with tempfile.TemporaryDirectory(prefix="rankscope-flops-") as folder:
        out = Path(folder) / "flops.json"
        done = _run([script, *(arguments or ())], out, Path(folder), timeout)
        if not out.is_file():
            said = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            raise NoEvidence(f"{script}: no optimizer step was seen twice (status {done.returncode}: {said})")
        counted = documents.loads(out.read_text())
        if not counted["flops"]:
            raise NoEvidence(f"{script}: a step has no matrix product, convolution or attention: nothing to count")
        samples = _samples(str(Path(folder) / "run"), folder)
    per_sample = counted["flops"] / samples if samples else None
    if json:
        print_json({"script": script, "flops_per_step": counted["flops"], "samples_per_step": samples,
                    "flops_per_sample": per_sample, "recomputes": counted["recomputes"],
                    "by_op": counted["by_op"]})  # fmt: skip
        return 0
    _print(counted, samples, per_sample)
    return 0


def _print(counted: "Mapping[str, Any]", samples: float | None, per_sample: float | None) -> None:
    print(f"one step     {counted['flops']:.4g} FLOPs (executed, forward and backward, one rank)")
    if per_sample is None:
        print("a sample     not known: no loader or rankscope.step(samples=...) told how many a step has")
    else:
        also = ', activation_checkpointing="on"' if counted["recomputes"] else ""
        told = (
            f'{samples:,.0f} samples a step); attach(flops_per_sample={per_sample:.6g}, flops_source="counted"{also})'
        )
        print(f"a sample     {per_sample:.4g} FLOPs ({told}")
    if counted["recomputes"]:
        print("             activations are recomputed, and counted twice: what is computed from it is HFU, not MFU")
    most = sorted(counted["by_op"].items(), key=lambda item: -item[1])[:MAX_OPS]
    for name, flops in most:
        print(f"             {flops / counted['flops']:6.1%}  {name}")


def _run(command_line: list[str], out: Path, folder: Path, timeout: float) -> "subprocess.CompletedProcess[str]":
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": "0"}  # fmt: skip
    environment = {
        **os.environ, **alone, "TORCH_COMPILE_DISABLE": "1", "RANKSCOPE": "1", "RANKSCOPE_AGENT": "off",
        "RANKSCOPE_DIR": str(folder / "run"), "RANKSCOPE_LOCAL_DIR": str(folder / "local"),
    }  # fmt: skip
    child = [sys.executable, "-m", "rankscope.tracer.count_flops", str(out), *command_line]
    try:
        return subprocess.run(child, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise NoEvidence(f"{command_line[0]}: no second step within {timeout:g} s") from error


def _samples(run: str, folder: str) -> float | None:
    """Samples of a step, as the child's own rows tell; None where they do not."""
    from rankscope.analyzers.run import Run
    from rankscope.analyzers.throughput import read_steps
    from rankscope.schema.errors import InputError

    before = os.environ.get("RANKSCOPE_LOCAL_DIR")
    os.environ["RANKSCOPE_LOCAL_DIR"] = str(Path(folder) / "local")
    try:
        with Run.open(run) as reader:
            values = read_steps(reader).samples.values
    except InputError:
        return None
    finally:
        if before is None:
            del os.environ["RANKSCOPE_LOCAL_DIR"]
        else:
            os.environ["RANKSCOPE_LOCAL_DIR"] = before
    return float(values[0]) if values is not None and len(values) else None
