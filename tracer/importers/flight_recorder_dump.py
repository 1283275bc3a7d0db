"""Reading one dump of PyTorch's flight recorder: a pickle, by an unpickler that allows no globals, or JSON.

Only plain containers, numbers and text are in a dump, so nothing that a pickle could call is ever needed.
"""

import io
import json
import pickle
from dataclasses import dataclass
from typing import Any, Final

from rankscope.schema.errors import UnreadableFile

_PICKLE: Final = b"\x80"
_NEEDED: Final = ("collective_seq_id", "p2p_seq_id", "profiling_name", "process_group")


@dataclass(frozen=True, slots=True)
class Dump:
    """One rank's dump. groups: name -> (description, members); status: the rank's ordinal of a group -> its counters.

    num_skipped: entries without what an entry needs.
    """

    version: str
    entries: tuple[dict[str, Any], ...]
    groups: dict[str, tuple[str, tuple[int, ...]]]
    status: dict[int, dict[str, int]]
    num_skipped: int


def read_dump(path: str) -> Dump:
    """The dump at `path`. Raises UnreadableFile (truncated, forbidden, asks for globals, no dump)."""
    with open(path, "rb") as file:
        body = file.read()
    if not body:
        raise UnreadableFile(f"{path}: the file is empty")
    document = _unpickled(path, body) if body.startswith(_PICKLE) else _parsed(path, body)
    if not isinstance(document, dict) or not isinstance(document.get("entries", []), list | tuple):
        raise UnreadableFile(f"{path}: not a dump of the flight recorder")
    if "version" not in document:
        raise UnreadableFile(f"{path}: not a dump of the flight recorder: it names no version")
    entries = document.get("entries", [])
    good = tuple(entry for entry in entries if isinstance(entry, dict) and all(key in entry for key in _NEEDED))
    try:
        return Dump(str(document["version"]), good, _groups(document.get("pg_config") or {}),
                    _status(document.get("pg_status") or {}), len(entries) - len(good))  # fmt: skip
    except (AttributeError, TypeError, ValueError) as error:
        raise UnreadableFile(f"{path}: its tables of groups cannot be read: {error}") from error


class _NoGlobals(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}; a dump needs no such thing")


def _unpickled(path: str, body: bytes) -> Any:
    try:
        return _NoGlobals(io.BytesIO(body)).load()
    except (pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError, TypeError, AttributeError,
            OverflowError, MemoryError) as error:  # fmt: skip
        raise UnreadableFile(f"{path}: {str(error) or 'the pickle is damaged'}") from error


def _parsed(path: str, body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path}: neither a pickle nor JSON: {error}") from error


def _groups(config: dict[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {str(name): (_described(item.get("desc")), _members(item.get("ranks"))) for name, item in config.items()}


def _described(text: object) -> str:
    return "" if text in (None, "undefined") else str(text)


def _members(ranks: object) -> tuple[int, ...]:
    """Dumps hold "[0, 1, 2]" as text; JSON made by hand may hold the list."""
    found = json.loads(ranks) if isinstance(ranks, str) and ranks else ranks or []
    return tuple(sorted(int(rank) for rank in found)) if isinstance(found, list | tuple) else ()


def _status(status: dict[str, Any]) -> dict[int, dict[str, int]]:
    return {int(key): {name: int(value) for name, value in item.items()} for key, item in status.items()}
