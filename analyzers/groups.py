"""The process groups of a run, with members unfolded from their run-length code and a name that people recognise."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .statements import statement

if TYPE_CHECKING:
    from .run import Run

_MESH: Final = "mesh_"
"""What torch's DeviceMesh puts before the names of its dimensions."""

_NO_DESCRIPTION: Final = "undefined"
"""What torch says of a group without a description."""


@dataclass(frozen=True, slots=True)
class Group:
    """One group. label: its mesh dimension or description with its members, unique in the run. kind: the same without
    the members, what groups of one dimension have in common ("tp"; "dp shard" where a mesh calls it so).
    """

    group_id: str
    label: str
    backend: str
    size: int | None
    members: tuple[int, ...]
    kind: str = "unknown group"

    @classmethod
    def unknown(cls, group_id: str | None) -> "Group":
        """A group of which only the rows that name it are known."""
        return cls(group_id or "", f"group {group_id[:8]}" if group_id else "unknown group", "", None, ())


def read_groups(run: "Run") -> dict[str | None, Group]:
    """The groups by their id. Costs one row per group."""
    return groups_of(run.rows(statement("communication", "groups")))


def groups_of(rows: Iterable[tuple[Any, ...]]) -> dict[str | None, Group]:
    """The groups by their id. rows: id, backend, mesh dimension, description, size, starts, strides and counts, in the
    order of the ids.
    """
    rows = list(rows)
    world = max((row[4] for row in rows if row[4]), default=0)
    found: dict[str | None, Group] = {}
    taken: set[str] = set()
    for group_id, backend, dimension, description, size, starts, strides, counts in rows:
        members = unfold(starts, strides, counts)
        label = _label(dimension, description, size, world, members)
        if label in taken:
            label = (
                f"{label} ({backend or group_id[:8]})"
                if f"{label} ({backend})" not in taken
                else f"{label} {group_id[:8]}"
            )
        taken.add(label)
        kind = _kind(_label(dimension, description, size, world, ()), dimension, description)
        found[group_id] = Group(group_id, label, backend or "", size, members, kind)
    return found


def unfold(starts: list[int] | None, strides: list[int] | None, counts: list[int] | None) -> tuple[int, ...]:
    """Members from their run-length code: starts [0, 8], strides [2, 1], counts [3, 2] are 0, 2, 4, 8, 9."""
    runs = zip(starts or (), strides or (), counts or (), strict=False)
    return tuple(sorted(start + i * stride for start, stride, count in runs for i in range(count)))


def ranks_in_words(ranks: tuple[int, ...]) -> str:
    """Few words for many ranks: 0-3, 8, 10."""
    parts: list[str] = []
    i = 0
    while i < len(ranks):
        j = i
        while j + 1 < len(ranks) and ranks[j + 1] == ranks[j] + 1:
            j += 1
        parts.append(str(ranks[i]) if j == i else f"{ranks[i]}-{ranks[j]}" if j > i + 1 else f"{ranks[i]}, {ranks[j]}")
        i = j + 1
    return ", ".join(parts)


def named_ranks(ranks: tuple[int, ...]) -> str:
    """rank 3; ranks 0-2, 5."""
    return f"rank{'' if len(ranks) == 1 else 's'} {ranks_in_words(ranks)}"


def _kind(label: str, dimension: str | None, description: str | None) -> str:
    """With the name that the job's mesh has for the dimension, where that is another one."""
    name = (description or "").removeprefix(_MESH) if (description or "").startswith(_MESH) else ""
    return label if name in ("", label, dimension) or label == "world" else f"{label} {name}"


def _label(
    dimension: str | None, description: str | None, size: int | None, world: int, members: tuple[int, ...]
) -> str:
    if dimension == "world" or (size and size == world and dimension in (None, "other")):
        return "world"
    said = description if description != _NO_DESCRIPTION else None
    name = dimension if dimension not in (None, "other") else (said or "group")
    return f"{name} [{ranks_in_words(members)}]" if members else str(name)
