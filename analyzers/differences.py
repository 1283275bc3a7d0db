"""What two runs differ in, field by field, and what each difference means for a comparison of their speed.

Every field of the two manifests is one of four. identity: who ran it, where and when; never shown as a difference that
matters. scale: the number of ranks and what follows from it. minor: unlikely to change the speed, but may (seeds, a
host's kernel, tools). confounder: anything else (data, code, precision, batch, optimizer, dependencies, hardware,
settings of the communication library): with one of these the runs are no controlled comparison. What is not known to be
harmless is a confounder, also what only one of the two tells.
"""

import fnmatch
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .manifest import Manifest

IDENTITY, SCALE, MINOR, CONFOUNDER = "identity", "scale", "minor", "confounder"
MAX_NAMED: Final = 6
"""Differences that a sentence names."""

_RULES: Final = (
    (IDENTITY, ("run.run_id", "run.created_ns", "run.address", "run.dataset_digest", "run.job_id", "run.owner",
                "run.project", "run.price_per_device_hour", "run.ontology_version", "scheduler.*", "manifest.folder",
                "manifest.executable", "manifest.topology.cpu_affinity.*",
                "manifest.topology.numa_nodes.*", "environment.RANK", "environment.*_RANK", "environment.MASTER_*",
                "environment.TORCHELASTIC_*", "environment.ROLE_NAME", "environment.RANKSCOPE_*DIR",
                "environment.RANKSCOPE_*_ID", "environment.RANKSCOPE_OWNER", "environment.RANKSCOPE_PROJECT",
                "environment.*CACHE_DIR", "environment.VIRTUAL_ENV", "environment.CONDA_DEFAULT_ENV",
                "artifact.*.source", "artifact.container.*", "run.flops_*", "run.peak_flops")),
    (SCALE, ("run.world_size", "run.dp", "environment.*WORLD_SIZE", "nodes.number", "devices.number", "groups.*")),
    (MINOR, ("run.rankscope_version", "manifest.platform", "manifest.code.branch", "manifest.code.remote",
             "manifest.code.commit", "manifest.code.num_changed_files", "manifest.code.is_dirty", "nodes.kernel",
             "nodes.os", "nodes.memory_bytes", "manifest.topology.memory_bytes", "artifact.seed.*",
             "artifact.dependency.rankscope.*", "artifact.dependency.psutil.*", "artifact.dependency.wrapt.*",
             "artifact.code.*.version", "environment.RANKSCOPE", "environment.RANKSCOPE_[!K]*")),
)  # fmt: skip
_TOLD_TWICE: Final = ("manifest.versions.*", "manifest.python", "manifest.torch.version", "artifact.topology.*",
                      "artifact.config.command line.*")  # fmt: skip
"""The same facts stand among the artifacts, which are shown."""
_WORDS: Final = {
    "run.global_batch": "global batch", "run.sequence_length": "sequence length", "run.precision": "precision",
    "run.gradient_accumulation": "gradient accumulation", "run.activation_checkpointing": "activation checkpointing",
    "run.objective": "objective", "run.sharding": "sharding", "run.tp": "tensor parallelism",
    "run.pp": "pipeline parallelism", "run.cp": "context parallelism", "run.ep": "expert parallelism",
    "devices.kind": "hardware", "devices.number": "number of devices", "nodes.number": "number of hosts",
    "nodes.num_cpus": "CPUs per host",
}  # fmt: skip

_BATCH_OPTION: Final = re.compile(r"^option\..*(batch|accum|samples|(^|[^a-z])bs($|[^a-z]))", re.IGNORECASE)

_LAYOUT_GROUP: Final = re.compile(r"groups\.(tp|pp|cp|ep)\.")

Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Difference:
    """One field. kind: identity, scale, minor or confounder; name: as people call it; left, right: None if not told."""

    field: str
    kind: str
    name: str
    left: Value
    right: Value

    def as_json(self) -> dict[str, Value]:
        """The form of `rankscope diff --json`."""
        return {"field": self.field, "kind": self.kind, "name": self.name, "left": self.left, "right": self.right}


def differences(left: Manifest, right: Manifest) -> tuple[Difference, ...]:
    """All of them, what matters most first, then in the order of the fields."""
    ones, others = _merged(_fields(left)), _merged(_fields(right))
    sizes = (left.run.get("world_size"), right.run.get("world_size"))
    found = [
        Difference(field, _kind(field, ones.get(field), others.get(field), sizes), name_of(field), ones.get(field),
                   others.get(field))
        for field in sorted(ones.keys() | others.keys())
        if ones.get(field) != others.get(field) and not any(fnmatch.fnmatchcase(field, rule) for rule in _TOLD_TWICE)
    ]  # fmt: skip
    order = (CONFOUNDER, MINOR, SCALE, IDENTITY)
    return tuple(sorted(found, key=lambda item: order.index(item.kind)))


def job_of(manifest: Manifest) -> str:
    """What makes runs those of one job: the script's name; empty where it is not known."""
    return next((str(row["name"]) for row in manifest.artifacts if row["kind"] == "code" and row["name"]), "")


def kind_of(field: str) -> str:
    """identity, scale, minor or confounder."""
    return next((kind for kind, rules in _RULES if any(fnmatch.fnmatchcase(field, rule) for rule in rules)), CONFOUNDER)


def _kind(field: str, left: Value, right: Value, sizes: tuple[int | None, int | None]) -> str:
    """`kind_of`; what grows with the number of ranks (weak scaling) or shrinks with it (strong) is of the scale.

    Nothing is of the scale between runs of the same size (other hosts, other groups), nor a group that shards the model
    and is of a size that the other run has none of.
    """
    before, after = sizes
    if before and after and before != after and (one := _number(left)) and (other := _number(right)):
        grows, shrinks = one * after == other * before, one * before == other * after
        if (field == "run.global_batch" and grows) or (_BATCH_OPTION.search(field) and (grows or shrinks)):
            return SCALE
    kind = kind_of(field)
    is_same_size = bool(before) and before == after
    is_layout = _LAYOUT_GROUP.match(field) and (left is None or right is None)
    return CONFOUNDER if kind == SCALE and (is_same_size or is_layout) else kind


def _number(value: Value) -> float | None:
    try:
        return float(value) if value is not None else None
    except ValueError:
        return None


def name_of(field: str) -> str:
    """A field as people call it: run.precision is precision, artifact.dependency.torch.version is torch version."""
    if field in _WORDS:
        return _WORDS[field]
    parts = field.split(".")
    if parts[0] == "artifact":
        kind, name = parts[1], ".".join(parts[2:-1])
        return f"{name} {parts[-1]}" if kind == "dependency" else f"{kind} {name}"
    if parts[0] == "groups":
        return f"{parts[1]} groups of {parts[-1]} ({'.'.join(parts[2:-1])})"
    if parts[0] == "option":
        return f"option {field.partition('.')[2]}"
    return " ".join(parts[1:] or parts).replace("_", " ")


def in_words(found: tuple[Difference, ...]) -> str:
    """The names, few of many: "global batch, precision and 3 more"."""
    names = list(dict.fromkeys(item.name for item in found))
    if len(names) > MAX_NAMED:
        return f"{', '.join(names[: MAX_NAMED - 1])} and {len(names) - MAX_NAMED + 1} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""


def they_differ(found: tuple[Difference, ...]) -> str:
    """The same with the verb: "precision differs"."""
    return f"{in_words(found)} differ{'s' if len(found) == 1 else ''}"


def _merged(fields: Iterator[tuple[str, Value]]) -> dict[str, Value]:
    """What a field says; of one that says several things (an option given twice, a data set of two digests) all."""
    found: dict[str, list[Value]] = {}
    for field, value in fields:
        held = found.setdefault(field, [])
        if value not in held:
            held.append(value)
    return {field: held[0] if len(held) == 1 else ", ".join(str(value) for value in held if value is not None)
            for field, held in found.items()}  # fmt: skip


def _fields(manifest: Manifest) -> Iterator[tuple[str, Value]]:
    made = dict(manifest.made_with)
    yield from _flat("environment", made.pop("environment", None) or {})
    yield from _flat("run", manifest.run)
    yield from _flat("scheduler", manifest.scheduler)
    yield from _options([str(word) for word in made.pop("command", None) or ()])
    yield from _flat("manifest", made)
    for row in manifest.artifacts:
        for column in ("version", "digest", "source"):
            yield f"artifact.{row['kind']}.{row['name']}.{column}", row[column]
    yield "nodes.number", len(manifest.nodes)
    for column in ("num_cpus", "memory_bytes", "kernel", "os"):
        yield f"nodes.{column}", _joined(row[column] for row in manifest.nodes)
    yield "devices.number", sum(row["num_devices"] for row in manifest.devices)
    yield "devices.kind", _joined(f"{row['name']} {row['memory_bytes']}" for row in manifest.devices)
    for row in manifest.groups:
        of = row["mesh_dimension"] or "unnamed"
        yield f"groups.{of}.{row['backend'] or 'unknown backend'}.{row['size']}", row["num_groups"]


def _options(command: list[str]) -> Iterator[tuple[str, Value]]:
    """The words after the script: options by name, the others by their place. The interpreter is a dependency."""
    place = next((place for place, word in enumerate(command) if word.endswith(".py")), 0)
    words = command[place + 1 :]
    while words:
        word = words.pop(0)
        name, is_joined, value = word.partition("=")
        if not word.startswith("-"):
            yield f"option.argument {len(command) - len(words) - place - 1}", word
        elif is_joined:
            yield f"option.{name}", value
        else:
            yield f"option.{name}", words.pop(0) if words and not words[0].startswith("-") else True


def _flat(path: str, value: Any) -> Iterator[tuple[str, Value]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _flat(f"{path}.{name}", item)
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _flat(f"{path}.{place}", item)
    else:
        yield path, value


def _joined(values: Iterator[Any]) -> str | None:
    known = sorted({str(value) for value in values if value is not None})
    return ", ".join(known) or None
