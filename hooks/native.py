"""Tier 1: operations that C++ issues, told by `ProcessGroup.register_pre_hook` and `register_post_hook` (torch 2.14+).

One closure per group, for the hooks' arguments do not say the group; `groups.Registry` calls for each new one. They do
not say the reduction or the tag either, and names are coarse (ALLGATHER for lists and tensors alike), so what Python
issues is read at the class (`class_methods`) and lets the hooks pass; functional collectives leave a hint. An
exception in a hook would reach the training: all is caught. A pre-hook that is followed by another one on its thread
without a post-hook between them belonged to an operation that raised.

Cost: 5..9 us for the pair (benchmarks/overhead.py). Misses: monitored_barrier, which is seen at the class.
"""

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import Any, Final, NamedTuple

from rankscope.schema.enums import code

from .base import now_ns
from .completion import LAYOUT, can_be_polled
from .groups import Group
from .ledger import NOBODY, Ledger
from .operations import bytes_of, sparse_code
from .row_guard import RowGuard

TIER: Final = code("tier", "native")
HOOK_ID: Final = 0x72616E6B
"""Identifies our hooks among those of a group; arbitrary, unlikely to be taken."""

_NAMES: Final = {
    "SEND": "send", "RECV": "recv", "BROADCAST": "broadcast", "ALLREDUCE": "all_reduce", "REDUCE": "reduce",
    "ALLGATHER": "all_gather", "REDUCE_SCATTER": "reduce_scatter", "ALLTOALL": "all_to_all", "BARRIER": "barrier",
    "SCATTER": "scatter", "GATHER": "gather",
}  # fmt: skip
_ROOTED: Final = frozenset({"broadcast", "reduce", "scatter", "gather"})
_IN_PLACE: Final = frozenset({"broadcast", "all_reduce", "reduce"})


class _Begun(NamedTuple):
    op_id: int
    record: int
    issued_ns: int
    op: str
    is_cuda: bool
    outputs: Any


def is_available() -> bool:
    """Whether this torch has the hooks."""
    from torch.distributed import ProcessGroup

    return hasattr(ProcessGroup, "register_pre_hook") and hasattr(ProcessGroup, "unregister_pre_hook")


def install(ledger: Ledger, guard: RowGuard, undo: ExitStack) -> None:
    """Hook every group that is there or comes, until `undo` closes."""

    def hook(pg: Any, group: Group) -> None:
        pg.register_pre_hook(HOOK_ID, _before(ledger, guard, group))
        pg.register_post_hook(HOOK_ID, _after(ledger, guard, group))
        undo.callback(_unhook, weakref.ref(pg))

    ledger.registry.on_new(hook)
    undo.callback(ledger.registry.on_new_no_more, hook)


def _unhook(reference: "weakref.ref[Any]") -> None:
    pg = reference()
    if pg is not None:
        pg.unregister_pre_hook(HOOK_ID)
        pg.unregister_post_hook(HOOK_ID)


def _before(ledger: Ledger, guard: RowGuard, group: Group) -> Callable[[Any], None]:
    recorder, thread, completion, polls = ledger.recorder, ledger.thread, ledger.completion, ledger.completion.polls

    def before(args: Any) -> None:
        thread.has_fired = True
        if thread.inside or guard.is_off or not recorder.is_on:
            return
        entered = guard.enter()
        try:
            if polls:
                completion.poll()
            if thread.begun is not None:  # its operation raised: no post-hook came
                completion.failed(thread.begun.record)
            if not group.is_written:
                ledger.registry.write_all()
            thread.begun = _begin(ledger, group, args)
            if thread.begun is None:
                guard.num_rowless += 1
            if entered:
                guard.leave(entered)
        except Exception as error:  # noqa: BLE001 - the guard's
            guard.failed(error)

    return before


def _after(ledger: Ledger, guard: RowGuard, group: Group) -> Callable[[Any], None]:
    poke, thread, completion = ledger.recorder.poke, ledger.thread, ledger.completion

    def after(args: Any) -> None:
        begun = thread.begun
        if begun is None or thread.inside or begun.op_id != args.op_id:
            return
        thread.begun = None
        try:
            returned = now_ns()
            poke(LAYOUT, begun.record, "returned_ns", returned)
            is_host = group.is_host or not begun.is_cuda
            is_polled = is_host and can_be_polled(begun.op, group.is_gloo)
            rows = ((begun.record, begun.issued_ns, returned),)
            completion.issued_in_cpp(args.work, rows, is_host, is_polled, begun.outputs)
        except Exception as error:  # noqa: BLE001 - the guard's
            guard.failed(error)

    return after


def _begin(ledger: Ledger, group: Group, args: Any) -> _Begun | None:
    inputs, outputs = args.input_tensors, args.output_tensors
    tensor = inputs[0] if inputs else outputs[0] if outputs else None
    if not ledger.is_real(tensor):
        return None
    issued, op, hint = now_ns(), _precise(_numbered()[int(args.name)], inputs, outputs), ledger.thread.hint
    size_in, size_out = bytes_of(inputs), bytes_of(outputs)
    peer, seq = NOBODY, -1
    if op in {"send", "recv"}:
        other = group.global_rank(args.root)
        peer = (group.rank, other, -1) if op == "send" else (other, group.rank, -1)
        seq = group.take_transfer(*peer)
        size_in, size_out = (size_in, 0) if op == "send" else (0, size_out)
    else:
        seq = group.take()
        if op in _ROOTED:
            peer = (group.global_rank(args.root), -1, -1)
        if op == "barrier":
            tensor, size_in, size_out = None, 0, 0
        elif op in _IN_PLACE:
            size_out = size_in
    if ledger.recorder.is_shadow:
        return None
    number, reduction = hint or (code("op", op), 0)
    if tensor is not None and tensor.is_sparse:
        number = sparse_code(op)
    record = ledger.write(group, seq, issued, number, TIER, tensor, (size_in, size_out), reduction, peer, args.async_op)
    is_cuda = tensor is not None and bool(tensor.is_cuda)
    return _Begun(args.op_id, record, issued, op, is_cuda, outputs or inputs)


@cache
def _numbered() -> dict[int, str]:
    """Op by the hook's number: reading the name of a pybind enumeration takes microseconds."""
    from torch._C._distributed_c10d import HookOpName  # type: ignore[attr-defined, unused-ignore]

    return {int(member): _NAMES.get(name, "other") for name, member in HookOpName.__members__.items()}


def _precise(op: str, inputs: Any, outputs: Any) -> str:
    """The op behind a coarse name, as far as the tensors tell: one input and one output are no lists."""
    if op == "all_gather" and len(outputs) == len(inputs) == 1:
        return "all_gather_into_tensor"
    if op == "reduce_scatter" and len(outputs) == len(inputs) == 1:
        return "reduce_scatter_tensor"
    if op == "all_to_all" and len(outputs) == len(inputs) == 1:
        return "all_to_all_single"
    return op
