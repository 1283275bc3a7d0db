"""The recorder: where hooks write. One fixed-size record in a file-backed ring per event, one atomic counter for slots.

`open` is one counter step and one `pack_into` (about 1 us for a collective); no allocation of the ring's memory, lock,
system call or hand-over. Several threads may write: `next` of an `itertools.count` is atomic, and so is a `pack_into`
under the GIL. Ring and journal are made when the first row or the default process group comes, so a process that does
neither (the parent of `mp.spawn`, a spawned data-loader worker) leaves nothing behind.

Fork: the child's writes go to scratch memory, never to the parent's ring, also through closures that hooks kept; it
records again, under its own identity, when it joins a process group.
"""

import os
import threading
import weakref
from array import array
from collections.abc import Callable
from typing import Any, Final, Protocol

from rankscope.schema import ring

from . import ring_file
from .journal import Journal
from .ring_file import RingFile
from .ring_writer import make_writer

_WORDS_A_HOOK: Final = len(ring.COUNTERS)
_LONG_NAME: Final = 16
_FREE_TEXT: Final = frozenset({"row", "note"})
"""Kinds of journal lines that hold text of the job: paths, addresses, messages."""


class Coordinator(Protocol):
    """What the session does at the recorder's rare moments."""

    def awake(self) -> RingFile | None:
        """The first row is coming: make the journal and the ring. None where there can be none."""
        ...

    def joined(self, rank: int, world_size: int, store: Any) -> None:
        """See `Recorder.joined`."""
        ...

    def left(self) -> None:
        """See `Recorder.left`."""
        ...

    def boundary(self) -> None:
        """See `Recorder.boundary`."""
        ...


class HookCounters:
    """The counters of one hook: a window on the ring file's counter words, or on memory while there is no ring."""

    __slots__ = ("base", "words")

    def __init__(self, words: Any, base: int) -> None:
        self.words, self.base = words, base

    def __getitem__(self, index: int, /) -> int:
        return int(self.words[self.base + index])

    def __setitem__(self, index: int, value: int, /) -> None:
        self.words[self.base + index] = value


class RingRecorder:
    """Implements `rankscope.hooks.base.Recorder` over a ring file; open, write, close and poke are in `ring_writer`."""

    def __init__(self, coordinator: Coordinator, journal: Journal) -> None:
        self.is_on, self.is_awake, self.is_shadow = True, False, False
        self.step, self.global_step, self.phase = 0, -1, 0
        self.ring: RingFile | None = None
        self._coordinator, self._journal = coordinator, journal
        self._lock = threading.RLock()
        self._names: dict[str, int] = {}
        self._hooks: dict[str, HookCounters] = {}
        self._words: Any = array("Q", bytes(ring.COUNTER_BYTES))
        self._num_threads, self._writer = 0, make_writer(self.awake, self.index_thread)
        self.open: Callable[..., int] = self._writer.open
        self.write: Callable[..., int] = self._writer.write
        self.close: Callable[..., None] = self._writer.close
        self.poke: Callable[..., None] = self._writer.poke
        _live.add(self)

    def joined(self, rank: int, world_size: int, store: Any) -> None:
        """See `Recorder.joined`. In a forked child this begins a recording of its own."""
        self._coordinator.joined(rank, world_size, store)

    def left(self) -> None:
        """See `Recorder.left`."""
        self._coordinator.left()

    def boundary(self) -> None:
        """See `Recorder.boundary`."""
        self._coordinator.boundary()

    def intern(self, text: str) -> int:
        """See `Recorder.intern`: numbers from 1."""
        number = self._names.get(text)
        return number if number is not None else self._intern(text)

    def journal(self, kind: str, **body: object) -> None:
        """See `Recorder.journal`. What rows, names and reasons say is the job's own text: it is redacted here."""
        if kind in _FREE_TEXT or "why" in body or (kind == "name" and _may_hide(str(body["value"]))):
            from . import redact  # with all its patterns: nobody pays for them at import

            body = redact.document(body)
        self._journal.write(kind, body)

    def counters(self, hook: str) -> HookCounters:
        """See `Recorder.counters`. Raises RuntimeError for more than `ring.MAX_HOOKS` hooks."""
        with self._lock:
            found = self._hooks.get(hook)
            if found is None:
                index = len(self._hooks)
                if index >= ring.MAX_HOOKS:
                    raise RuntimeError(f"more than {ring.MAX_HOOKS} hooks")
                found = self._hooks[hook] = HookCounters(self._words, index * _WORDS_A_HOOK)
                self.journal("hook", hook=hook, index=index, is_on=True)
        return found

    def num_records(self) -> int:
        """Records claimed so far in the ring in use."""
        return self._writer.num_claimed()

    def awake(self) -> bool:
        """Make ring and journal, unless that was done. False where there can be none: capture is then off."""
        with self._lock:
            if self.is_awake:
                return self.ring is not None
            self.is_awake = True
            made = None
            try:
                made = self._coordinator.awake()
            finally:
                if made is None:
                    self.switch_off()
            if made is not None:
                self._map(made)
            return made is not None

    def switch_off(self) -> None:
        """Stop recording for good (detach, no ring): later calls go to scratch memory."""
        self.is_on = False
        self._writer.point(_scratch(), 1)

    def reborn(self) -> None:
        """Begin anew in a forked child that is itself a rank: ring and journal come with the next row."""
        with self._lock:
            self.is_on, self.is_awake, self.is_shadow = True, False, False
            self.step, self.global_step, self.phase = 0, -1, 0
            self._writer.point(None, 1)
            for name, number in self._names.items():
                self.journal("name", id=number, value=name)
            for hook, found in self._hooks.items():
                self.journal("hook", hook=hook, index=found.base // _WORDS_A_HOOK, is_on=True)

    def index_thread(self) -> int:
        """The index that the calling thread has in record headers; 255 once they are used up."""
        with self._lock:
            index = self._num_threads
            if index >= ring.OTHER_THREAD:
                return ring.OTHER_THREAD
            self._num_threads += 1
        thread = threading.current_thread()
        self.journal("thread", id=index, native=threading.get_native_id(), name=thread.name)
        return index

    def _intern(self, text: str) -> int:
        with self._lock:
            number = self._names.get(text)
            if number is None:
                number = len(self._names) + 1
                self.journal("name", id=number, value=text)
                self._names[text] = number
        return number

    def _map(self, made: RingFile) -> None:
        words = memoryview(made.view)[ring.HEADER_BYTES : ring.DATA_OFFSET].cast("Q")
        words[:] = memoryview(self._words)
        self._point_counters(words)
        self.ring = made
        self._writer.point(made.view, made.capacity)

    def _point_counters(self, words: Any) -> None:
        self._words = words
        for found in self._hooks.values():
            found.words = words

    def forked(self) -> None:
        """In the child: forget the parent's files. No lock is taken and nothing is logged: other threads are gone."""
        self.is_on, self.is_awake, self.is_shadow = False, False, False
        if self.ring is not None:
            ring_file.let_go(self.ring)
        self.ring, self._num_threads = None, 0
        self._lock = threading.RLock()
        self._point_counters(array("Q", bytes(ring.COUNTER_BYTES)))
        self._writer.point(_scratch(), 1)
        self._journal.forget()


def _may_hide(name: str) -> bool:
    """A name that could hold an address, an assignment or a credential; most are short words."""
    return len(name) >= _LONG_NAME or any(sign in name for sign in ("://", "=", "@", ":"))


def _scratch() -> bytearray:
    """Room for one record that nobody reads."""
    return bytearray(ring.ring_bytes(1))


def _forked() -> None:
    for recorder in list(_live):
        recorder.forked()


_live: "weakref.WeakSet[RingRecorder]" = weakref.WeakSet()
os.register_at_fork(after_in_child=_forked)
