"""The run directory as the agent writes it: a local or mounted folder, or an address for pyarrow's file systems.

A file appears under its name only when it is whole: in a folder by flush and rename, on an object store by one PUT.
Files are 0600 and folders 0700. Every method raises OSError for what the disk or the store does.
"""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as pafs

from rankscope.schema import paths
from rankscope.schema.errors import MixedRuns
from rankscope.schema.process_state import RunRef
from rankscope.schema.version import ONTOLOGY_VERSION

_CHUNK: Final = 1 << 20
_OBJECT_STORES: Final = ("s3", "gcs", "abfs")
STAGED: Final = ".staged"
"""Ending of files that are not whole yet; no reader looks at them."""


class RunDir:
    """One run directory. address: as given; names in it are relative, with slashes."""

    def __init__(self, address: str, files: pafs.FileSystem | None = None) -> None:
        self.address = address
        self._files, self._root = files, address
        if files is None and "://" in address:
            self._files, self._root = pafs.FileSystem.from_uri(address)

    @property
    def is_local(self) -> bool:
        """It is a folder, into which a stream can be appended."""
        return self._files is None

    def prepare(self, run: RunRef, *, names_place: bool = False) -> None:
        """Make the folder and its run.json (with the run's own address, in a spool). Raises MixedRuns."""
        present = self.run_id()
        if present is not None and present != run.run_id:
            raise MixedRuns(f"{self.address} holds run {present}, not {run.run_id}")
        if self._files is None:
            make_folder(self._root)
        if present is None:
            document = {"run_id": run.run_id, "ontology_version": ONTOLOGY_VERSION}
            if names_place:
                document["run_dir"] = run.run_dir
            self.write(paths.RUN_FILE, json.dumps(document).encode() + b"\n")

    def run_id(self) -> str | None:
        """The id in run.json; None if there is none."""
        try:
            return str(json.loads(self.read(paths.RUN_FILE))["run_id"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            return None

    def probe(self) -> None:
        """Raises OSError unless a file of a few KiB can be written now."""
        name = f".probe-{os.getpid()}"
        self.write(name, bytes(8192))
        self.remove(name)

    def local_path(self, name: str) -> str:
        """Path of `name` in a local run directory; its folder is made."""
        path = f"{self._root}/{name}"
        make_folder(os.path.dirname(path))
        return path

    def staging_path(self, name: str, spool: str) -> str:
        """Where to write `name` until it is published: beside it, or in the spool folder for an object store."""
        if self._files is None:
            folder, _, base = self.local_path(name).rpartition("/")
            return f"{folder}/.{base}{STAGED}"
        make_folder(spool)
        return f"{spool}/{name.replace('/', '~')}{STAGED}"

    def publish(self, staged: str, name: str) -> None:
        """Let the whole file `staged` appear as `name`."""
        if self._files is None:
            sync(staged)
            os.replace(staged, f"{self._root}/{name}")
            return
        with open(staged, "rb") as source, self._open_output(self._files, name) as target:
            shutil.copyfileobj(source, target, _CHUNK)
        os.unlink(staged)

    def write(self, name: str, data: bytes) -> None:
        """Write a small file at once."""
        if self._files is not None:
            with self._open_output(self._files, name) as target:
                target.write(data)
            return
        path = self.local_path(name)
        folder, _, base = path.rpartition("/")
        staged = f"{folder}/.{base}.{os.getpid()}{STAGED}"
        try:
            with private_file(staged) as file:
                file.write(data)
            self.publish(staged, name)
        except OSError:
            remove_if_there(staged)
            raise

    def read(self, name: str) -> bytes:
        """The bytes of a small file. Raises FileNotFoundError."""
        with self.open(name) as file:
            data: bytes = file.read()
        return data

    def open(self, name: str) -> Any:
        """A pyarrow file to read and seek in. Raises FileNotFoundError."""
        if self._files is None:
            return pa.OSFile(f"{self._root}/{name}", "rb")
        return self._files.open_input_file(f"{self._root}/{name}")

    def list(self, folder: str) -> list[str]:
        """The names in `folder`, sorted, without hidden ones; none if it is not there."""
        try:
            if self._files is None:
                return sorted(name for name in os.listdir(f"{self._root}/{folder}") if not name.startswith("."))
            found = self._files.get_file_info(pafs.FileSelector(f"{self._root}/{folder}", allow_not_found=True))
            return sorted(info.base_name for info in found if not info.base_name.startswith("."))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def size(self, name: str) -> int:
        """Bytes of a file. Raises FileNotFoundError."""
        if self._files is None:
            return os.stat(f"{self._root}/{name}").st_size
        info = self._files.get_file_info(f"{self._root}/{name}")
        if info.type != pafs.FileType.File:
            raise FileNotFoundError(name)
        return int(info.size)

    def age_seconds(self, name: str) -> float:
        """Seconds since a file was last written, by this machine's clock; infinite if it is not there."""
        try:
            if self._files is None:
                return time.time() - os.stat(f"{self._root}/{name}").st_mtime
            changed = self._files.get_file_info(f"{self._root}/{name}").mtime_ns
            return float("inf") if changed is None else time.time() - changed / 1e9
        except FileNotFoundError:
            return float("inf")

    def remove(self, name: str) -> None:
        """Delete a file, if it is there."""
        if self._files is None:
            remove_if_there(f"{self._root}/{name}")
            return
        try:
            self._files.delete_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return

    def _open_output(self, files: pafs.FileSystem, name: str) -> Any:
        """An object store has no folders; other file systems want theirs made."""
        path = f"{self._root}/{name}"
        if files.type_name not in _OBJECT_STORES:
            files.create_dir(path.rpartition("/")[0], recursive=True)
        return files.open_output_stream(path)

    def remove_empty(self, folder: str) -> None:
        """Delete a folder and those above it inside the run, as far as they are empty."""
        if self._files is not None:
            return
        parts = Path(folder).parts
        for depth in range(len(parts), 0, -1):
            try:
                os.rmdir(f"{self._root}/{'/'.join(parts[:depth])}")
            except OSError:
                return


def make_folder(path: str) -> None:
    """Make a folder and those above it with mode 0700."""
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            continue


def private_file(path: str) -> Any:
    """A new file with mode 0600, opened for writing; what was there is gone."""
    remove_if_there(path)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb")


def sync(path: str) -> None:
    """Bring a file's data to its disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def remove_if_there(path: str) -> None:
    """Delete a file that may be missing."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
