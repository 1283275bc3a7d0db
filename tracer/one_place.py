"""Do all nodes write to one run directory? A path that is the same everywhere need not be the same folder.

Rank 0 publishes, with the run's id, a random token; its agent writes that into the run directory. Every other node's
agent looks for it there, only reading, once its ranks have been joined for PATIENCE_NS (shared file systems show a new
file late), and says once that it is not there. Nothing is said of object stores, which have one address, nor in jobs
that are over before.
"""

import json
import os
from collections.abc import Iterable
from typing import Final

from rankscope.schema.process_state import ProcessState, RunRef

from .rundir import RunDir

ORIGIN: Final = "index/.origin.json"
"""The tokens of the latest incarnations, written by the agent of rank 0; hidden, for it is no data."""
PATIENCE_NS: Final = 30_000_000_000
MAX_TOKENS: Final = 32


class OnePlace:
    """What one agent knows of it: tokens that it has met, and when."""

    def __init__(self) -> None:
        self._since_ns: dict[tuple[RunRef, str], int] = {}
        self._is_done: set[tuple[RunRef, str]] = set()

    def look(self, run: RunRef, place: RunDir, states: Iterable[ProcessState], now_ns: int) -> str | None:
        """What is to be told of `run`, if anything; call it at every pass. Raises OSError."""
        joins = [join for state in states for join in state.joins if join.body.get("token")]
        if not place.is_local or not joins:
            return None
        last = max(joins, key=lambda join: join.incarnation)
        key = run, str(last.body["token"])
        if key in self._is_done:
            return None
        if any(join.rank == 0 and join.body.get("token") == key[1] for join in joins):
            _publish(place, key[1])
        elif now_ns - self._since_ns.setdefault(key, now_ns) < PATIENCE_NS:
            return None
        elif key[1] not in _tokens(place):
            self._is_done.add(key)
            theirs = last.body.get("origin") or run.run_dir
            return (f"this node ({os.uname().nodename}) writes to its own folder {place.address}, which the node of "
                    f"rank 0 does not share; copy it into {theirs} there to merge")  # fmt: skip
        self._is_done.add(key)
        return None


def _publish(place: RunDir, token: str) -> None:
    tokens = [*_tokens(place), token]
    place.write(ORIGIN, json.dumps(tokens[-MAX_TOKENS:]).encode())


def _tokens(place: RunDir) -> list[str]:
    try:
        found = json.loads(place.read(ORIGIN))
    except (FileNotFoundError, ValueError):
        return []
    return [str(token) for token in found] if isinstance(found, list) else []
