"""Which operations would be seen: this interpreter's torch, asked in a child, as a job would load it.

The child starts as under `rankscope run`, so it also tells whether that way in works here.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rankscope.hooks.device_times import NEVER_WITH

from .check import FINE, LIMITED, MISSING, NOTE, Check
from .rank_or_not import CLAIM
from .settings import Settings
from .site import job_path

PATIENCE_SECONDS: Final = 120.0
LEAST_TORCH: Final = (2, 4)
_PROBE: Final = """
import json, sys
found = {"can_wait": any(type(f).__name__ == "_TorchFinder" for f in sys.meta_path)}
try:
    import torch, torch.distributed as dist
    found["torch"] = torch.__version__
    found["is_distributed"] = dist.is_available()
    if dist.is_available():
        from rankscope.hooks.process_groups import best_tier
        found["tier"] = best_tier()
        names = ("gloo", "nccl", "mpi", "ucc", "xccl")
        found["backends"] = [n for n in names if getattr(dist, f"is_{n}_available", bool)()]
    found["cuda"], found["hip"] = torch.version.cuda, torch.version.hip
    found["num_devices"] = torch.cuda.device_count()
except Exception as error:
    found["why"] = f"{type(error).__name__}: {error}"
from importlib.util import find_spec
found["unseen"] = [n for n in ("deep_ep", "nvshmem", "transformer_engine", "mscclpp", "flux") if find_spec(n)]
found["is_observed"] = "rankscope.auto" in sys.modules
sys.stdout.write("\\n" + json.dumps(found))
"""


def check_torch(settings: Settings) -> Iterator[Check]:
    """Torch, backends, devices and what no hook can see."""
    found = _ask()
    version = found.get("torch")
    if version is None:
        why = str(found.get("why", "it did not answer"))
        yield Check("torch", MISSING, f"{sys.executable}: {why}", "install torch into this environment, or start "
                    "rankscope from the one that trains")  # fmt: skip
        return
    yield _torch(str(version), found)
    yield _way_in(found)
    yield from _backends(found)
    yield from _devices(found, settings)
    yield _unseen(found)


def _ask() -> Mapping[str, Any]:
    environment = {name: value for name, value in os.environ.items() if name not in (CLAIM, "RANKSCOPE")}
    environment |= {"PYTHONPATH": job_path(environment.get("PYTHONPATH", "")), "RANKSCOPE_AGENT": "off"}
    try:
        with tempfile.TemporaryDirectory(prefix="rankscope-doctor-") as folder:
            ran = subprocess.run(
                [sys.executable, "-c", _PROBE], env=environment | {"RANKSCOPE_LOCAL_DIR": folder}, text=True,
                stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_SECONDS, check=False,
            )  # fmt: skip
        found: Mapping[str, Any] = json.loads(ran.stdout.splitlines()[-1])
        return found
    except subprocess.TimeoutExpired:
        return {"why": f"importing it took more than {PATIENCE_SECONDS:.0f} s"}
    except (OSError, ValueError, IndexError):
        return {"why": "a child process that imports it ended without an answer"}


def _torch(version: str, found: Mapping[str, Any]) -> Check:
    if not found.get("is_distributed"):
        return Check("torch", LIMITED, f"{version} is built without torch.distributed: steps and devices only",
                     "install a build with torch.distributed")  # fmt: skip
    parts = version.partition("+")[0].split(".")
    if tuple(int(part) for part in parts[:2] if part.isdigit()) < LEAST_TORCH:
        return Check("torch", LIMITED, f"{version} is older than {LEAST_TORCH[0]}.{LEAST_TORCH[1]}: not tried",
                     "use a newer torch")  # fmt: skip
    if found.get("tier") == "native":
        return Check("torch", FINE, f"{version}: tier native, every operation that reaches a backend")
    return Check("torch", FINE, f"{version}: tiers class, dispatcher and functional; an operation costs more than with "
                 "native hooks", "torch 2.14 or newer has native hooks")  # fmt: skip


def _way_in(found: Mapping[str, Any]) -> Check:
    if found.get("can_wait") and found.get("is_observed"):
        return Check("rankscope run", FINE, "a script can be observed without an edit")
    return Check("rankscope run", MISSING, "this interpreter did not load our sitecustomize, or could not attach",
                 "add `import rankscope.auto` to the script")  # fmt: skip


def _backends(found: Mapping[str, Any]) -> Iterator[Check]:
    names = found.get("backends") or []
    yield Check("backends", FINE if names else MISSING, ", ".join(names) or "torch has none")
    if "gloo" in names:
        yield Check("gloo timing", NOTE, "an operation's end is known only to who waits for it or asks; else an upper "
                    "bound (poll), or null")  # fmt: skip


def _devices(found: Mapping[str, Any], settings: Settings) -> Iterator[Check]:
    count, kind = int(found.get("num_devices") or 0), "HIP" if found.get("hip") else "CUDA"
    name, value = NEVER_WITH
    if not count:
        built = found.get("hip") or found.get("cuda")
        why = f"torch is built for {kind} {built}, but sees no device" if built else "torch is built for the CPU"
        yield Check("device times", MISSING, f"{why}: no device times, no allocator readings")
    elif os.environ.get(name) == value:
        yield Check("device times", MISSING, f"{name}={value}: timing events would destroy overlap, so there are none",
                    f"unset {name} where the job does not need it")  # fmt: skip
    elif settings.device_times == 0:
        yield Check("device times", MISSING, "RANKSCOPE_DEVICE_TIMES=0", "unset it: 1 step in 20 is the default")
    else:
        yield Check("device times", FINE, f"{count} devices ({kind}), events in 1 step in {settings.device_times}")
    if count:
        yield Check("CUDA graphs", NOTE, "what is captured in a graph is not recorded when the graph is replayed")


def _unseen(found: Mapping[str, Any]) -> Check:
    there = found.get("unseen") or []
    if there:
        return Check("other communication", LIMITED, f"installed here: {', '.join(there)}; what they send outside of "
                     "torch.distributed is not seen")  # fmt: skip
    return Check("other communication", NOTE, "DeepEP, NVSHMEM, user buffers and symmetric memory are not seen; no "
                 "such package is installed here")  # fmt: skip
