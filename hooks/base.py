"""The contract between hooks and the recorder, the guard that keeps a failing hook from the job, and the patch helper.

A hook is a function `install(recorder, undo)`: it pushes every undo on the `ExitStack` the moment the thing is done,
and raises `HookUnavailable` where it cannot work. Its wrappers run the original exactly once, with the arguments
untouched, and let the user's exception pass unchanged; all of ours around it stands inside `try` with `guard.failed`.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, Final, Protocol

from rankscope.schema.ring import RingLayout

TIMED_ONE_IN: Final = 64
"""One hook entry in so many is timed by its entry and exit clocks (a power of two)."""
UNTIMED_MASK: Final = TIMED_ONE_IN - 1
"""Entries whose count has one of these bits are not timed."""

now_ns = time.monotonic_ns

on_swallow: Callable[[str, BaseException], None] | None = None
"""Set by tests: called with (hook, error) for everything that a guard swallows."""


def _hide(text: str) -> str:
    return "[redacted]"


redact: Callable[[str], str] = _hide
"""Takes secrets out of a path or address before it is written; set by the tracer (`installing`)."""


class Counters(Protocol):
    """The counters of one hook (`schema.ring.COUNTERS`), kept in the ring file. Index with the counter's position."""

    def __getitem__(self, index: int, /) -> int: ...
    def __setitem__(self, index: int, value: int, /) -> None: ...


class Recorder(Protocol):
    """Where hooks write. Every call is cheap (about a microsecond), never blocks, and never fails the job."""

    is_on: bool
    """False in forked children, after detach, and where no ring could be had: hooks then only pass through."""
    is_shadow: bool
    """True in shadow steps (`shadow`): hooks of the hot path count, and write no rows. Set by the steps hook only."""
    step: int
    """Ordinal of the current step in the incarnation; advanced by the steps hook only."""
    global_step: int
    """Step of the whole training; -1 unknown."""
    phase: int
    """Code of the current phase (`schema.enums.code("phase", ...)`; 0 none). Set by the phases hook."""

    def open(self, layout: RingLayout, *values: object) -> int:
        """Write a record in state issued; `values` in the order of `layout.open_columns`. Returns the record number."""
        ...

    def write(self, layout: RingLayout, *values: object) -> int:
        """Write a record that is complete at once (tables without close columns)."""
        ...

    def close(self, layout: RingLayout, record: int, state: int, timing: int, *values: int) -> None:
        """Write the close columns (order of `layout.close_columns`), then state and timing source.

        If the slot was overwritten meanwhile, the whole row is written again as a record of its own from what the
        reader can still use (the recorder decides); the caller does not care.
        """
        ...

    def poke(self, layout: RingLayout, record: int, column: str, value: int) -> None:
        """Write one column of an open record (device times: in units of 100 ns after the base; others as stored)."""
        ...

    def joined(self, rank: int, world_size: int, store: Any) -> None:
        """The default process group exists: bind run id and incarnation (through `store`, without ever blocking).

        Call it also while `is_on` is False: a forked child that is itself a rank begins to record here.
        """
        ...

    def left(self) -> None:
        """The default process group was destroyed."""
        ...

    def boundary(self) -> None:
        """A step ended: a moment for the recorder's own rare work (polling the store, clock readings)."""
        ...

    def intern(self, text: str) -> int:
        """The number that stands for `text` in records; journalled once."""
        ...

    def journal(self, kind: str, **body: object) -> None:
        """Append a line to the journal (see `schema.journal`). For rare things only: it is a system call."""
        ...

    def counters(self, hook: str) -> Counters:
        """The counters of `hook`, in the ring file."""
        ...


class Hook(Protocol):
    """The shape of every hook module's `install`."""

    def __call__(self, recorder: Recorder, undo: ExitStack) -> None: ...


class Guard:
    """One hook's state: on or off, and what it cost. `failed` swallows, counts, journals once and switches off."""

    __slots__ = ("_counters", "calls", "hook", "is_off", "recorder")

    def __init__(self, recorder: Recorder, hook: str) -> None:
        self.recorder, self.hook, self.is_off = recorder, hook, False
        self._counters, self.calls = recorder.counters(hook), 0

    def failed(self, error: BaseException) -> None:
        """Take note of our own failure and switch this hook off; the training goes on."""
        self.is_off = True
        with suppress(Exception):  # a recorder may fail even here; the first error is what counts
            self._counters[6] += 1
            self._counters[7] = 1
            self.recorder.journal("hook", hook=self.hook, is_on=False, why=f"{type(error).__name__}: {error}")
        if on_swallow is not None:
            on_swallow(self.hook, error)

    def enter(self) -> int:
        """Count one entry; returns the clock for one entry in TIMED_ONE_IN, else 0. Give the result to `leave`."""
        self.calls = calls = self.calls + 1
        return 0 if calls & UNTIMED_MASK else self.sample()

    def sample(self) -> int:
        """The clock for an entry to be timed; a moment to write the counts. `enter` for callers that count inline."""
        self.flush()
        return now_ns()

    def flush(self) -> None:
        """Write the count of entries to the ring file."""
        self._counters[0] = self.calls

    def mean_ns(self) -> float:
        """Mean time of the timed entries, the job's own time left out; 0 before the first."""
        return self._counters[2] / self._counters[1] if self._counters[1] else 0.0

    def count_row(self) -> None:
        """One more row was written."""
        self._counters[4] += 1

    def count_dropped(self, num_rows: int) -> None:
        """So many rows could not be written."""
        self._counters[5] += num_rows

    def leave(self, entered_ns: int, job_ns: int = 0) -> None:
        """Close a timed entry; job_ns: time inside that was the job's own call. Call only if `enter` gave a clock."""
        spent = max(0, now_ns() - entered_ns - job_ns)
        self._counters[1] += 1
        self._counters[2] += spent
        self._counters[3] += (spent * spent) // 1_000_000


def claim(hook: str, undo: ExitStack) -> bool:
    """True for the first install of `hook` in this process, until `undo` closes; a second one has nothing to do."""
    if hook in _claimed:
        return False
    _claimed.add(hook)
    undo.callback(_claimed.discard, hook)
    return True


def is_claimed(hook: str) -> bool:
    """`hook` is installed in this process."""
    return hook in _claimed


def patch(owner: Any, name: str, make: Callable[[Any], Any], undo: ExitStack) -> None:
    """Replace attribute `name` of `owner` by `make(original)` until `undo` closes.

    The raw entry of `owner.__dict__` is saved (reading `ProcessGroup.allreduce` through the class gives a plain builtin
    that no longer binds), and put back only if our wrapper is still there; if somebody wrapped over it, ours stays in
    the chain and `make`'s wrapper must pass through once its guard or recorder is off.
    """
    namespace = vars(owner)
    inherited = name not in namespace
    original = getattr(owner, name) if inherited else namespace[name]
    wrapper = make(original)
    setattr(owner, name, wrapper)

    def restore() -> None:
        if vars(owner).get(name) is not wrapper:
            return
        if inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, original)

    undo.callback(restore)


_claimed: set[str] = set()
