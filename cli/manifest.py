"""`rankscope manifest RUN`: what the run was made from."""

import json as documents
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from .arguments import JsonOption, RunArgument
from .printing import console, print_json
from .words import NONE, size

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from rankscope.analyzers.manifest import Manifest

_SAID_ELSEWHERE: Final = frozenset({"versions", "environment", "code", "command", "topology", "torch"})


def command(run: RunArgument, json: JsonOption = False) -> None:
    """Print what a run was made from.

    Its code, packages, data, seeds, configuration, hosts and environment, without secrets.

    Example: rankscope manifest rankscope-runs/my-run --json
    """
    from rankscope.analyzers.manifest import manifest
    from rankscope.analyzers.run import Run

    with Run.open(run) as opened:
        found = manifest(opened)
    if json:
        print_json(found.as_json())
    else:
        out = console()
        with out.capture() as drawn:
            _draw(found, out)
        print("\n".join(line.rstrip() for line in drawn.get().strip("\n").splitlines()))


def _draw(found: "Manifest", out: "Console") -> None:
    made = found.made_with
    _section(out, "Run", _pairs(found.run))
    _section(out, "Code", _pairs(made.get("code") or {}) + _pairs({"command": _line(made.get("command"))}))
    _section(out, "Started", _pairs({name: value for name, value in made.items() if name not in _SAID_ELSEWHERE}))
    _section(out, "Artifacts", _artifacts(found.artifacts))
    _section(out, "Hosts", [(node["host"] or node["node"], _node(node)) for node in found.nodes])
    _section(out, "Devices", [(device["name"] or NONE, _device(device)) for device in found.devices])
    _section(out, "Process groups", [(group["mesh_dimension"] or NONE, _group(group)) for group in found.groups])
    _section(out, "Scheduler", _pairs(found.scheduler))
    _section(out, "Torch", _pairs(made.get("torch") or {}))
    _section(out, "Environment", _pairs(made.get("environment") or {}))


def _section(out: "Console", name: str, pairs: Iterable[tuple[str, str]]) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table: Table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for left, right in pairs:
        table.add_row(Text(left), Text(right))
    if table.row_count:
        body: RenderableType = Padding(table, (0, 0, 1, 1), expand=False)
        out.print(Text(name, style="bold"))
        out.print(body)


def _pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is known; what is null was not told, and is in the JSON only."""
    return [(name, _word(value)) for name, value in values.items() if value not in (None, "", [], {})]


def _word(value: Any) -> str:
    return value if isinstance(value, str) else documents.dumps(value, ensure_ascii=False, default=str)


def _line(arguments: Any) -> str | None:
    return " ".join(map(str, arguments)) if isinstance(arguments, list) else None


def _artifacts(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [(str(row["kind"] or NONE), _artifact(row)) for row in rows]


def _artifact(row: Mapping[str, Any]) -> str:
    digest = f"digest {str(row['digest'])[:16]}" if row["digest"] else None
    source = f"({row['source']})" if row["source"] else None
    return "  ".join(str(part) for part in (row["name"], row["version"], digest, source) if part)


def _node(node: Mapping[str, Any]) -> str:
    cpus = f"{node['num_cpus']} CPUs" if node["num_cpus"] is not None else f"CPUs {NONE}"
    return f"{node['num_processes']} processes, {cpus}, {size(node['memory_bytes'])}, {node['kernel'] or NONE}"


def _device(device: Mapping[str, Any]) -> str:
    return f"{device['num_devices']} of {size(device['memory_bytes'])}"


def _group(group: Mapping[str, Any]) -> str:
    groups = "1 group" if group["num_groups"] == 1 else f"{group['num_groups']} groups"
    return f"{groups} of {group['size']} ranks, {group['backend'] or NONE}"
