"""The manifest of a run: what it was made with. Versions, code, command line, environment, topology; all redacted.

Written once, by rank 0, from the watch thread, so nobody waits for git. Costs 10 to 100 ms there.
"""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from . import redact
from .identity import affinity, numa_nodes

PACKAGES: Final = (
    "torch", "torchvision", "torchaudio", "triton", "numpy", "rankscope", "wrapt", "psutil", "transformers", "datasets",
    "accelerate", "deepspeed", "lightning", "pytorch-lightning", "torchtitan", "megatron-core", "transformer-engine",
    "flash-attn", "apex", "xformers", "torchao", "peft", "trl", "tokenizers", "safetensors", "ray", "mosaicml",
    "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cublas-cu12",
)  # fmt: skip
"""Packages that decide how a training runs; those installed are listed with their versions."""
ALLOWED_PREFIXES: Final = (
    "NCCL_", "TORCH_", "TORCHELASTIC_", "TORCHINDUCTOR_", "PYTORCH_", "CUDA_", "CUBLAS_", "CUDNN_", "NVTE_", "NVSHMEM_",
    "GLOO_", "UCX_", "FI_", "RDMAV_", "OMP_", "MKL_", "KMP_", "HSA_", "HIP_", "ROCM_", "RCCL_", "XLA_", "TRITON_",
    "RANKSCOPE_", "DS_", "ACCELERATE_", "FSDP_", "TRANSFORMERS_OFFLINE", "TOKENIZERS_", "MALLOC_",
)  # fmt: skip
ALLOWED_NAMES: Final = frozenset({
    "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_NAME",
    "MASTER_ADDR",
    "MASTER_PORT", "LD_PRELOAD", "PYTHONHASHSEED", "PYTHONOPTIMIZE", "CONDA_DEFAULT_ENV", "VIRTUAL_ENV", "RANKSCOPE",
})  # fmt: skip
SCHEDULER_NAMES: Final = (
    "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_JOB_PARTITION", "SLURM_JOB_ACCOUNT", "SLURM_JOB_NUM_NODES", "SLURM_NTASKS",
    "SLURM_JOB_NODELIST", "SLURM_CLUSTER_NAME", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT",
    "PBS_JOBID", "LSB_JOBID", "JOB_ID", "KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX", "RAY_JOB_ID",
    "TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_SIZE",
)  # fmt: skip
GIT_SECONDS: Final = 5.0


def manifest(home: Path) -> dict[str, Any]:
    """Everything, as JSON can hold it. home: the folder in which the job was started."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "executable": redact.text(sys.executable),
        "versions": versions(),
        "torch": torch_build(),
        "command": redact.command_line(command()),
        "folder": redact.text(str(home)),
        "code": git_state(script_folder(home)),
        "environment": environment(os.environ),
        "topology": topology(),
    }


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables on the allow-list, sorted and redacted."""
    return {
        name: redact.variable(name, value)
        for name, value in sorted(variables.items())
        if name in ALLOWED_NAMES or name.startswith(ALLOWED_PREFIXES)
    }


def scheduler(variables: Mapping[str, str]) -> dict[str, str]:
    """What the scheduler says about the job; attributes, never an identity."""
    return {name: redact.variable(name, variables[name]) for name in SCHEDULER_NAMES if variables.get(name)}


def versions() -> dict[str, str]:
    """The installed versions of `PACKAGES`."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def torch_build() -> dict[str, Any]:
    """What the imported torch was built with; empty where it is not imported. Initialises no device."""
    torch = sys.modules.get("torch")
    build = getattr(torch, "version", None)
    if torch is None or build is None:
        return {}
    return {
        "version": str(getattr(torch, "__version__", "")), "cuda": getattr(build, "cuda", None),
        "hip": getattr(build, "hip", None), "git": getattr(build, "git_version", None),
        "num_threads": torch.get_num_threads(),
    }  # fmt: skip


def command() -> list[str]:
    """The process's command line as it was started (`sys.orig_argv`)."""
    return list(sys.orig_argv)


def script() -> str | None:
    """Path of the training script. A job that ends meanwhile has no main module left, but still its command line."""
    path: str | None = getattr(sys.modules.get("__main__"), "__file__", None)
    return path or next((word for word in command() if word.endswith(".py")), None)


def script_folder(home: Path) -> Path:
    """The folder of the training script; that of the job where there is no script."""
    path = script()
    return (home / path).parent if path else home


def git_state(folder: Path) -> dict[str, Any]:
    """Commit, branch, remote (redacted) and whether tracked files differ; empty outside a repository or without git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return {}
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    remote = _git(folder, "config", "--get", "remote.origin.url")
    return {
        "commit": commit, "branch": _git(folder, "rev-parse", "--abbrev-ref", "HEAD"),
        "is_dirty": None if changed is None else bool(changed),
        "num_changed_files": None if changed is None else len(changed.splitlines()),
        "remote": redact.address(remote) if remote else None,
    }  # fmt: skip


def topology() -> dict[str, Any]:
    """CPUs, memory and NUMA nodes of rank 0's host, and what torch says of devices that it has already initialised."""
    cpus = affinity()
    found: dict[str, Any] = {
        "num_cpus": os.cpu_count(), "cpu_affinity": cpus, "numa_nodes": numa_nodes(Path("/sys"), cpus),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }  # fmt: skip
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        found["devices"] = [cuda.get_device_name(index) for index in range(cuda.device_count())]
    return found


def _git(folder: Path, *arguments: str) -> str | None:
    """The output of a git command that changes nothing, takes no lock and asks nobody; None if it fails."""
    variables = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *arguments],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=GIT_SECONDS,
            check=True,
            start_new_session=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace").strip()
