"""Reading one dump of PyTorch's flight recorder: a pickle, by an unpickler that allows no globals, or JSON.

Only plain containers, numbers and text are in a dump, so nothing that a pickle could call is ever needed.
"""

import io
import json
import pickle
from dataclasses import dataclass
from typing import Any, Final

from rankscope.schema.errors import UnreadableFile

from .trace_rank import MAX_RANKS

_PICKLE: Final = b"\x80"
_NEEDED: Final = ("collective_seq_id", "p2p_seq_id", "profiling_name", "process_group")
_NUMBERS: Final = ("collective_seq_id", "p2p_seq_id")
_TIMES: Final = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")
_LARGEST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Dump:
    """One rank's dump. groups: name -> (description, members); status: the rank's ordinal of a group -> its counters.

    num_skipped: entries without what an entry needs, or with something else in its place.
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
    good = tuple(entry for entry in entries if _is_entry(entry))
    try:
        return Dump(str(document["version"]), good, _groups(document.get("pg_config") or {}),
                    _status(document.get("pg_status") or {}), len(entries) - len(good))  # fmt: skip
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise UnreadableFile(f"{path}: its tables of groups cannot be read: {error}") from error


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, dict) or not all(key in entry for key in _NEEDED):
        return False
    times = [entry[key] for key in _TIMES if entry.get(key) is not None]
    numbers = [entry[key] for key in _NUMBERS] + ([entry["pg_id"]] if "pg_id" in entry else [])
    group = entry["process_group"]
    return all(map(_is_number, [*times, *numbers])) and isinstance(group, list | tuple) and len(group) > 0


def _is_number(value: object) -> bool:
    return type(value) is int and abs(value) <= _LARGEST


class _NoGlobals(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}; a dump needs no such thing")


def _unpickled(path: str, body: bytes) -> Any:
    try:
        return _NoGlobals(io.BytesIO(body)).load()
    except (pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError, TypeError, AttributeError,
            OverflowError, MemoryError, RecursionError) as error:  # fmt: skip
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
    members = tuple(sorted(int(rank) for rank in found)) if isinstance(found, list | tuple) else ()
    if any(not 0 <= rank < MAX_RANKS for rank in members):
        raise ValueError(f"{members[-1]} is no rank")
    return members


def _status(status: dict[str, Any]) -> dict[int, dict[str, int]]:
    return {int(key): {name: int(value) for name, value in item.items() if _is_number(value)}
            for key, item in status.items()}  # fmt: skip
