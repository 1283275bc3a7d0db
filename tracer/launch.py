"""The watch of one rank: a thread that wakes every few seconds, keeps time, and sees that the node has an agent.

The agent starts 10 s after the attach (a job that ends before starts it at its exit, and does not wait). Whoever gets
the launch folder's lock starts it: the lock is held across the spawn, inherited by the agent, and closed here, so two
ranks never start two. Losers look again every few seconds: restarted ranks always find an agent.

The agent is a process of its own session, without any descriptor of ours but the lock, and not our child (a process
that waits for any child must not meet it): a shell starts it in the background and leaves at once. It inherits the
niceness and the CPUs that the watch thread gives itself. Cost: a few ms, in this thread.

In thread mode local rank 0 runs the agent in a thread of its own. Where another rank outlives it, the first one that
finds the lock free takes over, at the latest at its own exit, which then takes up to THREAD_AGENT_SECONDS.
"""

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from rankscope.schema.liveness import is_alive
from rankscope.schema.paths import AGENT_LOCK, AGENT_LOG

PATIENCE_SECONDS: Final = 10.0
"""Jobs shorter than this start their agent at exit only."""
FIRST_SECONDS: Final = 1.0
PERIOD_SECONDS: Final = 3.0
"""So often the watch looks for an agent; less than once a second, and soon enough for restarted ranks."""
THREAD_AGENT_SECONDS: Final = 4.0
"""How long an exiting rank waits for an agent that runs as its thread."""
NICENESS: Final = 19
_SHELL: Final = "/bin/sh"
_DROPPED: Final = ("PYTHONWARNINGS", "PYTHONINSPECT", "PYTHONDEVMODE", "PYTHONPROFILEIMPORTTIME", "PYTHONSTARTUP")
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ARROW_IO_THREADS": "1"}


class Watch:
    """The watch thread. tick: called each time it wakes; failed: called with an error that a tick raised."""

    def __init__(
        self,
        folder: Path,
        mode: str,
        attached_s: float,
        tick: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """attached_s: time.monotonic() of the attach."""
        self._folder, self._mode, self._tick, self._failed = folder, mode, tick, failed
        self._agent_due_s = attached_s + (PATIENCE_SECONDS if mode == "auto" else 0.0)
        self._is_over, self._stop_agent = threading.Event(), threading.Event()
        self._agent: threading.Thread | None = None
        self._has_seen_agent = os.environ.get("LOCAL_RANK", "0") == "0"
        self._thread = threading.Thread(target=self._run, name="rankscope-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def finish(self, patience: float = 1.0) -> None:
        """The process ends or detaches: let the agent be started if there is none. Returns after a few ms."""
        self._is_over.set()
        self._thread.join(THREAD_AGENT_SECONDS if self._mode == "thread" else patience)
        if self._agent is not None:
            self._stop_agent.set()
            self._agent.join(THREAD_AGENT_SECONDS)

    def _run(self) -> None:
        pause = FIRST_SECONDS if self._mode == "auto" else 0.0
        while not self._is_over.wait(pause):
            left = self._agent_due_s - time.monotonic()
            if left <= 0:
                self._guarded(self.ensure_agent)
            self._guarded(self._tick)
            pause = min(PERIOD_SECONDS, max(left, FIRST_SECONDS)) if left > 0 else PERIOD_SECONDS
        self._guarded(self._be_agent if self._mode == "thread" else self.ensure_agent)

    def ensure_agent(self) -> None:
        """Start the node's agent unless one is there (it holds the lock), or agents are off."""
        is_thread = self._mode == "thread"
        if self._mode == "off" or (is_thread and self._agent is not None):
            return
        if is_thread and not self._has_seen_agent:  # only asked, so that local rank 0 finds the lock free
            self._has_seen_agent = is_alive(str(self._folder / AGENT_LOCK))
            return
        lock = take_lock(self._folder)
        if lock is None:
            return
        try:
            if is_thread:
                self._start_thread(lock)
                lock = -1
            else:
                start_agent(self._folder, lock)
        finally:
            if lock >= 0:
                os.close(lock)

    def _start_thread(self, lock: int) -> None:
        from .agent import NodeAgent

        def work() -> None:
            try:
                self._guarded(lambda: NodeAgent(self._folder, is_live=True).run(self._stop_agent))
            finally:
                os.close(lock)

        self._agent = threading.Thread(target=work, name="rankscope-agent", daemon=True)
        self._agent.start()

    def _be_agent(self) -> None:
        """At the end, in thread mode: whoever outlived the agent seals what is there, in this thread."""
        lock = take_lock(self._folder) if self._agent is None else None
        if lock is None:
            return
        try:
            from .agent import NodeAgent

            self._stop_agent.set()
            NodeAgent(self._folder, is_live=True).run(self._stop_agent)
        finally:
            os.close(lock)

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001
            self._failed(error)


def take_lock(folder: Path) -> int | None:
    """The launch folder's lock as a descriptor to be closed or handed on; None if somebody holds it.

    Raises OSError where the file cannot be opened (a symbolic link is not followed).
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder / AGENT_LOCK, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def start_agent(folder: Path, lock: int) -> None:
    """Start the agent of `folder`, which inherits `lock`. Changes the calling thread's niceness and CPUs.

    Raises OSError where no process can be started.
    """
    _step_aside()
    command = [sys.executable, "-m", "rankscope.tracer.agent", "--folder", str(folder), "--lock-fd", str(lock)]
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    log = os.open(folder / AGENT_LOG, flags, 0o600)
    try:
        subprocess.run(
            [_SHELL, "-c", '"$@" &', "sh", *command], check=False, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            cwd="/", env=agent_environment(os.environ), pass_fds=(lock,), start_new_session=True,
        )  # fmt: skip
    finally:
        os.close(log)


def agent_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The agent's environment: the rank's, with one thread for libraries, and paths that mean the same from "/"."""
    kept = {name: value for name, value in environment.items() if name not in _DROPPED}
    for name in ("RANKSCOPE_DIR", "RANKSCOPE_LOCAL_DIR"):
        if kept.get(name) and "://" not in kept[name]:
            kept[name] = os.path.abspath(kept[name])
    if "PYTHONPATH" in kept:
        kept["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in kept["PYTHONPATH"].split(os.pathsep))
    return kept | _ONE_THREAD


def _step_aside() -> None:
    """Lowest priority, and other CPUs than the ranks' where there are some; children inherit both from the thread."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        mine = os.sched_getaffinity(0)
        everything = set(range(os.cpu_count() or 1))
        os.sched_setaffinity(0, (everything - mine) or everything)
    except OSError:
        return
