"""What names a process group in the dataset: its digest, its members run-length coded, its mesh dimension.

Pure functions. The digest is the same on every member, because members, backend and the ordinal among groups with the
same members and backend are.
"""

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple

_DIMENSION_WORDS: Final = (
    ("dp", ("dp", "fsdp", "hsdp", "ddp", "data", "replicate", "shard", "batch")),
    ("pp", ("pp", "pipe", "pipeline")),
    ("ep", ("ep", "expert", "experts")),
    ("tp", ("tp", "tensor", "sp", "model", "etp")),
    ("cp", ("cp", "context")),
)
"""The words by which PyTorch, torchtitan and Megatron name mesh dimensions; the first hit wins (dp_cp is dp)."""
_MESH_PREFIX: Final = "mesh_"


class Run(NamedTuple):
    """`num` ranks from `start` on, `stride` apart."""

    start: int
    stride: int
    num: int


def encode_runs(members: Sequence[int]) -> tuple[Run, ...]:
    """Members in their order as arithmetic runs: (0, 2, 4, 7) is ((0, 2, 3), (7, 1, 1))."""
    runs: list[Run] = []
    for member in members:
        last = runs[-1] if runs else None
        if last is not None and last.num == 1:
            runs[-1] = Run(last.start, member - last.start, 2)
        elif last is not None and member == last.start + last.stride * last.num:
            runs[-1] = Run(last.start, last.stride, last.num + 1)
        else:
            runs.append(Run(member, 1, 1))
    return tuple(runs)


def group_digest(members: Sequence[int | str], backend: str, ordinal: int) -> str:
    """16 hexadecimal digits for (members, backend, ordinal). members: global ranks by group rank; a name if unknown."""
    text = f"{','.join(map(str, members))}|{backend}|{ordinal}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def mesh_dimension_of(name: str) -> str:
    """The dimension (`schema.enums.MESH_DIMENSIONS`) that a mesh dimension's name means; "other" if none is known."""
    words = name.lower().replace("-", "_").split("_")
    for dimension, known in _DIMENSION_WORDS:
        if any(word in known for word in words):
            return dimension
    return "other"


def dimension_of_label(label: str) -> tuple[str | None, str | None]:
    """(dimension, source) from a group's description: DeviceMesh writes mesh_<name>, the default group default_pg."""
    if label == "default_pg":
        return "world", "default group"
    if label.startswith(_MESH_PREFIX) and label != "mesh_default":
        return mesh_dimension_of(label[len(_MESH_PREFIX) :]), "device mesh"
    return None, None
