"""Makes what a `Sender` sends with: an exporter of the SDK, with the missing package named where there is none."""

from collections.abc import Callable
from typing import Any

from rankscope.schema.errors import MissingExtra

from .delta import Deltas
from .meter import Snapshot
from .wanted import GRPC

Ready = Callable[[], None]
"""Called when everything is imported, and so every logger made, before an exporter is."""


def at_once() -> None:
    """Nothing to do then."""


def metrics(kind: str, protocol: str, is_delta: bool, *, ready: Ready = at_once) -> Callable[[Snapshot], bool]:
    """For snapshots. Raises MissingExtra."""
    try:
        from . import sdk

        export = sdk.metrics_export(kind, protocol, is_delta, ready)
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


def spans(kind: str, protocol: str, *, endpoint: str = "", ready: Ready = at_once) -> Callable[[Any], bool]:
    """For spans with their resources. endpoint: "" as the variables say. Raises MissingExtra."""
    try:
        from . import sdk

        return sdk.spans_export(kind, protocol, endpoint, ready)
    except ImportError as error:
        raise missing(protocol) from error


def missing(protocol: str) -> MissingExtra:
    """What to install."""
    extra = "[grpc]" if protocol == GRPC else ""
    return MissingExtra(f"the exporter is not installed: pip install 'rankscope{extra}'")
