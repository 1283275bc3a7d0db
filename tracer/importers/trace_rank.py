"""Which rank wrote a trace: what the user says, the trace's metadata, its collectives' arguments, its file's name."""

import json
import os
import re
from typing import Any, Final

import msgspec

from rankscope.schema.errors import UnreadableFile

RankMap = dict[str, int]
STEP_PREFIX: Final = "ProfilerStep#"
PARAMETERS: Final = "record_param_comms"
"""Name of the host's events that hold a collective's arguments."""
NO_RANK: Final = "its rank is not in its metadata, its collectives or its name; give it with --rank-map"
ENDINGS: Final = (".json", ".json.gz")
"""Of the names of trace files."""
NONE: Final = -1
"""Stands for "not told" in ranks, streams, devices and correlations."""
MAX_DIGITS: Final = 18
"""Whole numbers of so many digits fit into 64 bits."""
MAX_RANKS: Final = 1 << 20
"""What a trace says beyond is no rank and no size of a job."""
_DAY_NS: Final = 24 * 3600 * 10**9
FURTHEST_NS: Final = 30 * _DAY_NS
"""Traces that are further apart are of different jobs."""
_IN_NAME: Final = re.compile(r"(?:^|[^a-z])rank[-_. ]?(\d+)", re.IGNORECASE)
_WORKER: Final = re.compile(r"(?:^|[^a-z])worker[-_]?(\d+)(?!\d)", re.IGNORECASE)


def read_rank_map(path: str) -> RankMap:
    """Ranks by file name: lines "NAME RANK", or a JSON object. Raises UnreadableFile."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if text.lstrip().startswith("{"):
            return {str(name): _rank(rank, path) for name, rank in json.loads(text).items()}
        lines = [line.split() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        return {" ".join(words[:-1]): _rank(words[-1], path) for words in lines}
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UnreadableFile(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def rank_of(path: str, ranks: RankMap, in_metadata: int | None, in_collectives: int | None) -> int | None:
    """The rank of the trace at `path`; None where nothing tells it."""
    name = os.path.basename(path)
    for key in (path, name, name.removesuffix(".gz"), name.split(".", 1)[0]):
        if key in ranks:
            return ranks[key]
    found = _IN_NAME.search(name) or _WORKER.search(name)
    told = (in_metadata, in_collectives, int(found[1]) if found and len(found[1]) < MAX_DIGITS else None)
    return next((rank for rank in told if rank is not None and 0 <= rank < MAX_RANKS), None)


def clash(rank: int, known: list[tuple[int, int]], window: tuple[int, int]) -> str:
    """Why a trace of `rank` cannot stand beside those in hand; "" if it can. Windows: begin and end, ns."""
    if any(start < window[1] and window[0] < end for start, end in known):
        return f"another file is of rank {rank} at the same time"
    if days := days_apart(known, window):
        return f"another file is of rank {rank}, {days:,} days apart: of another job, it seems; import it by itself"
    return ""


def days_apart(known: list[tuple[int, int]], window: tuple[int, int]) -> int:
    """How far a trace lies from the nearest in hand, if that is too far for one job; else 0. Windows: as in `clash`."""
    gap = min((max(start - window[1], window[0] - end) for start, end in known), default=0)
    return gap // _DAY_NS if gap > FURTHEST_NS else 0


def _rank(value: object, path: str) -> int:
    if (
        isinstance(value, int | str)
        and str(value).isdecimal()
        and len(str(value)) < MAX_DIGITS
        and int(value) < MAX_RANKS
    ):
        return int(value)
    raise UnreadableFile(f"{path}: {value!r} is no rank; a line is a file's name and its rank")


def whole(value: Any) -> int:
    """`value` as a number of 64 bits; `NONE` where it is none ("stream 7" is 7)."""
    if type(value) is not int:
        text = str(value).rpartition(" ")[2]
        value = int(text) if text.isdecimal() and len(text) < MAX_DIGITS else NONE
    return value if abs(value) < 10**MAX_DIGITS else NONE


def global_rank(arguments: Any) -> int | None:
    """The global rank, from the rank inside a group and the group's members. arguments: has rank and ranks, or None."""
    if arguments is None:
        return None
    inside, members = whole(arguments.rank), members_of(arguments.ranks)
    return members[inside] if 0 <= inside < len(members) else None


def members_of(text: Any) -> list[int]:
    """The members of a group as a trace writes them: "[0, 1]". Empty where they are not told, or cut short ("...")."""
    try:
        members = msgspec.json.decode(text.encode(), type=list[int]) if isinstance(text, str) else text
    except msgspec.DecodeError:
        return []
    return members if isinstance(members, list) and all(type(member) is int for member in members) else []
