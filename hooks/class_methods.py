"""Source 1: operations that Python issues. Every such call, however it was imported, ends in a `ProcessGroup` method.

The methods are replaced on the class; the raw entries are kept, for a method read through the class no longer binds. A
call that is on its way marks its thread, so that the kernel or native hook behind it lets it pass: a kernel takes about
20 us for that. Only `all_reduce` keeps out of it by excluding its key: other operations would lose version counts.

Torch 2.6+. Cost of a row: about 10 us (benchmarks/overhead.py). Cannot see: what C++ issues.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from .all_reduce import fast_all_reduce
from .base import UNTIMED_MASK, now_ns, patch
from .coalescing import watch_coalescing
from .completion import LAYOUT, can_be_polled
from .issue import Begun, beginner, counter
from .ledger import Ledger
from .operations import METHODS, Method
from .row_guard import RowGuard

Finish = Callable[[Begun, Any, int, int], None]


def install(ledger: Ledger, guard: RowGuard, undo: ExitStack, *, beside_kernel: bool) -> None:
    """Replace the methods until `undo` closes. beside_kernel: the dispatcher kernel is installed too."""
    from torch.distributed import ProcessGroup

    for name, method in METHODS.items():
        if name in vars(ProcessGroup):
            original = getattr(ProcessGroup, name)  # a plain builtin: called with the group, it needs no binding
            wrapper = _marking(ledger, guard, method, original)
            if name == "allreduce":
                wrapper = fast_all_reduce(ledger, guard, wrapper, original, excludes=beside_kernel)
            patch(ProcessGroup, name, partial(_instead, wrapper), undo)
    watch_coalescing(ledger, guard, undo)


def _instead(wrapper: Any, _original: Any) -> Any:
    return wrapper


def _marking(ledger: Ledger, guard: RowGuard, method: Method, original: Any) -> Any:
    recorder, thread, finish = ledger.recorder, ledger.thread, _finisher(ledger, guard, method)
    begin, shadowed = beginner(ledger, guard, method), _shadowed(ledger, guard, method, original)

    def issue(pg: Any, *args: Any, **kwargs: Any) -> Any:
        if thread.inside or guard.is_off or not recorder.is_on:
            return original(pg, *args, **kwargs)
        if recorder.is_shadow:
            return shadowed(pg, *args, **kwargs)
        guard.calls = calls = guard.calls + 1
        entered = 0 if calls & UNTIMED_MASK else guard.sample()
        begun = begin(pg, args, kwargs)
        if begun is None:  # nothing real, or our failure
            guard.num_rowless += 1
            return original(pg, *args, **kwargs)
        called = now_ns() if entered else 0
        thread.inside = True
        try:
            work = original(pg, *args, **kwargs)
        except BaseException:
            ledger.failed(begun[0], guard)
            raise
        finally:
            thread.inside = False
        finish(begun, work, entered, called)
        return work

    return issue


def _shadowed(ledger: Ledger, guard: RowGuard, method: Method, original: Any) -> Any:
    """The call in a shadow step: counted, and marked so that nobody below counts it again."""
    thread, count = ledger.thread, counter(ledger, method)

    def issue(pg: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            count(pg, args, kwargs)
        except Exception as error:  # noqa: BLE001 - the guard's
            guard.failed(error)
        thread.inside = True
        try:
            return original(pg, *args, **kwargs)
        finally:
            thread.inside = False

    return issue


def _finisher(ledger: Ledger, guard: RowGuard, method: Method) -> Finish:
    poke, thread, completion, device = ledger.recorder.poke, ledger.thread, ledger.completion, ledger.device
    pollable = {is_gloo: can_be_polled(method.op, is_gloo) for is_gloo in (True, False)}

    def finish(begun: Begun, work: Any, entered: int, called: int) -> None:
        try:
            returned = now_ns()
            record, issued, group, is_host, is_async, mark = begun
            if mark is not None:
                device.end(mark, record, issued, is_wait=False)
            if is_host and not is_async and work is not None:
                completion.works[id(work)] = (record, returned)
            else:
                poke(LAYOUT, record, "returned_ns", returned)
                rows = ((record, issued, returned),)
                if work is not None:
                    completion.issued(work, rows, is_host, is_host and pollable[group.is_gloo])
                elif thread.coalescing:
                    thread.batch += rows
                elif is_host:
                    completion.returned(record, issued, returned)
            if entered:
                guard.leave(entered, returned - called)
        except Exception as error:  # noqa: BLE001 - the guard's
            guard.failed(error)

    return finish
