"""Keeping a node's index up to date. Several agents of one node (two launches) take turns by a lock on this machine."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from rankscope.schema import paths
from rankscope.schema.errors import UnreadableFile
from rankscope.schema.index import IndexEntry, decode_index, encode_index

from .rundir import RunDir, make_folder


@contextmanager
def node_lock(place: RunDir) -> Iterator[None]:
    """Held while files of this node are replaced and its index is written. Waits for the other agent, if any."""
    descriptor = _lock_file(place)
    try:
        if descriptor is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _lock_file(place: RunDir) -> int | None:
    """None where this machine's disk has no room for an empty file: then better without a lock than not at all."""
    folder = paths.local_base()
    address = place.address if "://" in place.address else os.path.realpath(place.address)
    try:
        make_folder(str(folder))
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(folder / f".{paths.hash63(address):016x}.lock", flags, 0o600)
    except OSError:
        return None


def read_index(place: RunDir, node: str) -> list[IndexEntry]:
    """The node's index; empty if there is none, or none that can be read (it then grows anew with each file)."""
    try:
        return decode_index_file(place, relative(paths.index_file("", node)))
    except (FileNotFoundError, UnreadableFile):
        return []


def decode_index_file(place: RunDir, name: str) -> list[IndexEntry]:
    """The entries of one index file. Raises FileNotFoundError, UnreadableFile."""
    with place.open(name) as file:
        return decode_index(file, name)


def update_index(place: RunDir, node: str, written: list[IndexEntry], removed: list[str]) -> None:
    """Enter the files `written`, strike those `removed`. Hold `node_lock`. Raises OSError."""
    entries = {entry.file: entry for entry in read_index(place, node)}
    for name in removed:
        entries.pop(name, None)
    entries |= {entry.file: entry for entry in written}
    place.write(relative(paths.index_file("", node)), encode_index(list(entries.values())))


def relative(run_path: str) -> str:
    """A path made by `schema.paths` for run directory "" as a name inside the run directory."""
    return run_path.lstrip("/")
