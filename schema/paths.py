"""Where a run's files lie: the run directory (shared, read by everyone) and the local folder of one launch on one node.

Run directory:
    run.json                                          run id, ontology version
    truth.json                                        what was planted, in a synthetic run only
    <table>/incarnation=<n>/node=<node>/<k>.parquet   facts and readings, sealed
    <table>/<node>.parquet                            entities, sealed
    live/node=<node>/<table>.<incarnation>.<k>.arrows facts, Arrow IPC streams not sealed yet
    live/node=<node>/<table>.-.<k>.arrows             entities, not sealed yet
    live/node=<node>/<agent>.beat                     touched by a live agent; k begins with <agent>-
    index/<node>.parquet                              per file: path, rows, digest, first and last sequence

A stream and the sealed file made of it carry the same k; where both exist the sealed one counts. A merged file names
the k of the files it was made of in its metadata (`REPLACES`): where one of these still exists, the merged one counts.

Local folder: <base>/rankscope-<uid>/<launch>/ with one <proc>.journal per process, the agent's lock and log; the rings
lie beside it or under the tmpfs base (the journal says where).
"""

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

RUN_FILE: Final = "run.json"
TRUTH: Final = "truth.json"
"""In a synthetic run: what was planted. No evidence: no reader looks at it."""
LIVE: Final = "live"
INDEX: Final = "index"
RUNS_FOLDER: Final = "rankscope-runs"
REPLACES: Final = "rankscope.replaces"
"""Key in a sealed file's metadata: the k, comma-separated, of the streams and sealed files that it stands for."""
SPOOL: Final = "spool"
"""In a launch folder: what could not be written to a run directory, laid out like one, one folder per run."""
AGENT_LOCK: Final = "agent.lock"
AGENT_LOG: Final = "agent.log"
TMPFS_BASE: Final = Path("/dev/shm")


def fact_folder(run_dir: str, table: str, incarnation: int, node: str) -> str:
    """Folder of the sealed files of one fact table, incarnation and node."""
    return f"{run_dir}/{table}/incarnation={incarnation}/node={node}"


def entity_file(run_dir: str, table: str, node: str) -> str:
    """The sealed file of one entity table and node."""
    return f"{run_dir}/{table}/{node}.parquet"


def live_folder(run_dir: str, node: str) -> str:
    """Folder of the streams that one node's agent has not sealed yet."""
    return f"{run_dir}/{LIVE}/node={node}"


class StreamName(NamedTuple):
    """What a stream's file name says; incarnation is None for entities."""

    table: str
    incarnation: int | None
    k: str


def stream_name(table: str, incarnation: int | None, k: str) -> str:
    """File name of a stream in `live_folder`."""
    return f"{table}.{'-' if incarnation is None else incarnation}.{k}.arrows"


def parse_stream_name(name: str) -> StreamName | None:
    """The parts of a stream's file name; None if it is no such name."""
    parts = name.split(".")
    if len(parts) != 4 or parts[3] != "arrows" or not (parts[1] == "-" or parts[1].lstrip("-").isdigit()):
        return None
    return StreamName(parts[0], None if parts[1] == "-" else int(parts[1]), parts[2])


def index_file(run_dir: str, node: str) -> str:
    """The index written by one node's agent."""
    return f"{run_dir}/{INDEX}/{node}.parquet"


def beside(run_dir: str, run_id: str) -> str:
    """Where a run is written whose directory holds another run."""
    return f"{run_dir.rstrip('/')}.{run_id}"


def read_run_file(path: Path) -> tuple[str, str] | None:
    """(run id, run directory) of a `run.json`; None if it cannot be read. The directory is where the run belongs."""
    try:
        document = json.loads(path.read_bytes())
        return str(document["run_id"]), str(document.get("run_dir") or path.parent)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def local_base() -> Path:
    """RANKSCOPE_LOCAL_DIR, else the system's folder for temporary files; always a folder of this user's own below."""
    base = os.environ.get("RANKSCOPE_LOCAL_DIR") or tempfile.gettempdir()
    return Path(base) / f"rankscope-{os.getuid()}"


def tmpfs_base() -> Path:
    """Where rings lie by preference; journals too, where the local disk takes none (it is full, or read-only)."""
    return TMPFS_BASE / f"rankscope-{os.getuid()}"


def local_folders() -> list[Path]:
    """All launch folders of this user on this node, those for rings included."""
    found: list[Path] = []
    for base in {local_base(), tmpfs_base()}:
        try:
            found += [entry for entry in base.iterdir() if entry.is_dir()]
        except OSError:
            continue
    return sorted(found)


def node_id(host: str, boot_id: str) -> str:
    """The node's name in paths: its host name and the first 8 characters of its boot id."""
    safe = "".join(character if character.isalnum() or character in "-." else "-" for character in host)
    return f"{safe}-{boot_id[:8]}"


def hash63(*parts: object) -> int:
    """A 63-bit hash of the parts' text, the same on every machine and in every process."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
