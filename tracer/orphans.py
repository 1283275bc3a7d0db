"""Which streams in a run's live folder have lost their agent.

An agent's streams carry its token; beside them lies its beat, a small file that it touches every few seconds and that
names its host's boot and its lock. On the same boot the lock decides; elsewhere the age of the beat.
"""

import json
import os
from typing import Final

from rankscope.schema import paths
from rankscope.schema.liveness import is_alive

from .adopt import Orphans, stream_source
from .index import relative
from .rundir import RunDir

BEAT_NS: Final = 10_000_000_000
"""An agent touches its beat this often."""
SILENT_SECONDS: Final = 60.0
"""An agent on another host whose beat is older than this is taken for dead."""


def write_beat(place: RunDir, node: str, token: str, boot_id: str, lock: str) -> None:
    """Say that the agent `token` of `node` is at work. Raises OSError."""
    document = {"boot_id": boot_id, "lock": lock}
    place.write(_beat(node, token), json.dumps(document).encode())


def remove_beat(place: RunDir, node: str, token: str) -> None:
    """Say that it has left, and remove the node's live folder if nothing is in it."""
    place.remove(_beat(node, token))
    place.remove_empty(relative(paths.live_folder("", node)))


def is_agent_alive(place: RunDir, node: str, token: str, boot_id: str) -> bool:
    """True while the agent `token` may still write. boot_id: of this machine."""
    name = _beat(node, token)
    try:
        document = json.loads(place.read(name))
        same_boot, lock = document["boot_id"] == boot_id, str(document["lock"])
    except FileNotFoundError:
        return False
    except (ValueError, KeyError, TypeError):
        same_boot, lock = False, ""
    if same_boot and os.path.exists(lock):
        return is_alive(lock)
    return place.age_seconds(name) < SILENT_SECONDS


def live_nodes(place: RunDir) -> list[str]:
    """The nodes that have a live folder."""
    return [name.removeprefix("node=") for name in place.list(paths.LIVE) if name.startswith("node=")]


def tokens(place: RunDir, node: str) -> list[str]:
    """The agents that left a stream or a beat in the node's live folder."""
    found = set()
    for name in place.list(relative(paths.live_folder("", node))):
        stream = paths.parse_stream_name(name)
        if stream is not None:
            found.add(stream.k.rsplit("-", 1)[0])
        elif name.endswith(".beat"):
            found.add(name.removesuffix(".beat"))
    return sorted(found)


def collect(
    place: RunDir, node: str, dead: list[str] | None, into: dict[tuple[str, int | None], Orphans], problems: list[str]
) -> list[str]:
    """Add the streams of the `dead` agents (None: of all) to `into`; returns their names in `place`."""
    folder, found = relative(paths.live_folder("", node)), []
    for name in place.list(folder):
        stream = paths.parse_stream_name(name)
        if stream is None or (dead is not None and stream.k.rsplit("-", 1)[0] not in dead):
            continue
        orphans = into.setdefault((stream.table, stream.incarnation), Orphans(stream.table, stream.incarnation, node))
        orphans.sources.append(stream_source(place, f"{folder}/{name}", stream.table, problems))
        orphans.ks.append(stream.k)
        found.append(f"{folder}/{name}")
    return found


def _beat(node: str, token: str) -> str:
    return f"{relative(paths.live_folder('', node))}/{token}.beat"
