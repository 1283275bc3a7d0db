"""What a training gets from its data loaders: the wait for every batch, batches ready, workers, and which samples.

How: `_BaseDataLoaderIter.__next__` (both kinds of loader) times the wait and writes a row of sample_batch;
`_next_index` sees the indices when they are drawn, and keeps their order-free digest until that batch is handed over;
`__init__` and `_reset` begin an epoch, whose row of sample_epoch goes to the journal when it ends. Spans of kind data
are written by the phases hook.

A loader is known by its data set, batch size and sampler's class, so one that is made anew for each epoch goes on
counting. Iterable data sets draw no indices: their digest is null, and the row of the epoch says why.

Cost: 18 us a batch and 0.03 us a sample between the loader's own work (`benchmarks/loader.py`; half of that in a loop).
Where that is more than 1 % of the time from batch to batch, not every batch is observed (`loader_budget`).
RANKSCOPE_INDICES=1 keeps the indices: 8 bytes each until the epoch ends. Cannot see: loaders of other libraries; what
workers do with an index.
Source: torch.utils.data.dataloader (2.0 and later).
"""

import os
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from types import FunctionType
from typing import Any, Final

from rankscope.schema.errors import HookUnavailable
from rankscope.schema.ring import layout_of
from rankscope.schema.sample_indices import MODULUS

from .base import UNTIMED_MASK, Guard, Recorder, claim, now_ns, patch
from .dynamo import hide_our_code
from .loader_budget import LoaderBudget
from .loader_epochs import Epoch

MAX_LOADERS: Final = 256
"""Loaders told apart; later ones are "(other)"."""
_OTHER: Final = "(other)"
_LAYOUT: Final = layout_of("sample_batch")
_HALF: Final = MODULUS >> 1
"""Digests from here on are negative as the int64 that tables hold."""


class _Loader:
    """A loader by its data set, batch size and kind of sampler. alive: weak reference to the data set, if possible."""

    __slots__ = ("alive", "name", "num_epochs", "number")

    def __init__(self, name: str, number: int, alive: Any) -> None:
        self.name, self.number, self.alive, self.num_epochs = name, number, alive, 0


class LoaderWatch:
    """Follows the loaders of one process. Its calls may raise: the wrappers' guard takes care."""

    def __init__(self, recorder: Recorder, guard: Guard, *, keeps_indices: bool) -> None:
        self._recorder, self._guard, self._keeps = recorder, guard, keeps_indices
        self._epochs: dict[int, Epoch] = {}
        self._left: list[Epoch] = []
        self._loaders: dict[tuple[int, object, type], _Loader] = {}
        self._num_named: dict[str, int] = {}
        self.budget, self.is_timing, self.index_ns = LoaderBudget(guard), False, 0

    def spent(self, time_ns: int) -> None:
        """What observing one batch took, of those that are timed."""
        if self.budget.spent(time_ns):
            for epoch in self._epochs.values():
                epoch.thin()

    def begin(self, iterator: Any) -> None:
        """A new epoch of `iterator` begins now; one that is still open was left before its end."""
        self.end(iterator, is_exhausted=False)
        self._write_left()
        self.budget.begin()
        self._start(iterator, now_ns())

    def drew(self, iterator: Any, key: Any) -> None:
        """The sampler of `iterator` gave `key`."""
        (self._epochs.get(id(iterator)) or self._start(iterator, 0)).drew(iterator, key)

    def handed_over(self, iterator: Any, asked_ns: int, depth: int, before: Any) -> int:
        """A batch was handed over that was asked for at `asked_ns`, when `depth` were ready. Returns the wait, ns."""
        got_ns = now_ns()
        wait_ns, recorder = got_ns - asked_ns, self._recorder
        epoch = self._epochs.get(id(iterator)) or self._start(iterator, 0)
        num_workers = iterator._num_workers
        if num_workers:
            num_samples, digest = epoch.handed_over(_number(iterator, before))
        else:
            num_samples, digest = epoch.handed_over()
        epoch.end_ns = got_ns
        # In the order of the layout.
        recorder.write(
            _LAYOUT, got_ns, digest if digest < _HALF else digest - MODULUS, wait_ns, recorder.step, epoch.number,
            epoch.loader, num_samples, depth, num_workers,
        )  # fmt: skip
        self._guard.count_row()
        return wait_ns

    def failed(self, iterator: Any, before: Any) -> None:
        """The call raised: that batch is lost, the epoch may go on."""
        epoch = self._epochs.get(id(iterator))
        if epoch is not None:
            epoch.handed_over(*((_number(iterator, before),) if iterator._num_workers else ()))
            epoch.num_batches -= not epoch.is_thinned

    def end(self, iterator: Any, *, is_exhausted: bool) -> None:
        """The epoch of `iterator` is over, if there is one: exhausted, or left."""
        epoch = self._epochs.pop(id(iterator), None)
        if epoch is None:
            return
        if epoch.is_thinned and is_exhausted:
            epoch.num_batches = iterator._num_yielded
        self._write(epoch, is_exhausted=is_exhausted)

    def close(self) -> None:
        """Write the epochs that are still open, as incomplete."""
        self._left += self._epochs.values()
        self._epochs.clear()
        self._write_left()

    def _write_left(self) -> None:
        while self._left:
            self._write(self._left.pop(0), is_exhausted=False)

    def _write(self, epoch: Epoch, *, is_exhausted: bool) -> None:
        if is_exhausted:
            epoch.end_ns = now_ns()
        row = epoch.row(self._recorder.step, is_exhausted=is_exhausted)
        self._recorder.journal("row", table="sample_epoch", row=row)

    def _gone(self, key: int, reference: Any) -> None:
        """The iterator was left by `break` and deleted. Nothing is written here: this may run inside a collection."""
        epoch = self._epochs.get(key)
        if epoch is not None and epoch.reference is reference:
            self._left.append(self._epochs.pop(key))

    def _start(self, iterator: Any, start_ns: int) -> Epoch:
        loader = self._loader(iterator)
        epoch = Epoch(iterator, loader.number, loader.name, loader.num_epochs, start_ns, keeps=self._keeps)
        loader.num_epochs += 1
        key = id(iterator)
        epoch.reference = weakref.ref(iterator, lambda reference: self._gone(key, reference))
        self._epochs[key] = epoch
        return epoch

    def _loader(self, iterator: Any) -> _Loader:
        dataset, sampler = iterator._dataset, iterator._index_sampler
        key = (id(dataset), getattr(sampler, "batch_size", None), type(getattr(sampler, "sampler", sampler)))
        found = self._loaders.get(key)
        if found is None or found.alive() is not dataset:
            found = self._loaders[key] = self._new_loader(dataset)
        return found

    def _new_loader(self, dataset: Any) -> _Loader:
        kind = type(dataset).__name__
        ordinal = self._num_named[kind] = self._num_named.get(kind, -1) + 1
        name = f"{kind}#{ordinal}" if ordinal else kind
        if sum(self._num_named.values()) >= MAX_LOADERS:
            name = _OTHER
            self._loaders.clear()
        try:
            alive: Any = weakref.ref(dataset)
        except TypeError:  # lists, tuples, classes with slots: known by their id alone
            alive = lambda: dataset  # noqa: E731
        return _Loader(name, self._recorder.intern(name), alive)


def install(recorder: Recorder, undo: ExitStack) -> None:
    """See `base.Hook`. Raises HookUnavailable without torch."""
    try:
        from torch.utils.data.dataloader import _BaseDataLoaderIter as base
    except ImportError as error:
        raise HookUnavailable(f"data_loading: {error}") from error
    if not claim("data_loading", undo):
        return
    guard = Guard(recorder, "data_loading")
    watch = LoaderWatch(recorder, guard, keeps_indices=os.environ.get("RANKSCOPE_INDICES", "").strip() == "1")
    undo.callback(_close, watch, guard)
    patch(base, "__init__", lambda original: _wrap_init(original, watch, guard), undo)
    patch(base, "_reset", lambda original: _wrap_reset(original, watch, guard), undo)
    patch(base, "_next_index", lambda original: _wrap_index(original, watch, guard), undo)
    patch(base, "__next__", lambda original: _wrap_next(original, watch, guard), undo)
    hide_our_code()


def _wrap_init(original: Callable[..., Any], watch: LoaderWatch, guard: Guard) -> Callable[..., Any]:
    told, begin = _told, watch.begin  # not globals: it has those of torch

    def init(iterator: Any, *args: Any, **kwargs: Any) -> None:
        original(iterator, *args, **kwargs)
        told(guard, begin, iterator)

    return _as_if_beside(original, init)


def _as_if_beside(original: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """`wrapper` with the file and module of `original`: a warning that torch gives for its caller stays torch's, and so
    meets the filters that the user has for it.
    """
    if not isinstance(original, FunctionType) or not isinstance(wrapper, FunctionType):
        return wrapper
    code = wrapper.__code__.replace(co_filename=original.__code__.co_filename)
    return FunctionType(code, original.__globals__, wrapper.__name__, wrapper.__defaults__, wrapper.__closure__)


def _wrap_reset(original: Callable[..., Any], watch: LoaderWatch, guard: Guard) -> Callable[..., Any]:
    def reset(iterator: Any, loader: Any, first_iter: bool = False) -> None:
        original(iterator, loader, first_iter)
        if not first_iter:  # the first one belongs to __init__
            _told(guard, watch.begin, iterator)

    return reset


def _told(guard: Guard, tell: Callable[[Any], None], iterator: Any) -> None:
    if guard.is_off or not guard.recorder.is_on:
        return
    try:
        tell(iterator)
    except Exception as error:  # noqa: BLE001
        guard.failed(error)


def _wrap_index(original: Callable[..., Any], watch: LoaderWatch, guard: Guard) -> Callable[..., Any]:
    recorder, drew, budget = guard.recorder, watch.drew, watch.budget

    def next_index(iterator: Any) -> Any:
        key = original(iterator)
        if budget.mask or guard.is_off or not recorder.is_on:  # the mask first: while it is set every check counts
            return key
        entered = now_ns() if watch.is_timing else 0
        try:
            drew(iterator, key)
        except Exception as error:  # noqa: BLE001
            guard.failed(error)
        if entered:
            watch.index_ns += now_ns() - entered
        return key

    return next_index


def _wrap_next(original: Callable[..., Any], watch: LoaderWatch, guard: Guard) -> Callable[..., Any]:
    recorder, handed_over, budget = guard.recorder, watch.handed_over, watch.budget

    def next_batch(iterator: Any) -> Any:
        if iterator._num_yielded & budget.mask:  # first, since here every check counts; 0 in a job that trains
            try:
                return original(iterator)
            except BaseException as error:
                _ended(watch, guard, iterator, None, error)
                raise
        if guard.is_off or not recorder.is_on:
            return original(iterator)
        guard.calls = calls = guard.calls + 1  # as `enter` does, for a call less
        entered = 0 if calls & UNTIMED_MASK else guard.sample()
        watch.is_timing, watch.index_ns = entered > 0, 0
        before, depth = (_before(iterator), _depth(iterator)) if iterator._num_workers else (None, -1)
        asked_ns = now_ns()
        try:
            batch = original(iterator)
        except BaseException as error:
            _ended(watch, guard, iterator, before, error)
            raise
        if not guard.is_off:
            try:
                wait_ns = handed_over(iterator, asked_ns, depth, before)
                if entered:
                    loading_ns = wait_ns - watch.index_ns  # the index is drawn inside the loader's own call
                    guard.leave(entered, loading_ns)
                    watch.spent(now_ns() - entered - loading_ns)
            except Exception as error:  # noqa: BLE001
                guard.failed(error)
        return batch

    return next_batch


def _ended(watch: LoaderWatch, guard: Guard, iterator: Any, before: Any, why: BaseException) -> None:
    try:
        if isinstance(why, StopIteration):
            watch.end(iterator, is_exhausted=True)
        else:
            watch.failed(iterator, before)
    except Exception as error:  # noqa: BLE001
        guard.failed(error)


def _close(watch: LoaderWatch, guard: Guard) -> None:
    try:
        watch.close()
    except Exception as error:  # noqa: BLE001
        guard.failed(error)


def _depth(iterator: Any) -> int:
    """Batches that wait to be taken: in the queue, and taken out of turn. -1 without workers, or where nobody says."""
    queue = getattr(iterator, "_data_queue", None)
    if queue is None:
        return -1
    try:
        return int(queue.qsize()) + sum(len(info) == 2 for info in iterator._task_info.values())
    except Exception:  # noqa: BLE001  no such call on macOS; a closed queue
        return -1


def _before(iterator: Any) -> Any:
    """The batches on their way, where they may be handed over out of order."""
    return None if getattr(iterator, "_in_order", True) else set(iterator._task_info)


def _number(iterator: Any, before: Any) -> int:
    """The number of the batch that was just handed over by workers."""
    if before is not None:
        return next(iter(before - set(iterator._task_info)), -1)
    return int(iterator._rcvd_idx) - 1
