"""Which run this process belongs to: rank 0 names it and publishes it in the job's store, the others read it there.

The run id is RANKSCOPE_RUN_ID, else made from what outlives an elastic restart: the launcher, where torchrun is one;
else rank 0's own identity. Each `init_process_group` begins an incarnation: rank 0's restart count x 1000 + its ordinal
in rank 0's process. Nobody ever waits: `store.check` asks, at step boundaries and from the watch, less and less often.
Whoever never learns it is bound to the run of its launch folder by the reader. The training's thread and the watch's
meet here: what is known of the group changes as one thing, and under a lock that nobody holds while the store is asked.

torchrun may keep its store across a restart (its rendezvous store is shared with the workers), and with it the answer
for the attempt before. Rank 0 overwrites that before it can issue a collective; so nobody asks before the first step is
over or a second has passed, and an answer older than the asking process is not believed at first.
"""

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from rankscope.schema.paths import RUNS_FOLDER, hash63

from .identity import ProcessIdentity
from .settings import Settings
from .telling import tell

RESTART_FACTOR: Final = 1000
KEY: Final = "rankscope/run/{ordinal}"
FIRST_PAUSE_NS: Final = 20_000_000
LONGEST_PAUSE_NS: Final = 60_000_000_000
STALE_NS: Final = 5_000_000_000
"""An answer published so long before this process began is an earlier attempt's (less could be the hosts' clocks)."""
DOUBT_NS: Final = 60_000_000_000
"""For so long after joining. Then the clocks are wrong, rather than the answer."""
MAX_FAILURES: Final = 3
"""Errors of the store after which it is left alone."""

Write = Callable[..., None]


class Store(Protocol):
    """The three calls used of a torch.distributed store. `check` answers at once whether the keys are there."""

    def check(self, keys: list[str], /) -> bool: ...
    def get(self, key: str, /) -> bytes: ...
    def set(self, key: str, value: str, /) -> object: ...


@dataclass(frozen=True, slots=True)
class Run:
    """A run, where it is written, and which of its incarnations this is. token, origin: see `one_place`."""

    run_id: str
    run_dir: str
    incarnation: int
    token: str = field(default="", compare=False)
    origin: str = field(default="", compare=False)


class Seat(NamedTuple):
    """This process's place in its default group. run: None while it is not known yet; all None before any group."""

    rank: int | None = None
    world_size: int | None = None
    run: Run | None = None


@dataclass(frozen=True, slots=True)
class _Pending:
    store: Store
    key: str
    rank: int
    world_size: int
    from_record: int
    joined_ns: int


class Joining:
    """The joins of one process. write: journals a line. num_records: ring records claimed so far."""

    def __init__(
        self, settings: Settings, identity: ProcessIdentity, folder: Path, write: Write, num_records: Callable[[], int]
    ) -> None:
        self.own = Run(*own_run(settings, identity, os.environ, folder), 0)
        self.seat = Seat()
        """Replaced, never changed: whoever needs more than one of its fields takes it once."""
        self._lock = threading.Lock()
        self._settings, self._write, self._num_records = settings, write, num_records
        self._started_ns = identity.started_ns
        self._pending: _Pending | None = None
        self._num_polls = self._num_failures = self._next_ns = 0
        self.round_trip_ns: int | None = None
        """Of the last question to the store."""

    def joined(self, rank: int, world_size: int, store: Store) -> None:
        """The default process group exists."""
        ordinal = _next_ordinal()
        pending = _Pending(
            store, KEY.format(ordinal=ordinal), rank, world_size, self._num_records(), time.monotonic_ns()
        )
        if rank != 0:
            with self._lock:
                self.seat = Seat(rank, world_size)
                self._pending, self._num_polls, self._num_failures, self._next_ns = pending, 0, 0, 0
            return
        incarnation, token = restart_count() * RESTART_FACTOR + ordinal, os.urandom(8).hex()
        run = Run(self.own.run_id, self.own.run_dir, incarnation, token, self.own.run_dir)
        with self._lock:
            self._bind(run, pending)
        store.set(pending.key, json.dumps([run.run_id, run.run_dir, run.incarnation, time.time_ns(), token]))

    def left(self) -> None:
        """The default process group goes: ask for the last time, and let go of its store."""
        self._next_ns = 0
        self.poll()
        self._pending = None

    def last_chance(self) -> None:
        """The process ends without having left its group: ask once more, if the store is torchrun's, so still there."""
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            self.left()

    def bind_alone(self) -> None:
        """The process has joined nothing and nobody launched it as one of several: it is a run of its own."""
        with self._lock:
            if self.rank is None and is_solo(os.environ):
                self.seat = Seat(0, 1, self.own)
                self._journal(self.own, 0, 1, 0, is_alone=True)

    def forked(self) -> None:
        """In a forked child: the thread that held the lock is gone, and the store is the parent's."""
        self._lock, self._pending = threading.Lock(), None

    @property
    def rank(self) -> int | None:
        """This process's rank; None before it joined anything."""
        return self.seat.rank

    @property
    def world_size(self) -> int | None:
        """Ranks in the default group."""
        return self.seat.world_size

    @property
    def run(self) -> Run | None:
        """The run joined; None before, and while it is not known yet."""
        return self.seat.run

    @property
    def is_pending(self) -> bool:
        """Rank 0's answer is still awaited."""
        return self._pending is not None

    def poll(self) -> None:
        """Ask the store, unless it was asked a short while ago. Costs a round trip (about 0.1 ms) when it does."""
        pending = self._pending
        if pending is None or time.monotonic_ns() < self._next_ns:
            return
        self._num_polls += 1
        self._next_ns = time.monotonic_ns() + min(FIRST_PAUSE_NS << min(self._num_polls, 30), LONGEST_PAUSE_NS)
        answer = self._ask(pending)
        if answer is None:
            return
        with self._lock:
            if self._pending is pending:  # else somebody else was told as well, or there is another group by now
                self._bind(answer, pending)

    def _ask(self, pending: _Pending) -> Run | None:
        begun_ns = time.monotonic_ns()
        try:
            is_there = pending.store.check([pending.key])
            self.round_trip_ns = time.monotonic_ns() - begun_ns
            if not is_there:
                return None
            run_id, run_dir, incarnation, published_ns, *more = json.loads(pending.store.get(pending.key))
            if self._is_stale(int(published_ns), pending):
                return None
            token = str(more[0]) if more else ""
            return Run(
                str(run_id), self._settings.run_dir or str(run_dir), int(incarnation), token, str(run_dir)
            )  # fmt: skip
        except (RuntimeError, ValueError, TypeError):  # torch's store errors are RuntimeErrors
            self._count_failure(pending)
            return None

    def _count_failure(self, pending: _Pending) -> None:
        with self._lock:
            if self._pending is pending:
                self._num_failures += 1
                if self._num_failures >= MAX_FAILURES:
                    self._pending = None

    def _is_stale(self, published_ns: int, pending: _Pending) -> bool:
        is_older = self._started_ns is not None and published_ns < self._started_ns - STALE_NS
        return is_older and time.monotonic_ns() < pending.joined_ns + DOUBT_NS

    def _bind(self, run: Run, pending: _Pending) -> None:
        self._pending, self.seat = None, Seat(pending.rank, pending.world_size, run)
        self._journal(run, pending.rank, pending.world_size, pending.from_record)

    def _journal(self, run: Run, rank: int, world_size: int, from_record: int, **more: bool) -> None:
        self._write(
            "join", run_id=run.run_id, run_dir=run.run_dir, incarnation=run.incarnation, from_record=from_record,
            rank=rank, world_size=world_size, restart_count=restart_count(), token=run.token or None,
            origin=run.origin or None, **more,
        )  # fmt: skip
        tell(run.run_dir)


def own_run(
    settings: Settings, identity: ProcessIdentity, environment: Mapping[str, str], folder: Path
) -> tuple[str, str]:
    """Run id and run directory that this process gives if it is rank 0 or alone. folder: for the default place."""
    run_id = settings.run_id
    if run_id is None:
        who = identity.launcher if "TORCHELASTIC_RUN_ID" in environment else str(identity.proc)
        run_id = f"{script_name()}-{hash63('run', who):016x}"[:-4]
    return run_id, settings.run_dir or str(folder / RUNS_FOLDER / run_id)


def is_solo(environment: Mapping[str, str]) -> bool:
    """True if no launcher says that there are other ranks."""
    sizes = [environment.get(name, "") for name in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")]
    return "TORCHELASTIC_RUN_ID" not in environment and not any(size.isdigit() and int(size) > 1 for size in sizes)


def restart_count() -> int:
    """How often torchrun has restarted this worker."""
    return _number(os.environ.get("TORCHELASTIC_RESTART_COUNT"), 0)


def rank_of(environment: Mapping[str, str], name: str) -> int | None:
    """A rank that a launcher put into the environment."""
    value = environment.get(name, "")
    return int(value) if value.isdigit() else None


def script_name() -> str:
    """The training script's name without its suffix, as far as it can stand in a run id."""
    stem = Path(sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python").stem
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:64] or "python"


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdigit() else default


_num_joined = 0


def _next_ordinal() -> int:
    """How many default groups this process had before."""
    global _num_joined
    _num_joined += 1
    return _num_joined - 1


def _forked() -> None:
    global _num_joined
    _num_joined = 0


os.register_at_fork(after_in_child=_forked)
