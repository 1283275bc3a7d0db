"""Every hook by name: where it lives, what it needs, whether it is on unless told otherwise."""

from typing import Final, NamedTuple


class HookSpec(NamedTuple):
    """target: "module:function" relative to rankscope.hooks. needs: module after whose import it is installed."""

    name: str
    target: str
    needs: str
    default_on: bool
    what: str


DEFAULT_GROUP: Final = HookSpec(
    "default_group", "default_group:install", "torch.distributed", False, "which run it is, where process_groups is off"
)
"""Writes no rows; the session installs it where nobody else would see the default process group."""

KERNEL_WINDOWS: Final = HookSpec(
    "kernel_windows", "kernel_windows:install", "torch", True, "kernels of a few steps (RANKSCOPE_KERNELS)"
)
"""Comes with the steps hook, whose boundaries it needs, and does nothing without its setting."""

HOOKS: Final = (
    HookSpec("process_groups", "process_groups:install", "torch.distributed", True, "collectives, P2P and their waits"),
    HookSpec("steps", "steps:install", "torch", True, "step boundaries and optimizer spans"),
    HookSpec("phases", "phases:install", "torch", True, "forward, backward, evaluation and data spans"),
    HookSpec("memory", "memory:install", "torch", True, "memory of the allocator and the process at step ends"),
    HookSpec("gc_pauses", "gc_pauses:install", "torch", True, "pauses of Python's garbage collector"),
    HookSpec("compile", "compile_time:install", "torch._dynamo.callback", True, "time in torch.compile"),
    HookSpec("numerics", "numerics:install", "torch", True, "clipped gradient norms, loss scales, fused skips"),
    HookSpec("seeds", "seeds:install", "torch", True, "seeds that the job sets"),
    HookSpec(
        "data_loading", "data_loading:install", "torch", True, "waits for data, loader queues, digests of samples"
    ),
    HookSpec("checkpoints", "checkpoints:install", "torch", True, "torch.save and torch.load"),
    HookSpec(
        "distributed_checkpoints",
        "distributed_checkpoints:install",
        "torch.distributed.checkpoint",
        True,
        "save, async_save and load of torch.distributed.checkpoint",
    ),
    HookSpec("safetensors_files", "safetensors_files:install", "safetensors.torch", True, "save_file and load_file"),
)


class SamplerSpec(NamedTuple):
    """A sampler of the node agent. target: "module:make" relative to rankscope.hooks. tables: what it writes."""

    name: str
    target: str
    tables: tuple[str, ...]
    default_on: bool
    what: str


SAMPLERS: Final = (
    SamplerSpec("nic", "nic:make", ("nic_sample", "node", "process"), True, "counters of network interfaces"),
    SamplerSpec("host", "host:make", ("host_sample",), True, "CPU, memory, disk and pressure of the host or cgroup"),
    SamplerSpec(
        "processes", "process_sampling:make", ("process_sample",), True, "CPU, run-queue wait, faults, I/O of each rank"
    ),
    SamplerSpec("mounts", "mounts:make", ("mount_sample",), True, "NFS, Lustre and local file systems"),
    SamplerSpec("nvml", "nvml:make", ("device_sample", "device", "process"), True, "NVIDIA devices, through NVML"),
    SamplerSpec("amd_smi", "amd_smi:make", ("device_sample", "device", "process"), True, "AMD devices, through amdsmi"),
)
