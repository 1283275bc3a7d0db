"""The resource of what one run's ranks on this node export: who and where, in OpenTelemetry's names.

One resource per run and agent. Rank and run id are attributes of every point and span as well, because Prometheus and
several trace stores drop resources. Never in it: command lines and paths.
"""

import json
import uuid
from collections.abc import Mapping
from typing import Any, Final

from rankscope.schema.process_state import ProcessState, RunRef

from .wanted import SERVICE, Wanted

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
_NAMESPACE: Final = uuid.UUID("6f1c3a52-7a0e-5f0b-9d7d-3c1f5b0f9a11")
_SCHEDULER_PREFIX: Final = "training.scheduler."


def resource_of(
    known: Mapping[str, Any], ref: RunRef, state: ProcessState, wanted: Wanted, token: str
) -> dict[str, Any]:
    """`known` with what this process adds. token: names the agent among all."""
    process, join = state.process, state.joins[-1].body if state.joins else {}
    found: dict[str, Any] = {
        **identity(ref.run_id, wanted, f"{state.node}/{token}"), "host.name": process.get("host"),
        "host.id": state.node, "container.id": process.get("container_id"), "k8s.pod.uid": process.get("pod_uid"),
        "training.world_size": join.get("world_size"),
        **known, **described(state.run_row),
    }  # fmt: skip
    return {key: value for key, value in found.items() if value is not None}


def identity(run_id: str, wanted: Wanted, instance: str) -> dict[str, Any]:
    """Service, instance and run. instance: what makes it unique together with the run's id."""
    return {
        **sdk_attributes(), "service.instance.id": str(uuid.uuid5(_NAMESPACE, f"{run_id}/{instance}")),
        "training.run.id": run_id, **wanted.resource, "service.name": wanted.service or SERVICE,
    }  # fmt: skip


def sdk_attributes() -> dict[str, Any]:
    """What made it: ours, and the SDK that carries it."""
    from importlib.metadata import version

    return {
        "telemetry.sdk.language": "python", "telemetry.sdk.name": "opentelemetry",
        "telemetry.sdk.version": version("opentelemetry-sdk"), "telemetry.distro.name": "rankscope",
        "telemetry.distro.version": version("rankscope"),
    }  # fmt: skip


def described(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a row of table run says of the job: its id, owner, project, scheduler."""
    found = {"training.job.id": row.get("job_id"), "training.owner": row.get("owner"),
             "training.project": row.get("project"), "training.world_size": row.get("world_size")}  # fmt: skip
    scheduler = row.get("scheduler")
    scheduler = json.loads(scheduler) if isinstance(scheduler, str) else scheduler
    for key, value in (scheduler or {}).items():
        if isinstance(value, str | int | float):
            found[f"{_SCHEDULER_PREFIX}{key.lower()}"] = value
    return {key: value for key, value in found.items() if value is not None}
