"""The journal: rare things of one process, one JSON object a line, appended and flushed at once.

Each line is {"k": kind, "t": CLOCK_MONOTONIC ns, ...}. Kinds and their other keys:

    process  the columns of table process that are known at attach, and world_size, launch (key of the launcher),
             run_id and run_dir: where it goes if it never joins; is_solo: nobody started it as one rank of several and
             it has joined no group so far, so that is its own run, else its launch folder's run comes first. Written
             again, whole, when more is known; the last one counts
    ring     path, capacity, is_tmpfs; or capacity 0 and why
    join     run_id, run_dir, incarnation, from_record, rank, world_size, restart_count
    run      columns of table run (rank 0, or the only process)
    group    id, and the columns of table process_group (members by the lowest rank only)
    name     id, value                     strings interned in ring records
    thread   id, native, name              thread index in record headers
    hook     hook, index, tier, is_on, why a hook was installed, reduced or switched off; index: its counters
    clock    columns of table clock
    row      table, row                    a row of a table that has no ring records (checkpoint, artifact, ...)
    note     text                          one line for the reader of the report
    exit     num_records, error            the end; error: type of the exception that nothing caught, if that was it

A line cut off by a crash is not a line; readers skip what does not parse and count it.
"""

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

JOURNAL_KINDS: Final = (
    "process", "ring", "join", "run", "group", "name", "thread", "hook", "clock", "row", "note", "exit",
)  # fmt: skip

CHOSEN_OFF: Final = "switched off by RANKSCOPE_HOOKS or attach(hooks=...)"
"""The `why` of a hook or sampler that is off because somebody said so: told, and no finding."""


class JournalLine(NamedTuple):
    """One line. body holds the keys other than k and t."""

    kind: str
    time_ns: int
    body: dict[str, Any]


def encode(kind: str, time_ns: int, body: dict[str, Any]) -> bytes:
    """The bytes of one line. Values that JSON cannot hold are written as their str()."""
    return json.dumps({"k": kind, "t": time_ns, **body}, separators=(",", ":"), default=str).encode() + b"\n"


def decode(data: bytes) -> Iterator[JournalLine | None]:
    """The lines of `data`, which begins at a line's start; None for a whole line that does not parse.

    A last line without a newline is left alone: `complete_bytes` says where it starts.
    """
    for raw in data[: complete_bytes(data)].splitlines():
        yield _parse(raw)


def complete_bytes(data: bytes) -> int:
    """Number of bytes up to and including the last newline."""
    return data.rfind(b"\n") + 1


def _parse(raw: bytes) -> JournalLine | None:
    try:
        document = json.loads(raw)
        return JournalLine(str(document.pop("k")), int(document.pop("t")), document)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
