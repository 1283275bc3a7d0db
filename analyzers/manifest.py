"""What the run was made from: its own description, the manifest that rank 0 wrote, its artifacts, hosts and devices.

One document, whose fields can be compared between runs one by one. Everything in it was redacted when it was written.
What nobody told is null.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from .run import Run
from .statements import statement

ANALYZER: Final = "manifest"
_DOCUMENTS: Final = ("manifest", "scheduler")


@dataclass(frozen=True, slots=True)
class Manifest:
    """The answer. run: columns of table run; made_with: the manifest; the others: rows, by column."""

    address: str
    digest: str
    run: dict[str, Any]
    scheduler: dict[str, Any]
    made_with: dict[str, Any]
    artifacts: tuple[dict[str, Any], ...]
    nodes: tuple[dict[str, Any], ...]
    devices: tuple[dict[str, Any], ...]
    groups: tuple[dict[str, Any], ...]

    def as_json(self) -> dict[str, Any]:
        """The document."""
        return {
            "run": {**self.run, "address": self.address, "dataset_digest": self.digest},
            "scheduler": self.scheduler,
            "manifest": self.made_with,
            "artifacts": list(self.artifacts),
            "nodes": list(self.nodes),
            "devices": list(self.devices),
            "groups": list(self.groups),
        }


def manifest(run: Run) -> Manifest:
    """The manifest of `run`. Raises UnreadableFile."""
    told = _rows(run, "run")
    described = dict(told[0]) if told else {"run_id": run.run_id}
    scheduler, made_with = (_parsed(described.pop(name, None)) for name in reversed(_DOCUMENTS))
    parts = (_rows(run, name) for name in ("artifacts", "nodes", "devices", "groups"))
    return Manifest(run.place.address, run.digest, described, scheduler, made_with, *parts)


def _rows(run: Run, name: str) -> tuple[dict[str, Any], ...]:
    sql = statement(ANALYZER, name)
    columns = [row[0] for row in run.rows(f"DESCRIBE {sql}")]
    return tuple(dict(zip(columns, row, strict=True)) for row in run.rows(sql))


def _parsed(text: str | None) -> dict[str, Any]:
    """The document in a column; what cannot be read is said, not dropped."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {"unreadable": text}
    return found if isinstance(found, dict) else {"unreadable": text}
