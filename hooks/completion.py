"""When an operation completed, and who waited for it: from issue to close, without callbacks and without holding work.

On the host (gloo, MPI) completion is the end of a wait, or `Work.is_completed()` found true at a later hook, an upper
bound; sources `wait` and `poll`. Callbacks on gloo futures are out: they turn a clean exit into an abort. Sends,
receives and reduce_scatters of gloo never say so unwaited. On CUDA the end of a host wait is not the end of the
operation: the wait's times are kept, and completion is left to device events (`device_times`); source `none` until one
is found.

Works of Python callers are known by identity and held weakly; works of C++ callers (the reducer of DDP, functional
collectives) are held until a poll finds them complete, at most MAX_HELD of them, so no buffer lives longer than the
next operation or two. An operation whose work nobody kept is closed with state issued and source `none`: never called
hung. Cost: about 1.5 us per operation, polls at most MAX_POLLS x 0.2 us per hook entry.
"""

import weakref
from collections import deque
from typing import Any, Final

from rankscope.schema.enums import code
from rankscope.schema.ring import COMPLETED, FAILED, ISSUED, layout_of

from .base import Guard, Recorder, now_ns

LAYOUT: Final = layout_of("collective")
WAITED, POLLED, UNKNOWN = (code("timing_source", name) for name in ("wait", "poll", "none"))
MAX_POLLS: Final = 2
MAX_HELD: Final = 64
SLOW_NS: Final = 1_000_000
"""Of operations found complete later than this after their issue it is asked whether an error ended them (2 us)."""
MAX_OUTPUTS: Final = 4096
"""Outputs of functional collectives that nobody has waited for; the oldest are given up."""
_UNPOLLABLE: Final = frozenset(
    {"send", "recv", "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced"}
)


Records = tuple[tuple[int, int, int], ...]
"""(record, issued_ns, returned_ns) of each row that one work closes: one, or those of a coalesced call."""


class Pending(weakref.ref[Any]):
    """An operation that is not closed, and a weak reference to its work: one object, for one is made per operation."""

    __slots__ = ("completed_ns", "held", "is_cuda", "is_host", "is_waited", "key", "records")

    key: int
    records: Records
    is_host: bool
    is_cuda: bool
    is_waited: bool
    completed_ns: int
    held: Any


class _NoWork:
    __slots__ = ("__weakref__",)


class Completion:
    """The operations of this process that are not closed."""

    __slots__ = ("_close", "_guard", "_no_work", "_recorder", "outputs", "polls", "works")

    def __init__(self, recorder: Recorder, guard: Guard) -> None:
        self._recorder, self._close, self._guard, self._no_work = recorder, recorder.close, guard, _NoWork()
        self.works: dict[int, Pending | tuple[int, int]] = {}
        """By identity of the work. (record, returned_ns): a synchronous operation, which its caller waits for next."""
        self.outputs: dict[int, Pending] = {}
        self.polls: deque[Pending] = deque()

    def issued(self, work: Any, records: Records, is_host: bool, is_polled: bool) -> None:
        """A Python caller was handed `work`; it is waited for through `Work.wait`, or polled if is_polled.

        is_host: complete when a wait on the host returns.
        """
        pending = Pending(work, self._forget)
        pending.key = key = id(work)
        pending.records, pending.is_host, pending.is_cuda = records, is_host, not is_host
        pending.is_waited, pending.completed_ns, pending.held = False, 0, None
        self.works[key] = pending
        if is_polled:
            self.polls.append(pending)

    def issued_in_cpp(self, work: Any, records: Records, is_host: bool, is_polled: bool, outputs: Any) -> None:
        """C++ called, and waits in C++: polled, or waited for through `wait_tensor` of one of `outputs`."""
        pending = Pending(self._no_work if work is None else work)
        pending.key, pending.records = 0, records
        pending.is_host, pending.is_cuda = is_host, not is_host
        pending.is_waited, pending.completed_ns, pending.held = False, 0, None
        if is_polled and work is not None and len(self.polls) < MAX_HELD:
            pending.held = work
            self.polls.append(pending)
        self._keep_outputs(pending, outputs)

    def returned(self, record: int, issued_ns: int, returned_ns: int) -> None:
        """The issuing call blocked until the operation was done, and gave back no work."""
        self._close(LAYOUT, record, COMPLETED, WAITED, returned_ns, issued_ns, returned_ns, returned_ns)

    def waited(self, pending: Pending, begin_ns: int, end_ns: int, has_failed: bool) -> None:
        """A wait for it began and ended (CLOCK_MONOTONIC ns). Later waits for the same operation say nothing new."""
        if pending.is_waited:
            return
        pending.is_waited, pending.held = True, None
        if has_failed:
            self._finish(pending, FAILED, WAITED, begin_ns, end_ns, end_ns)
        elif pending.completed_ns:
            self._finish(pending, COMPLETED, POLLED, begin_ns, end_ns, pending.completed_ns)
        elif pending.is_host:
            pending.completed_ns = end_ns
            self._finish(pending, COMPLETED, WAITED, begin_ns, end_ns, end_ns)
        else:
            self._finish(pending, ISSUED, UNKNOWN, begin_ns, end_ns, 0)

    def failed(self, record: int) -> None:
        """The issuing call raised."""
        self._close(LAYOUT, record, FAILED, UNKNOWN, 0, 0, 0, now_ns())

    def poll(self, most: int = MAX_POLLS, *, is_doubtful: bool = False) -> None:
        """Ask up to `most` of the operations that can be asked whether they are complete; never blocks.

        A work that an error ended (a peer that died) calls itself complete, too. is_doubtful: look for that in all.
        """
        polls = self.polls
        for _ in range(most):
            try:
                pending = polls.popleft()
            except IndexError:
                return
            if pending.is_waited:
                continue
            work = pending()
            if work is None:
                continue
            if not work.is_completed():
                polls.append(pending)
                continue
            at_ns = now_ns()
            is_asked = is_doubtful or at_ns - pending.records[0][1] > SLOW_NS
            self._found_over(pending, at_ns, FAILED if is_asked and outcome(work) == FAILED else COMPLETED)

    def poll_all(self, *, is_doubtful: bool = False) -> None:
        """Ask all of them once: at the ends of backward and step. is_doubtful: it was an exception that ended it."""
        self.poll(len(self.polls), is_doubtful=is_doubtful)

    def last_look(self) -> None:
        """Ask all of them once more: the groups or the recording end, and no later poll would. Never blocks.

        Gloo calls a work complete a moment after DDP's reducer, which waits for its future, has gone on: so the future
        is asked. One that is on its way stays issued, which says who was left waiting.
        """
        while self.polls:
            pending = self.polls.popleft()
            work = None if pending.is_waited else pending()
            state = ISSUED if work is None else outcome(work)
            if state != ISSUED:
                self._found_over(pending, now_ns(), state)

    def forget_all(self) -> None:
        """Drop everything: detached, forked, or the groups are gone."""
        for table in (self.works, self.outputs, self.polls):
            table.clear()

    def _found_over(self, pending: Pending, at_ns: int, state: int) -> None:
        pending.completed_ns, pending.held = at_ns, None
        self._finish(pending, state, POLLED, 0, 0, at_ns)

    def _finish(self, pending: Pending, state: int, timing: int, begin_ns: int, end_ns: int, completed_ns: int) -> None:
        if self._recorder.is_on:
            for record, _, returned_ns in pending.records:
                self._close(LAYOUT, record, state, timing, returned_ns, begin_ns, end_ns, completed_ns)

    def _forget(self, pending: weakref.ref[Any]) -> None:
        """The work of a Python caller is gone. Runs at any moment, so it only touches tables and the ring."""
        assert isinstance(pending, Pending)
        if self.works.get(pending.key) is pending:
            del self.works[pending.key]
        if pending.is_waited or pending.completed_ns or self._guard.is_off:
            return
        try:
            self._finish(pending, ISSUED, UNKNOWN, 0, 0, 0)
        except Exception as error:  # noqa: BLE001 - the guard's
            self._guard.failed(error)

    def _keep_outputs(self, pending: Pending, outputs: Any) -> None:
        table = self.outputs
        for output in outputs if isinstance(outputs, (list, tuple)) else (outputs,):
            if isinstance(output, (list, tuple)):  # lists of lists: no functional collective returns them
                return
            address = output.data_ptr()
            if address:
                table[address] = pending
        while len(table) > MAX_OUTPUTS:
            del table[next(iter(table))]


def outcome(work: Any) -> int:
    """COMPLETED, FAILED, or ISSUED where it is on its way or cannot tell.

    `is_success` and `exception` would warn on stderr (torch 2.13).
    """
    try:
        future = work.get_future()
        if not future.done():
            return ISSUED
    except RuntimeError:  # this kind of work has no future
        return ISSUED
    try:
        future.value()  # raises what ended it
    except RuntimeError:
        return FAILED
    return COMPLETED


def can_be_polled(op: str, is_gloo: bool) -> bool:
    """Whether `Work.is_completed()` of a host backend ever becomes true unwaited (torch 2.13, 2.14)."""
    return not (is_gloo and op in _UNPOLLABLE)
