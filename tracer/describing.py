"""The journal lines that describe a process and its run, in the columns of their tables."""

import os
import sys
import time
from pathlib import Path
from typing import Any, Final

from rankscope.hooks.registry import SAMPLERS
from rankscope.schema.version import ONTOLOGY_VERSION

from . import joining
from .identity import ProcessIdentity, affinity, numa_nodes
from .joining import Joining
from .settings import Settings

_VISIBLE: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def process_line(identity: ProcessIdentity, joined: Joining, settings: Settings) -> dict[str, Any]:
    """The body of a `process` line: what is known now."""
    cpus, environment = affinity(), os.environ
    seat = joined.seat
    rank = seat.rank if seat.rank is not None else joining.rank_of(environment, "RANK")
    size = seat.world_size if seat.world_size is not None else joining.rank_of(environment, "WORLD_SIZE")
    return {
        "proc": identity.proc, "rank": rank, "local_rank": joining.rank_of(environment, "LOCAL_RANK"),
        "node": identity.node, "host": identity.host, "boot_id": identity.boot_id, "pid": identity.pid,
        "pid_namespace": identity.pid_namespace, "started_ns": identity.started_ns,
        "container_id": identity.container_id, "pod_uid": identity.pod_uid, "restart_count": joining.restart_count(),
        "cpu_affinity": cpus, "numa_nodes": numa_nodes(Path(settings.sysfs), cpus), "world_size": size,
        "launch": identity.launch, "run_id": joined.own.run_id, "run_dir": joined.own.run_dir,
        "is_solo": seat.rank is None and joining.is_solo(environment),
        "samplers": [spec.name for spec in SAMPLERS if spec.name in settings.hooks],
        **_devices(),
    }  # fmt: skip


def run_line(settings: Settings, run_id: str, world_size: int | None, home: Path) -> dict[str, Any]:
    """The body of a `run` line: what the user said of the run, and its manifest. Written by rank 0 alone."""
    from importlib import metadata

    from . import manifest  # with all its patterns: nobody pays for them at import

    declared = dict(settings.layout)
    has_flops = settings.flops_per_sample is not None or settings.flops_per_token is not None
    return {
        "run_id": run_id, "job_id": settings.job_id, "owner": settings.owner, "project": settings.project,
        "created_ns": time.time_ns(), "ontology_version": ONTOLOGY_VERSION,
        "rankscope_version": metadata.version("rankscope"), "world_size": world_size, **declared,
        "precision": settings.precision, "global_batch": settings.global_batch,
        "sequence_length": settings.sequence_length, "objective": settings.objective,
        "flops_per_sample": settings.flops_per_sample, "flops_per_token": settings.flops_per_token,
        "flops_source": (settings.flops_source or "declared") if has_flops else None,
        "activation_checkpointing": settings.activation_checkpointing, "peak_flops": settings.peak_flops,
        "price_per_device_hour": settings.price_per_device_hour, "scheduler": manifest.scheduler(os.environ),
        "manifest": manifest.manifest(home),
    }  # fmt: skip


def _devices() -> dict[str, Any]:
    """What decides which device is the process's own; no device is initialised for it."""
    visible = next((os.environ[name] for name in _VISIBLE if name in os.environ), None)
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    index = cuda.current_device() if cuda is not None and cuda.is_initialized() else None
    return {"visible_devices": visible, "device_order": os.environ.get("CUDA_DEVICE_ORDER"), "device_index": index}


def artifact_rows(
    settings: Settings, identity: ProcessIdentity, line: dict[str, Any], home: Path
) -> list[dict[str, str]]:
    """Rows of table `artifact`: what is seen of the run whose `run` line is given, then what the user said."""
    from . import lineage

    seen = lineage.artifacts(line["manifest"], home, identity.container_id, line["world_size"], settings.objective)
    return [*seen, *settings.artifacts]
