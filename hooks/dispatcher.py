"""Source 2 of tier 2: operations that C++ issues, seen by a kernel for the `c10d::` operators that redispatches.

The kernels stand at the ADInplaceOrView key: autograd keys miss functional and compiled collectives, and the backend key
deadlocks (`call_boxed` keeps the GIL). They see the reducer of DDP, functional collectives, DTensor and compiled graphs.
Once registered they are entered by Python-issued operations too, and then only pass through (`Thread.inside`).

A kernel that takes more than 1 % of the time over 100 steps writes rows in one step of two, then of four, and so on; it
goes on counting. Cost: 20 us to be entered, 10 us for a row (benchmarks/overhead.py). Misses: DTensor's own dispatch and
inference mode, which `functional` covers. Torch 2.6..2.13; newer ones have native hooks.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from rankscope.schema.enums import code

from .base import now_ns
from .budget import Budget
from .completion import LAYOUT, can_be_polled
from .groups import Group
from .ledger import NOBODY, Ledger
from .operations import OPERATORS, Operator, bytes_of, first_tensor, operator_of, sparse_code
from .row_guard import RowGuard

TIER: Final = code("tier", "dispatcher")
KEY: Final = "ADInplaceOrView"


def install(ledger: Ledger, guard: RowGuard, undo: ExitStack) -> None:
    """Register the kernels until `undo` closes."""
    import torch

    library = torch.library.Library("c10d", "IMPL")
    undo.callback(library._destroy)
    budget = Budget(ledger.recorder, guard)
    for name, op in OPERATORS.items():
        packet = getattr(torch.ops.c10d, name, None)
        if packet is not None:
            names = [argument.name for argument in packet.default._schema.arguments]
            kernel = _kernel(ledger, guard, budget, operator_of(op, names), packet.default)
            library.impl(name, kernel, KEY, with_keyset=True)


def _kernel(ledger: Ledger, guard: RowGuard, budget: Budget, operator: Operator, target: Any) -> Callable[..., Any]:
    from torch._C import _after_ADInplaceOrView_keyset as below_us
    from torch.distributed import Work

    redispatch = target._handle.redispatch_boxed
    recorder, thread, completion, polls = ledger.recorder, ledger.thread, ledger.completion, ledger.completion.polls
    begin = _beginner(ledger, operator, budget)
    pollable = {is_gloo: can_be_polled(operator.op, is_gloo) for is_gloo in (True, False)}

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        thread.has_fired = True
        if thread.inside or guard.is_off or not recorder.is_on:
            return redispatch(keyset & below_us, *args, **kwargs)
        entered, began = guard.enter(), None
        try:
            if polls:
                completion.poll()
            began = begin(args)
        except Exception as error:  # noqa: BLE001 - the guard's
            guard.failed(error)
        if began is None:
            guard.num_rowless += 1
        called = now_ns() if entered else 0
        thread.inside = True
        try:
            result = redispatch(keyset & below_us, *args, **kwargs)
        except BaseException:
            if began is not None:
                completion.failed(began[0])
            raise
        finally:
            thread.inside = False
        try:
            returned = now_ns()
            if began is not None:
                finish(began, args, result, returned)
            if entered:
                guard.leave(entered, returned - called)
        except Exception as error:  # noqa: BLE001 - the guard's
            guard.failed(error)
        return result

    def finish(began: tuple[int, int, Any, Any], args: tuple[Any, ...], result: Any, returned: int) -> None:
        record, issued, group, tensor = began
        recorder.poke(LAYOUT, record, "returned_ns", returned)
        boxed = result[-1] if isinstance(result, tuple) else result
        work = boxed if isinstance(boxed, Work) else Work.unbox(boxed)
        is_host = group.is_host or not tensor.is_cuda
        outputs = args[operator.outputs] if operator.outputs >= 0 else ()
        completion.issued_in_cpp(work, ((record, issued, returned),), is_host, is_host and pollable[group.is_gloo], outputs)

    return kernel


def _beginner(ledger: Ledger, operator: Operator, budget: Budget) -> Callable[..., tuple[int, int, Any, Any] | None]:
    """args -> (record, issued_ns, group, first tensor), or None if no row is to be written."""
    from torch.distributed import ProcessGroup

    op, by_id, learn = code("op", operator.op), ledger.registry.by_id, ledger.registry.learn
    inputs, outputs, reduction, root, is_async = operator[1], operator[2], operator[4], operator[5], operator[8]
    is_transfer, sparse_op = operator.op in ("send", "recv"), sparse_code(operator.op)

    def begin(args: tuple[Any, ...]) -> tuple[int, int, Any, Any] | None:
        tensor = args[0] if inputs < 0 else first_tensor(args[inputs])
        if tensor is None:
            tensor = first_tensor(args[outputs])
        if type(tensor) not in ledger.plain and not ledger.is_real(tensor):
            return None
        issued, boxed = now_ns(), args[operator.group]
        pg = boxed if isinstance(boxed, ProcessGroup) else ProcessGroup.unbox(boxed)
        group = by_id.get(id(pg))
        if group is None or not group.is_written:
            group = learn(pg)
        peer = _transfer(operator, group, args) if is_transfer else NOBODY
        seq = group.take_transfer(*peer) if is_transfer else group.take()
        if not budget.allows():
            return None
        if root >= 0:
            peer = (group.global_rank(args[root]), -1, -1)
        number, reduced = ledger.thread.hint or (op, _reduction(ledger, args[reduction]) if reduction >= 0 else 0)
        if tensor.is_sparse:
            number = sparse_op
        asynchronous = bool(args[is_async]) if 0 <= is_async < len(args) else True
        sampled = None if inputs < 0 else tensor
        record = ledger.write(group, seq, issued, number, TIER, sampled, sizes(args), reduced, peer, asynchronous)
        return record, issued, group, tensor

    def sizes(args: tuple[Any, ...]) -> tuple[int, int]:
        if inputs < 0:
            return 0, 0
        size = bytes_of(args[inputs])
        if is_transfer:
            return (size, 0) if operator.op == "send" else (0, size)
        return size, size if inputs == outputs else bytes_of(args[outputs])

    return begin


def _transfer(operator: Operator, group: Group, args: tuple[Any, ...]) -> tuple[int, int, int]:
    """(src, dst, tag) with global ranks; src -1: from anybody."""
    tag = int(args[operator.tag])
    if operator.peer < 0:
        return -1, group.rank, tag
    other = group.global_rank(int(args[operator.peer]))
    return (group.rank, other, tag) if operator.op == "send" else (other, group.rank, tag)


def _reduction(ledger: Ledger, boxed: Any) -> int:
    """A boxed ReduceOp has no way back to Python; its method `op` tells the place in the C++ enumeration."""
    return ledger.reduction(boxed.op() if hasattr(boxed, "_get_method") else boxed)
