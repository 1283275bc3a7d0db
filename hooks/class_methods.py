"""Source 1: operations that Python issues. Every such call, however it was imported, ends in a method of `ProcessGroup`.

The methods are replaced on the class; the raw entries are kept, for a method read through the class no longer binds. A
call that is on its way marks its thread, so that the kernel or native hook behind it lets it pass. Where the dispatcher
kernel is installed (tier 2) its key is excluded for all_reduce, which was measured to leave version counters as they are
(all_gather does not: there the kernel is entered and passes through, about 20 us).

Torch 2.6+. Cost on a 1-element gloo all_reduce: see benchmarks/overhead.py. Cannot see: what C++ issues.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from rankscope.schema.enums import code

from .base import Guard, now_ns, patch
from .completion import LAYOUT, can_be_polled
from .groups import Group
from .ledger import NOBODY, Ledger
from .operations import METHODS, Method, bytes_of, first_tensor, positional

UNCHANGED_BY_EXCLUSION: Final = frozenset({"allreduce"})
"""Methods whose version counters do not change when ADInplaceOrView is excluded (tests/hooks/test_version_counters.py)."""
TIER: Final = code("tier", "class")


def install(ledger: Ledger, guard: Guard, undo: ExitStack, *, beside_kernel: bool) -> None:
    """Replace the methods until `undo` closes. beside_kernel: the dispatcher kernel is installed too."""
    from torch.distributed import ProcessGroup

    for name, method in METHODS.items():
        if name in vars(ProcessGroup):
            make = _maker(ledger, guard, method, beside_kernel and name in UNCHANGED_BY_EXCLUSION)
            patch(ProcessGroup, name, lambda raw, make=make, name=name: make(getattr(ProcessGroup, name)), undo)
    _watch_coalescing(ledger, guard, ProcessGroup, undo)


def _maker(ledger: Ledger, guard: Guard, method: Method, excludes: bool) -> Callable[[Any], Any]:  # noqa: C901
    from torch._C import DispatchKey, _dispatch_tls_is_dispatch_key_excluded, _dispatch_tls_set_dispatch_key_excluded

    key, set_excluded = DispatchKey.ADInplaceOrView, _dispatch_tls_set_dispatch_key_excluded
    is_excluded = _dispatch_tls_is_dispatch_key_excluded
    recorder, thread, completion, device = ledger.recorder, ledger.thread, ledger.completion, ledger.device
    begin, by_id, learn, polls = _beginner(ledger, method), ledger.registry.by_id, ledger.registry.learn, completion.polls
    pollable = frozenset(is_gloo for is_gloo in (True, False) if can_be_polled(method.op, is_gloo))

    def make(original: Any) -> Any:
        def issue(pg: Any, *args: Any, **kwargs: Any) -> Any:
            if thread.inside or guard.is_off or not recorder.is_on:
                return original(pg, *args, **kwargs)
            entered, began, mark = guard.enter(), None, None
            try:
                if polls:
                    completion.poll()
                if device.is_active:
                    device.resolve()
                group = by_id.get(id(pg))
                if group is None or not group.is_written:
                    group = learn(pg)
                began = begin(group, args, kwargs)
                if device.is_active and began is not None and began[2] is not None and began[2].is_cuda:
                    mark = device.begin()
            except Exception as error:  # noqa: BLE001 - the guard's
                guard.failed(error)
            if began is None:  # nothing real, or our failure
                return original(pg, *args, **kwargs)
            assert group is not None
            called = now_ns() if entered else 0
            skips = excludes and group.is_cpp and not is_excluded(key)
            thread.inside = True
            try:
                if skips:
                    set_excluded(key, True)
                work = original(pg, *args, **kwargs)
            except BaseException:
                _fail(completion, guard, began[0])
                raise
            finally:
                if skips:
                    set_excluded(key, False)
                thread.inside = False
            try:
                returned = now_ns()
                finish(group, began, work, returned, mark)
                if entered:
                    guard.leave(entered, returned - called)
            except Exception as error:  # noqa: BLE001 - the guard's
                guard.failed(error)
            return work

        return issue

    def finish(group: Group, began: tuple[int, int, Any, bool], work: Any, returned: int, mark: Any) -> None:
        record, issued, tensor, is_async = began
        recorder.poke(LAYOUT, record, "returned_ns", returned)
        is_host = group.is_host or tensor is None or not tensor.is_cuda
        if mark is not None:
            device.end(mark, record, issued, is_wait=False)
        if work is not None:
            completion.issued(work, (record,), issued, is_host, is_async and is_host and group.is_gloo in pollable)
        elif not thread.coalescing and is_host:
            completion.returned(record, issued, returned)

    return make


def _beginner(ledger: Ledger, method: Method) -> Callable[..., tuple[int, int, Any, bool] | None]:
    """(group, args, kwargs) -> (record, issued_ns, first tensor, is_async), or None if it never reaches a backend."""
    op, inputs, outputs, options = code("op", method.op), method.inputs, method.outputs, method.options
    write, plain, read_reduction, get_root = ledger.write, ledger.plain, ledger.reduction, method.has_root
    is_send, is_recv, has_reduction = method.op == "send", method.op == "recv", method.has_reduction
    is_anysource = is_recv and len(method.names) == 2  # noqa: PLR2004 - tensors and tag

    def begin(group: Group, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, int, Any, bool] | None:
        if kwargs or len(args) <= options:
            args = positional(method, args, kwargs)
        tensor = None
        if outputs >= 0:
            source, target = args[inputs], args[outputs]
            tensor = first_tensor(source)
            if tensor is None:
                tensor = first_tensor(target)
            if type(tensor) not in plain and not ledger.is_real(tensor):
                return None
        issued = now_ns()
        peer, chosen, is_async = NOBODY, None, True
        if is_send or is_recv:
            peer = transfer(group, args)
            seq = group.take_transfer(*peer)
            sizes = (bytes_of(source), 0) if is_send else (0, bytes_of(target))
        else:
            seq = group.take()
            chosen = args[options] if options >= 0 else None
            is_async = bool(getattr(chosen, "asyncOp", True)) if chosen is not None else options >= 0
            sizes = (0, 0) if outputs < 0 else both(source, target)
            if get_root:
                peer = (group.global_rank(getattr(chosen, "rootRank", 0)), -1, -1)
        reduction = read_reduction(getattr(chosen, "reduceOp", chosen)) if has_reduction and chosen is not None else 0
        record = write(group, seq, issued, op, TIER, tensor, sizes, reduction, peer, is_async)
        return record, issued, tensor, is_async

    def both(source: Any, target: Any) -> tuple[int, int]:
        size = bytes_of(source)
        return size, size if target is source else bytes_of(target)

    def transfer(group: Group, args: tuple[Any, ...]) -> tuple[int, int, int]:
        if is_anysource:
            return -1, group.rank, int(args[1])
        other = group.global_rank(int(args[1]))
        return (group.rank, other, int(args[2])) if is_send else (other, group.rank, int(args[2]))

    return begin


def _fail(completion: Any, guard: Guard, record: int) -> None:
    try:
        completion.failed(record)
    except Exception as error:  # noqa: BLE001 - the guard's
        guard.failed(error)


def _watch_coalescing(ledger: Ledger, guard: Guard, process_group: Any, undo: ExitStack) -> None:
    """Operations between `_start_coalescing` and `_end_coalescing` share a number and the one work they end in."""
    thread, completion = ledger.thread, ledger.completion

    def start(original: Any) -> Any:
        def started(pg: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(pg, *args, **kwargs)
            if not guard.is_off:
                thread.coalescing, thread.batch = next(ledger.coalescings), ()
            return result

        return started

    def end(original: Any) -> Any:
        def ended(pg: Any, *args: Any, **kwargs: Any) -> Any:
            batch, thread.coalescing, thread.batch = thread.batch, 0, ()
            work = original(pg, *args, **kwargs)
            if batch and work is not None and not guard.is_off:
                try:
                    completion.issued(work, batch, 0, ledger.registry.learn(pg).is_host, False)
                except Exception as error:  # noqa: BLE001 - the guard's
                    guard.failed(error)
            return work

        return ended

    for name, make in (("_start_coalescing", start), ("_end_coalescing", end)):
        patch(process_group, name, lambda raw, make=make, name=name: make(getattr(process_group, name)), undo)
