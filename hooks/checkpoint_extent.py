"""What a distributed checkpoint holds as a whole, and which share of it a load asks for.

Every rank of a load opens some of the files, and some files are opened by several ranks, so what the ranks read does
not add up to the checkpoint. The process that plans the load for all ranks (the coordinator; every process for itself
where a load uses no collectives) knows both: the checkpoint's own metadata names each stored piece with its file,
offset and length, and the plans name the pieces that are wanted.

Files that hold nothing (ranks whose shards were all stored by others write such) are part of what lies on the disk and
are in no metadata: they are counted from one listing of the folder. Files with contents that the metadata does not name
are leftovers of another checkpoint, and not counted.

Cost: under 1 us a stored piece, on the coordinator only; one listing and one `stat` for each file without a name in the
metadata. Cannot see: folders of an object store, where the size of the metadata file is not known either.
Source: torch.distributed.checkpoint.filesystem (2.6 and later).
"""

import os
import re
from collections.abc import Iterable
from typing import Any, Final

from .checkpoint_log import Operation

MAX_UNNAMED: Final = 256
"""Files outside the metadata that are looked at; with more of them the number of files stays unknown."""
WRITER: Final = re.compile(r"__(\d+)_\d+\.distcp$")
"""A file of the file system's writer, with the rank that wrote it."""


def note_extent(operation: Operation, storage: Any, plans: Iterable[Any]) -> None:
    """Write whole_files, whole_bytes and read_ratio of a load; `plans` are those of all ranks.

    To be called when the metadata file is all that this process has read.
    """
    known: dict[Any, Any] = storage.storage_data
    sizes = _sizes(known.values())
    if sizes is None:
        return
    stored = sum(info.length for info in known.values())
    wanted = {item.storage_index for plan in plans for item in plan.items}
    if stored:
        operation.columns["read_ratio"] = sum(known[index].length for index in wanted) / stored
    try:
        metadata = {os.path.basename(path): os.stat(path).st_size for path in operation.files or ()}
        num_empty = _num_empty(os.fspath(storage.path), sizes.keys() | metadata.keys())
    except (OSError, TypeError):  # an object store, whose paths are no files
        return
    operation.columns["whole_bytes"] = sum(sizes.values()) + sum(metadata.values())
    if num_empty is not None:
        operation.columns["whole_files"] = len(sizes) + len(metadata) + num_empty


def _sizes(pieces: Iterable[Any]) -> dict[str, int] | None:
    """Length of every file with contents, by its name; None if the pieces do not say where they lie."""
    found: dict[str, int] = {}
    for piece in pieces:
        offset, length = getattr(piece, "offset", None), getattr(piece, "length", None)
        if offset is None or length is None:
            return None
        name = piece.relative_path
        found[name] = max(found.get(name, 0), offset + length)
    return found


def _num_empty(folder: str, named: Iterable[str]) -> int | None:
    """Files of the writer that hold nothing, beside those that are `named`. None if there are too many to look at."""
    with os.scandir(folder) as entries:
        unnamed = [entry for entry in entries if entry.name not in named and WRITER.fullmatch(entry.name)]
    if len(unnamed) > MAX_UNNAMED:
        return None
    return sum(entry.stat().st_size == 0 for entry in unnamed)
