"""The session: everything rankscope does inside one training process, from attach to detach or exit.

Attach installs the hooks (at once, or when torch is imported) and nothing else: files, the watch thread and the agent
come with the first recorded row or the default process group. What fails in here is swallowed, counted and noted.
"""

import atexit
import os
import sys
import time
import weakref
from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rankscope.hooks.metrics import MetricLog
from rankscope.hooks.registry import DEFAULT_GROUP
from rankscope.hooks.spans import SpanLog
from rankscope.schema import paths, ring
from rankscope.schema.errors import CaptureError

from . import clock, describing, ending, identity, reachable, ring_file
from .guarding import NAME, SessionGuard
from .installing import install_hooks, tell_chosen_off
from .joining import Joining
from .journal import Journal
from .launch import Watch
from .recorder import RingRecorder
from .ring_file import RingFile
from .saying import say
from .settings import Settings
from .telling import tell_recording

if TYPE_CHECKING:
    from rankscope.hooks.steps import StepClock

SOLO_SECONDS: Final = 10.0
"""A process that nobody launched as one of several, and that joined nothing by then, is a run of its own."""
FINALIZER_PRIORITY: Final = -100
"""In processes made by multiprocessing, which may end without atexit: after everything that the user registered."""


class Session:
    """One attachment of this process; made by `rankscope.attach`."""

    def __init__(self, settings: Settings, ordinal: int = 0) -> None:
        self.settings, self._home, self._ordinal = settings, _home(), ordinal
        self._journal, self._undo = Journal(), ExitStack()
        self._is_over, self._is_fork, self._clock_ns = False, False, 0
        self._described: tuple[str, int | None] | None = None
        self._attached_s, self._error = time.monotonic(), ""
        self.recorder = RingRecorder(self, self._journal)
        self._guard = SessionGuard(self.recorder, NAME)
        self._identify()
        self._watch: Watch | None = None
        self._spans: SpanLog | None = None
        self._metrics: MetricLog | None = None
        _live.add(self)
        atexit.register(self.finish)

    @property
    def is_on(self) -> bool:
        """Rows are recorded, or will be as soon as there is something to record."""
        return self.recorder.is_on

    def install(self) -> None:
        """Install the chosen hooks, and join the default process group if there is one already."""
        self._guard.run(self._warn)
        names = self.settings.hooks
        self._guard.run(partial(tell_chosen_off, self.recorder, names))
        if "process_groups" not in names:
            names |= {DEFAULT_GROUP.name}
        install_hooks(self.recorder, self._undo, names, self._guard.failed)
        self._guard.run(self._join_existing)

    def update(self, settings: Settings) -> None:
        """Take over what a later `attach` said, as far as it is not too late; a forked child begins to record."""
        self.settings = settings
        if self._is_fork and not self.recorder.is_awake:
            self._begin_in_child()
        elif self.joining.rank is None:
            self._identify()
            if self.recorder.is_awake:
                self._write_process()

    def step(self, samples: int | None, tokens: int | None, global_step: int | None) -> None:
        """See `rankscope.step`."""
        self._guard.run(lambda: self._steps().boundary("explicit", samples, tokens, global_step))

    def log(self, step: int | None, replicated: Iterable[str], scalars: dict[str, Any]) -> None:
        """See `rankscope.log`."""
        self._guard.run(partial(self._log, step, replicated, scalars))

    def span(self, kind_or_name: str) -> AbstractContextManager[object]:
        """See `rankscope.span`."""
        if self._spans is None:
            self._guard.run(self._make_spans)
        return nullcontext() if self._spans is None else self._spans.span(kind_or_name)

    def detach(self) -> None:
        """Take the hooks out, close the files, and let the agent do the rest. Safe to call twice."""
        self.finish()
        atexit.unregister(self.finish)
        made, self.recorder.ring = self.recorder.ring, None
        self.recorder.switch_off()
        self._journal.close()
        if made is not None:
            ring_file.let_go(made)

    def finish(self) -> None:
        """The recording ends: last rows, exit line, agent. Runs once; never raises."""
        if self._is_over or (self._is_fork and not self.recorder.is_awake):
            return
        if self._metrics is not None:
            self._metrics.finish()
        # what hooks tell at their end (pauses of the collector, totals) is no reason to begin a recording
        self._is_over = not self.recorder.is_awake
        self._guard.run(self._undo.close)
        self._is_over = True
        if self._journal.path is not None:
            self._guard.run(self._end)

    def awake(self) -> RingFile | None:
        """Make journal and ring, begin to watch. None, after one line, where there can be no ring."""
        if self._is_over or _is_loader_worker():
            return None
        if not self._start_journal():
            return None
        made = self._make_ring()
        tell_recording()
        self._guard.run(self._tick_clock)
        _at_multiprocessing_exit(self._finish_in_child)
        self._watch = Watch(self.folder, self.settings.agent, self._attached_s, self._tick, self._guard.failed)
        self._guard.run(self._watch.start)
        return made

    def joined(self, rank: int, world_size: int, store: Any) -> None:
        """The default process group exists; a forked child begins to record."""
        if self._is_over:
            return
        if self._is_fork and not self.recorder.is_awake:
            self._begin_in_child()
        self._guard.run(lambda: self._steps().restart())
        self.recorder.awake()
        self._guard.run(partial(self.joining.joined, rank, world_size, store))
        self._write_process()

    def left(self) -> None:
        """The default process group was destroyed."""
        self._guard.run(self.joining.left)

    def boundary(self) -> None:
        """A step ended."""
        if self.joining.is_pending:
            self._guard.run(self.joining.poll)
        if self._metrics is not None:
            self._guard.run(self._metrics.poll)

    def _warn(self) -> None:
        """One line per node where the run directory cannot be written as things are."""
        reason = reachable.problem(self.joining.own.run_dir)
        if reason is not None and os.environ.get("LOCAL_RANK", "0") == "0":
            say(f"the run directory {self.joining.own.run_dir} cannot be written now ({reason}); rows stay in "
                f"{self.folder} until it can")  # fmt: skip

    def _log(self, step: int | None, replicated: Iterable[str], scalars: dict[str, Any]) -> None:
        if self._metrics is None:
            self._metrics = MetricLog(self.recorder)
        names = (replicated,) if isinstance(replicated, str) else tuple(replicated)
        self._metrics.log(scalars, step, names)

    def _make_spans(self) -> None:
        self._spans = SpanLog(self.recorder)

    def _steps(self) -> "StepClock":
        from rankscope.hooks.steps import clock_for

        return clock_for(self.recorder)

    def _identify(self) -> None:
        self.identity = identity.identify(self._ordinal)
        self.folder = paths.local_base().absolute() / self.identity.launch
        self.joining = Joining(
            self.settings, self.identity, self._home, self.recorder.journal, self.recorder.num_records
        )

    def _join_existing(self) -> None:
        distributed = sys.modules.get("torch.distributed")
        if distributed is None or self.joining.rank is not None or not distributed.is_available():
            return
        if distributed.is_initialized():
            store = distributed.distributed_c10d._get_default_store()
            self.recorder.joined(distributed.get_rank(), distributed.get_world_size(), store)

    def _start_journal(self) -> bool:
        """In the local folder; on tmpfs if that takes no lines. False, after one line, where neither does."""
        self._write_process()
        reasons = []
        for base in (paths.local_base().absolute(), paths.tmpfs_base()):
            self.folder = base / self.identity.launch
            try:
                ring_file.private_folder(self.folder)
                if self._journal.start(self.folder / f"{self.identity.proc}.journal"):
                    return True
                reasons.append(f"{self.folder}: no space left")
                self._journal.abandon()
            except (OSError, CaptureError) as error:
                reasons.append(str(error))
        say(f"nothing is recorded in this process: {'; '.join(reasons)}")
        return False

    def _make_ring(self) -> RingFile | None:
        proc, launch = self.identity.proc, self.identity.launch
        try:
            made = ring_file.create(
                f"{proc}.ring", proc, self.folder, paths.tmpfs_base() / launch, ring.DEFAULT_CAPACITY
            )
        except CaptureError as error:
            self.recorder.journal("ring", path=None, capacity=0, is_tmpfs=None, why=str(error))
            say(f"collectives and steps are not recorded in this process: {error}")
            return None
        self.recorder.journal("ring", path=str(made.path), capacity=made.capacity, is_tmpfs=made.is_tmpfs)
        return made

    def _write_process(self) -> None:
        def write() -> None:
            self.recorder.journal("process", **describing.process_line(self.identity, self.joining, self.settings))

        self._guard.run(write)

    def _tick(self) -> None:
        """From the watch thread, every few seconds: what nobody waits for."""
        self._journal.flush()
        if time.monotonic_ns() - self._clock_ns > clock.PERIOD_SECONDS * 1e9:
            self._tick_clock()
        if self.joining.is_pending:
            self.joining.poll()
        elif self.joining.run is None and time.monotonic() - self._attached_s > SOLO_SECONDS:
            self.joining.bind_alone()
        self._describe_run()
        if self.settings.agent == "thread" and self.recorder.ring is not None:
            ring_file.keep_lock(self.recorder.ring)

    def _tick_clock(self) -> None:
        self._clock_ns = time.monotonic_ns()
        row = clock.read_clock().row(self.identity.boot_id)
        self.recorder.journal("clock", **row, store_round_trip_ns=self.joining.round_trip_ns)

    def _describe_run(self) -> None:
        """Rank 0 tells what the run is: once, and again where it was alone at first and has joined others since."""
        rank, world_size, run = self.joining.seat
        if run is not None and rank == 0 and self._described != (run.run_id, world_size):
            self._described = run.run_id, world_size
            line = describing.run_line(self.settings, run.run_id, world_size, self._home)
            self.recorder.journal("run", **line)
            for row in describing.artifact_rows(self.settings, self.identity, line, self._home):
                self.recorder.journal("row", table="artifact", row=row)

    def _end(self) -> None:
        self._guard.run(self.joining.last_chance)
        self._guard.run(self.joining.bind_alone)
        self._guard.run(self._describe_run)
        self._guard.run(self._tick_clock)
        self.recorder.journal("exit", num_records=self.recorder.num_records(), error=self._error or ending.printed())
        if self._watch is not None:
            self._watch.finish()

    def _finish_in_child(self) -> None:
        self._error = ending.passing() or ""
        self.finish()

    def _begin_in_child(self) -> None:
        self._identify()
        self.recorder.reborn()

    def forked(self) -> None:
        """In a forked child: nothing of the parent's lives on; see `joined`."""
        self._is_fork, self._watch, self._described, self._ordinal = True, None, None, 0
        self.joining.forked()


def _home() -> Path:
    """The working folder; where that was deleted under the process, the one for temporary files."""
    try:
        return Path.cwd()
    except OSError:
        return paths.local_base().absolute() if os.path.isabs(paths.local_base()) else Path("/")


def _is_loader_worker() -> bool:
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return worker is not None and getattr(worker, "_worker_info", None) is not None


def _at_multiprocessing_exit(finish: Any) -> None:
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, finish, exitpriority=FINALIZER_PRIORITY)


def _forked() -> None:
    for session in list(_live):
        session.forked()


_live: "weakref.WeakSet[Session]" = weakref.WeakSet()
os.register_at_fork(after_in_child=_forked)
