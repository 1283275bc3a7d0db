"""Where the parts of a run are computed: in this process, by a pool of processes, or on a Ray cluster.

All speak the interface of `concurrent.futures.Executor`, get the same tasks and give the same rows; results are taken
in the order of the tasks, so the answer is the same to the last bit. A part that a dead worker leaves behind is done
anew: by Ray on another node, of a broken pool in this process. Workers read the run's files themselves: on a cluster
its address must mean the same everywhere (a shared file system or an object store).

A pool is started only for a run of at least POOL_ROWS rows: its processes cost about a second before they begin. They
are spawned, not forked, since this process has threads.
"""

import ctypes
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import pyarrow as pa

from rankscope.schema.errors import SettingsError

from .part import Part
from .parts import Task
from .relations import offer

if TYPE_CHECKING:
    from .run import Run

AUTO, LOCAL, POOL, RAY = "auto", "local", "pool", "ray"
POOL_ROWS: Final = 4_000_000
"""Rows from which a pool of processes is worth its start."""
_MEMORY_BYTES: Final = 2_000_000_000
"""What all workers of a pool may hold in DuckDB before they spill."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's malloc.h."""

P = ParamSpec("P")
T = TypeVar("T")
Contribution = dict[str, pa.Table]
"""Rows of each partial's table."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Where to compute. kind: AUTO, LOCAL, POOL or RAY. address: of the Ray cluster; empty: one on this machine."""

    kind: str = LOCAL
    address: str = ""

    @classmethod
    def parse(cls, text: str) -> "Engine":
        """From `auto`, `local`, `pool`, `ray` or `ray:ADDRESS`. Raises SettingsError."""
        kind, _, address = text.partition(":")
        if kind not in (AUTO, LOCAL, POOL, RAY) or (address and kind != RAY):
            raise SettingsError(f"no engine {text!r}: auto, local, pool, ray or ray:ADDRESS")
        return cls(kind, address)

    def chosen(self, num_rows: int, num_cpus: int) -> "Engine":
        """What AUTO means for so many rows."""
        if self.kind != AUTO:
            return self
        return Engine(POOL if num_rows >= POOL_ROWS and num_cpus > 1 else LOCAL)


IN_PROCESS: Final = Engine(LOCAL)


def run_tasks(run: "Run", tasks: list[Task]) -> Iterator[Contribution]:
    """What each task contributes, in their order. Raises what reading a file raises, or SettingsError."""
    num_rows = sum(item.num_rows for task in tasks for item in task.sealed)
    num_workers = run.threads or num_cpus()
    engine = run.engine.chosen(num_rows, num_workers)
    if engine.kind == POOL:
        keep_memory()
    if engine.kind == LOCAL and len(tasks) == 1 and tasks[0].is_whole_run:
        part = Part(tasks[0], run.connection)
        try:
            yield contribute(part)
        finally:
            part.withdraw()
        return
    threads = num_workers if engine.kind == LOCAL else 1
    memory_limit = f"{_MEMORY_BYTES // (1 if engine.kind == LOCAL else num_workers)}B"
    with _executor(engine, min(num_workers, len(tasks))) as executor:
        futures = [executor.submit(run_task, task, threads, memory_limit) for task in tasks]
        for task, future in zip(tasks, futures, strict=True):
            try:
                yield future.result()
            except BrokenExecutor:
                yield run_task(task, threads, memory_limit)


def run_task(task: Task, threads: int, memory_limit: str) -> Contribution:
    """Open the part of `task`, compute its partials, close it."""
    with Part.open(task, threads, memory_limit) as part:
        return contribute(part)


def contribute(part: Part) -> Contribution:
    """What an open part contributes to each partial of its task."""
    for name, rows in part.task.given.items():
        part.offer(name, rows)
    offer(part, (name for item in part.task.partials for name in item.relations))
    return {item.table: part.contribution(item) for item in part.task.partials}


def num_cpus() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_memory() -> None:
    """Let this process keep what it frees: parts are alike, and a page given back costs as much as reading it anew.

    Of the C library's allocator; does nothing where that is not glibc.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    change = getattr(ctypes.CDLL(None), "mallopt", None)
    if change is not None:
        change(_M_MMAP_THRESHOLD, 1 << 30)
        change(_M_TRIM_THRESHOLD, (1 << 31) - 1)


class InProcess(Executor):
    """Runs each call at once, in this thread."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """A future that is done."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 -- an executor hands on whatever its call raises
            future.set_exception(error)
        return future


class RayExecutor(Executor):
    """Ray tasks behind the interface of executors. Ray itself runs a task again whose worker or node was lost."""

    def __init__(self, address: str) -> None:
        try:
            import ray
        except ImportError as error:
            raise SettingsError("the engine ray needs Ray: pip install 'rankscope[ray]'") from error
        self._ray: Any = ray
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            ray.init(address=address or None, log_to_driver=False, include_dashboard=False if not address else None)
        self._call: Any = ray.remote(max_retries=-1)(_call)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """The future of a Ray task."""
        future: Future[T] = self._call.remote(fn, args, kwargs).future()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, if this object joined it."""
        if self._is_ours:
            self._ray.shutdown()


def _call(function: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
    return function(*args, **kwargs)


def _executor(engine: Engine, num_workers: int) -> AbstractContextManager[Executor]:
    if engine.kind == POOL:
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(num_workers, mp_context=context, initializer=keep_memory)
    return RayExecutor(engine.address) if engine.kind == RAY else InProcess()
