"""An all_reduce of one dense tensor on a host backend: most operations of most trainings, and the measure of our cost.

Everything that `class_methods` does for any operation, for this one without a detour: 4 Python frames instead of 12. A
call that is not exactly this (other arguments, nested, coalesced, a device, a subclass) takes the general way. The file
exists for its cost: 1.35 times a bare 1-rank gloo all_reduce is the limit (benchmarks/overhead.py).
"""

from typing import Any, Final

from rankscope.schema.enums import code

from .base import UNTIMED_MASK, now_ns
from .completion import LAYOUT
from .groups import Group
from .ledger import DTYPE_OTHER, Ledger
from .row_guard import RowGuard

_OP: Final = code("op", "all_reduce")
_TIER: Final = code("tier", "class")


def fast_all_reduce(  # noqa: C901, PLR0915 - one function, because calls are what costs
    ledger: Ledger, guard: RowGuard, general: Any, original: Any, *, excludes: bool
) -> Any:
    """A stand-in for `ProcessGroup.allreduce`. general: the wrapper for any operation; original: the builtin.

    excludes: keep the call out of the dispatcher kernel by its key, which leaves version counters as they are
    (tests/system/test_harmless.py); else the thread is marked, for native hooks.
    """
    from torch import Tensor
    from torch._C import DispatchKey, _dispatch_tls_is_dispatch_key_excluded, _dispatch_tls_set_dispatch_key_excluded

    is_excluded, set_excluded = _dispatch_tls_is_dispatch_key_excluded, _dispatch_tls_set_dispatch_key_excluded
    key, dtypes, reduction_of, open_ = DispatchKey.ADInplaceOrView, ledger.dtypes, ledger.reduction, ledger.open
    recorder, thread, completion, by_id = ledger.recorder, ledger.thread, ledger.completion, ledger.registry.by_id
    polls, works, poke = completion.polls, completion.works, recorder.poke

    def shadowed(pg: Any, args: tuple[Any, ...], group: Group) -> Any:
        group.take()
        if excludes:
            set_excluded(key, True)
        else:
            thread.inside = True
        try:
            return original(pg, *args)
        finally:
            if excludes:
                set_excluded(key, False)
            else:
                thread.inside = False

    def allreduce(pg: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: C901, PLR0912, PLR0915
        group = by_id.get(id(pg))
        if group is None or not group.is_plain or guard.is_off or not recorder.is_on or thread.inside:
            return general(pg, *args, **kwargs)
        try:
            ((tensor,), options) = args
            if type(tensor) is not Tensor or kwargs or (excludes and is_excluded(key)):
                return general(pg, *args, **kwargs)
            size, is_async, reduction = tensor.nbytes, options.asyncOp, reduction_of(options.reduceOp)
            dtype = dtypes.get(tensor.dtype, DTYPE_OTHER)
        except Exception:  # noqa: BLE001 - another overload, a sparse tensor, a wrong call: the general way knows them
            return general(pg, *args, **kwargs)
        if recorder.is_shadow:
            return shadowed(pg, args, group)
        entered = called = 0
        try:
            guard.calls = calls = guard.calls + 1
            if not calls & UNTIMED_MASK:
                entered = guard.sample()
            if polls:
                completion.poll()
            issued = now_ns()
            record = open_(
                LAYOUT, size, size, issued, recorder.step, group.number, group.take(), -1, -1, -1, 0, -1, -1, -1,
                _OP, reduction, dtype, is_async, 0, recorder.phase, _TIER,
            )  # fmt: skip
            called = now_ns() if entered else 0
        except Exception as error:  # noqa: BLE001 - the guard's
            guard.failed(error)
            return original(pg, *args)
        if excludes:
            set_excluded(key, True)
        else:
            thread.inside = True
        try:
            work = original(pg, *args)
        except BaseException:
            ledger.failed(record, guard)
            raise
        finally:
            if excludes:
                set_excluded(key, False)
            else:
                thread.inside = False
        try:
            returned = now_ns()
            if is_async:
                poke(LAYOUT, record, "returned_ns", returned)
                completion.issued(work, ((record, issued, returned),), True, True)
            else:
                works[id(work)] = (record, returned)
            if entered:
                guard.leave(entered, returned - called)
        except Exception as error:  # noqa: BLE001 - the guard's
            guard.failed(error)
        return work

    return allreduce
