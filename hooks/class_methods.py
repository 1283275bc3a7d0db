"""Source 1: operations that Python issues. Every such call, however it was imported, ends in a `ProcessGroup` method.

The methods are replaced on the class; the raw entries are kept, for a method read through the class no longer binds. A
call that is on its way marks its thread, so that the kernel or native hook behind it lets it pass. Where the dispatcher
kernel is installed (tier 2) its key is excluded for all_reduce, which was measured to leave version counters as they
are (all_gather does not: there the kernel is entered and passes through, about 20 us).

Torch 2.6+. Cost of a row: about 10 us (benchmarks/overhead.py). Cannot see: what C++ issues.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from .base import UNTIMED_MASK, Guard, now_ns, patch
from .coalescing import watch_coalescing
from .completion import LAYOUT, can_be_polled
from .issue import Begin, Begun, beginner
from .ledger import Ledger
from .operations import METHODS, Method

UNCHANGED_BY_EXCLUSION: Final = frozenset({"allreduce"})
"""Methods whose version counters do not change when ADInplaceOrView is excluded (tests/hooks/test_harmless.py)."""

Finish = Callable[[Begun, Any, int, int], None]


def install(ledger: Ledger, guard: Guard, undo: ExitStack, *, beside_kernel: bool) -> None:
    """Replace the methods until `undo` closes. beside_kernel: the dispatcher kernel is installed too."""
    from torch.distributed import ProcessGroup

    for name, method in METHODS.items():
        if name in vars(ProcessGroup):
            make = _excluding if beside_kernel and name in UNCHANGED_BY_EXCLUSION else _marking
            begin, finish = beginner(ledger, guard, method), _finisher(ledger, guard, method)
            callee = getattr(ProcessGroup, name)  # a plain builtin: called with the group, it needs no binding
            wrapper = make(ledger, guard, begin, finish, callee)
            patch(ProcessGroup, name, lambda _, wrapper=wrapper: wrapper, undo)
    watch_coalescing(ledger, guard, undo)


def _marking(ledger: Ledger, guard: Guard, begin: Begin, finish: Finish, original: Any) -> Any:
    recorder, thread = ledger.recorder, ledger.thread

    def issue(pg: Any, *args: Any, **kwargs: Any) -> Any:
        if thread.inside or guard.is_off or not recorder.is_on:
            return original(pg, *args, **kwargs)
        guard.calls = calls = guard.calls + 1
        entered = 0 if calls & UNTIMED_MASK else guard.sample()
        begun = begin(pg, args, kwargs)
        if begun is None:  # nothing real, or our failure
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


def _excluding(ledger: Ledger, guard: Guard, begin: Begin, finish: Finish, original: Any) -> Any:
    """As `_marking`; instead of marking the thread the kernel's key is excluded, so that it is not even entered."""
    from torch._C import DispatchKey, _dispatch_tls_is_dispatch_key_excluded, _dispatch_tls_set_dispatch_key_excluded

    is_excluded, set_excluded = _dispatch_tls_is_dispatch_key_excluded, _dispatch_tls_set_dispatch_key_excluded
    key, recorder, thread = DispatchKey.ADInplaceOrView, ledger.recorder, ledger.thread
    marking = _marking(ledger, guard, begin, finish, original)

    def issue(pg: Any, *args: Any, **kwargs: Any) -> Any:
        if thread.inside or guard.is_off or not recorder.is_on:
            return original(pg, *args, **kwargs)
        group = ledger.registry.by_id.get(id(pg))
        if group is None or not group.is_cpp or is_excluded(key):
            return marking(pg, *args, **kwargs)
        guard.calls = calls = guard.calls + 1
        entered = 0 if calls & UNTIMED_MASK else guard.sample()
        begun = begin(pg, args, kwargs)
        if begun is None:
            return original(pg, *args, **kwargs)
        called = now_ns() if entered else 0
        set_excluded(key, True)
        try:
            work = original(pg, *args, **kwargs)
        except BaseException:
            ledger.failed(begun[0], guard)
            raise
        finally:
            set_excluded(key, False)
        finish(begun, work, entered, called)
        return work

    return issue


def _finisher(ledger: Ledger, guard: Guard, method: Method) -> Finish:
    poke, thread, completion, device = ledger.recorder.poke, ledger.thread, ledger.completion, ledger.device
    pollable = {is_gloo: can_be_polled(method.op, is_gloo) for is_gloo in (True, False)}

    def finish(begun: Begun, work: Any, entered: int, called: int) -> None:
        try:
            returned = now_ns()
            record, issued, group, is_host, is_async, mark = begun
            poke(LAYOUT, record, "returned_ns", returned)
            if mark is not None:
                device.end(mark, record, issued, is_wait=False)
            if work is None:
                if is_host and not thread.coalescing:
                    completion.returned(record, issued, returned)
            elif is_host and not is_async:
                completion.will_wait(thread, work, record)
            else:
                completion.issued(work, ((record, issued),), is_host, is_host and pollable[group.is_gloo])
            if entered:
                guard.leave(entered, returned - called)
        except Exception as error:  # noqa: BLE001 - the guard's
            guard.failed(error)

    return finish
