"""Makes what a `Sender` sends with: an exporter of the SDK, with the missing package named where there is none."""

from collections.abc import Callable
from typing import Any

from rankscope.schema.errors import MissingExtra

from .delta import Deltas
from .meter import Snapshot
from .wanted import GRPC


def metrics(kind: str, protocol: str, is_delta: bool) -> Callable[[Snapshot], bool]:
    """For snapshots. Raises MissingExtra."""
    try:
        from . import sdk

        export = sdk.metrics_export(kind, protocol, is_delta)
    except ImportError as error:
        raise missing(protocol) from error
    if not is_delta:
        return export
    deltas = Deltas()

    def send(snapshot: Snapshot) -> bool:
        is_fine = export(deltas.of(snapshot))
        if is_fine:
            deltas.arrived()
        return is_fine

    return send


def spans(kind: str, protocol: str, *, endpoint: str = "") -> Callable[[Any], bool]:
    """For spans with their resources. endpoint: "" as the variables say. Raises MissingExtra."""
    try:
        from . import sdk

        return sdk.spans_export(kind, protocol, endpoint)
    except ImportError as error:
        raise missing(protocol) from error


def missing(protocol: str) -> MissingExtra:
    """What to install."""
    extra = "[grpc]" if protocol == GRPC else ""
    return MissingExtra(f"the exporter is not installed: pip install 'rankscope{extra}'")
