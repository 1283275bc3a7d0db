"""Where a run's files lie: the run directory (shared, read by everyone) and the local folder of one launch on one node.

Run directory:
    run.json                                          run id, ontology version
    <table>/incarnation=<n>/node=<node>/<k>.parquet   facts and readings, sealed
    <table>/<node>.parquet                            entities, sealed
    live/node=<node>/<table>.<incarnation>.<k>.arrows facts, Arrow IPC streams not sealed yet
    live/node=<node>/<table>.arrows                   entities, not sealed yet
    index/<node>.parquet                              per file: path, rows, digest, first and last sequence

A stream and the sealed file made of it carry the same k; where both exist the sealed one counts.

Local folder: <base>/rankscope-<uid>/<launch>/ with one <proc>.journal per process, the agent's lock and log; the rings
lie beside it or under the tmpfs base (the journal says where).
"""

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

RUN_FILE: Final = "run.json"
LIVE: Final = "live"
INDEX: Final = "index"
RUNS_FOLDER: Final = "rankscope-runs"
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


def index_file(run_dir: str, node: str) -> str:
    """The index written by one node's agent."""
    return f"{run_dir}/{INDEX}/{node}.parquet"


def local_base() -> Path:
    """RANKSCOPE_LOCAL_DIR, else the system's folder for temporary files; always a folder of this user's own below."""
    base = os.environ.get("RANKSCOPE_LOCAL_DIR") or tempfile.gettempdir()
    return Path(base) / f"rankscope-{os.getuid()}"


def local_folders() -> list[Path]:
    """All launch folders of this user on this node."""
    base = local_base()
    try:
        return sorted(entry for entry in base.iterdir() if entry.is_dir())
    except OSError:
        return []


def node_id(host: str, boot_id: str) -> str:
    """The node's name in paths: its host name and the first 8 characters of its boot id."""
    safe = "".join(character if character.isalnum() or character in "-." else "-" for character in host)
    return f"{safe}-{boot_id[:8]}"


def hash63(*parts: object) -> int:
    """A 63-bit hash of the parts' text, the same on every machine and in every process."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
