"""Source 2 of tier 2: operations that C++ issues, seen by a kernel for the `c10d::` operators that redispatches.

The kernels stand at the ADInplaceOrView key: autograd keys miss functional and compiled collectives, and the backend
key deadlocks (`call_boxed` keeps the GIL). They see the reducer of DDP, functional collectives, DTensor and compiled
graphs. Once registered they are entered by Python-issued operations too, and then only pass through (`Thread.inside`).

Over its budget (`budget`: 1 % of step time) it writes rows in one step of two, of four, and so on; it goes on counting.
The reduction is read from the functional call; reading it from C++'s argument takes 20 us, so the reducer's is not
known. Cost: 20 us to be entered, 10 us for a row (benchmarks/overhead.py). Misses: DTensor's own dispatch and inference
mode, which `functional` covers. Torch 2.6..2.13; newer ones have native hooks.
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


_Begun = tuple[int, int, Group, Any]
"""(record, issued_ns, group, first tensor)"""


def _kernel(ledger: Ledger, guard: RowGuard, budget: Budget, operator: Operator, target: Any) -> Callable[..., Any]:
    from torch._C import _after_ADInplaceOrView_keyset as below_us

    redispatch, recorder, thread = target._handle.redispatch_boxed, ledger.recorder, ledger.thread
    begin, finish = (
        _beginner(ledger, guard, _opener(ledger, operator, budget)),
        _finisher(ledger, guard, operator, budget),
    )

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        thread.has_fired = True
        if thread.inside or guard.is_off or not recorder.is_on:
            return redispatch(keyset & below_us, *args, **kwargs)
        entered, timed = now_ns(), guard.enter()
        begun = begin(args)
        called = now_ns()
        thread.inside = True
        try:
            result = redispatch(keyset & below_us, *args, **kwargs)
        except BaseException:
            if begun is not None:
                ledger.failed(begun[0], guard)
            raise
        finally:
            thread.inside = False
        finish(begun, args, result, entered, called, timed)
        return result

    return kernel


def _beginner(
    ledger: Ledger, guard: RowGuard, open_row: Callable[[tuple[Any, ...]], _Begun | None]
) -> Callable[[tuple[Any, ...]], _Begun | None]:
    """args -> the opened row; None if none is written, or if we failed."""
    completion, polls = ledger.completion, ledger.completion.polls

    def begin(args: tuple[Any, ...]) -> _Begun | None:
        try:
            if polls:
                completion.poll()
            begun = open_row(args)
            if begun is None:
                guard.num_rowless += 1
            return begun
        except Exception as error:  # noqa: BLE001 - the guard's
            guard.failed(error)
            return None

    return begin


def _finisher(ledger: Ledger, guard: RowGuard, operator: Operator, budget: Budget) -> Callable[..., None]:
    from torch.distributed import Work

    pollable = {is_gloo: can_be_polled(operator.op, is_gloo) for is_gloo in (True, False)}
    poke, completion, outputs = ledger.recorder.poke, ledger.completion, operator.outputs

    def finish(
        begun: _Begun | None, args: tuple[Any, ...], result: Any, entered: int, called: int, timed: int
    ) -> None:  # fmt: skip
        try:
            returned = now_ns()
            if begun is not None:
                record, issued, group, tensor = begun
                poke(LAYOUT, record, "returned_ns", returned)
                boxed = result[-1] if isinstance(result, tuple) else result
                work = boxed if isinstance(boxed, Work) else Work.unbox(boxed)
                is_host = group.is_host or not tensor.is_cuda
                rows, targets = ((record, issued, returned),), args[outputs] if outputs >= 0 else ()
                completion.issued_in_cpp(work, rows, is_host, is_host and pollable[group.is_gloo], targets)
            budget.spent(now_ns() - entered - (returned - called), begun is not None)
            if timed:
                guard.leave(timed, returned - called)
        except Exception as error:  # noqa: BLE001 - the guard's
            guard.failed(error)

    return finish


def _opener(ledger: Ledger, operator: Operator, budget: Budget) -> Callable[[tuple[Any, ...]], _Begun | None]:
    """args -> the opened row, or None if it never reaches a backend or is over the budget (it is counted then)."""
    op, sparse_op, sizes, group_of = (
        code("op", operator.op),
        sparse_code(operator.op),
        _sizes(operator),
        _group_reader(ledger),
    )
    inputs, root, is_async, is_transfer = (
        operator.inputs,
        operator.root,
        operator.is_async,
        operator.op in ("send", "recv"),
    )
    thread, plain, untold = ledger.thread, ledger.plain, (op, 0)

    def open_row(args: tuple[Any, ...]) -> _Begun | None:
        tensor = args[0] if inputs < 0 else first_tensor(args[inputs])
        if tensor is None:
            tensor = first_tensor(args[operator.outputs])
        if type(tensor) not in plain and not ledger.is_real(tensor):
            return None
        issued, group = now_ns(), group_of(args[operator.group])
        peer = _transfer(operator, group, args) if is_transfer else NOBODY
        seq = group.take_transfer(*peer) if is_transfer else group.take()
        if not budget.allows():
            return None
        if root >= 0:
            peer = (group.global_rank(args[root]), -1, -1)
        number, reduced = thread.hint or untold
        if tensor.is_sparse:
            number = sparse_op
        asynchronous = bool(args[is_async]) if 0 <= is_async < len(args) else True
        sample = None if inputs < 0 else tensor
        record = ledger.write(group, seq, issued, number, TIER, sample, sizes(args), reduced, peer, asynchronous)
        return record, issued, group, tensor

    return open_row


def _group_reader(ledger: Ledger) -> Callable[[Any], Group]:
    from torch.distributed import ProcessGroup

    by_id, learn, unbox = ledger.registry.by_id, ledger.registry.learn, ProcessGroup.unbox

    def read(boxed: Any) -> Group:
        pg = boxed if isinstance(boxed, ProcessGroup) else unbox(boxed)
        group = by_id.get(id(pg))
        return group if group is not None and group.is_written else learn(pg)

    return read


def _sizes(operator: Operator) -> Callable[[tuple[Any, ...]], tuple[int, int]]:
    """args -> (bytes_in, bytes_out)"""
    op, inputs, outputs = operator.op, operator.inputs, operator.outputs

    def sizes(args: tuple[Any, ...]) -> tuple[int, int]:
        if inputs < 0:
            return 0, 0
        size = bytes_of(args[inputs])
        if op in ("send", "recv"):
            return (size, 0) if op == "send" else (0, size)
        return size, size if inputs == outputs else bytes_of(args[outputs])

    return sizes


def _transfer(operator: Operator, group: Group, args: tuple[Any, ...]) -> tuple[int, int, int]:
    """(src, dst, tag) with global ranks; src -1: from anybody."""
    tag = int(args[operator.tag])
    if operator.peer < 0:
        return -1, group.rank, tag
    other = group.global_rank(int(args[operator.peer]))
    return (group.rank, other, tag) if operator.op == "send" else (other, group.rank, tag)
