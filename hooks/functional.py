"""Source 3: functional collectives at their Python entry, for what the dispatcher kernel cannot see.

The kernel's key is excluded inside DTensor's dispatch (`clip_grad_norm_` on DTensors) and absent from tensors made
under inference mode. So the entries of `torch.ops._c10d_functional` are wrapped; a row is written only if the key is
excluded, or if the call came back and no kernel had fired. Beside native hooks (tier 1), which see everything, the
wrapper only tells them what they cannot know: the precise op and its reduction. Real tensors only: fake ones never
reach a backend.

Torch 2.6+. Cost: about 3 us per functional collective, 10 us where it writes the row.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, NamedTuple

from rankscope.schema.enums import REDUCE_OPS, code

from .base import now_ns, patch
from .completion import LAYOUT
from .entry import entries_of, make_entry
from .groups import Group
from .ledger import NOBODY, Ledger
from .operations import bytes_of, first_tensor
from .row_guard import RowGuard

TIER: Final = code("tier", "functional")


class Functional(NamedTuple):
    """A functional collective. reduction, root: positions of its arguments, -1 none. names: of all its arguments."""

    op: str
    reduction: int = -1
    root: int = -1
    names: tuple[str, ...] = ("input", "group_name")


_GATHER: Final = ("input", "group_size", "group_name")
_SCATTER: Final = ("input", "reduce_op", "group_size", "group_name")
_REDUCE: Final = ("input", "reduce_op", "group_name")
_CAST: Final = ("input", "src", "group_name")
_SPLIT: Final = ("input", "output_split_sizes", "input_split_sizes", "group_name")

FUNCTIONALS: Final = {
    "all_reduce": Functional("all_reduce", 1, -1, _REDUCE),
    "all_reduce_": Functional("all_reduce", 1, -1, _REDUCE),
    "all_reduce_coalesced": Functional("all_reduce_coalesced", 1, -1, _REDUCE),
    "all_reduce_coalesced_": Functional("all_reduce_coalesced", 1, -1, _REDUCE),
    "all_gather_into_tensor": Functional("all_gather_into_tensor", -1, -1, _GATHER),
    "all_gather_into_tensor_out": Functional("all_gather_into_tensor", -1, -1, _GATHER),
    "all_gather_into_tensor_coalesced": Functional("all_gather_into_tensor_coalesced", -1, -1, _GATHER),
    "reduce_scatter_tensor": Functional("reduce_scatter_tensor", 1, -1, _SCATTER),
    "reduce_scatter_tensor_out": Functional("reduce_scatter_tensor", 1, -1, _SCATTER),
    "reduce_scatter_tensor_coalesced": Functional("reduce_scatter_tensor_coalesced", 1, -1, _SCATTER),
    "all_to_all_single": Functional("all_to_all_single", -1, -1, _SPLIT),
    "broadcast": Functional("broadcast", -1, 1, _CAST),
    "broadcast_": Functional("broadcast", -1, 1, _CAST),
}
_REDUCTIONS: Final = {name: code("reduce_op", name) for name in REDUCE_OPS}
NAMESPACES: Final = ("_c10d_functional", "_c10d_functional_autograd")


def install(ledger: Ledger, guard: RowGuard, undo: ExitStack, *, writes: bool) -> None:
    """Wrap the entries until `undo` closes. writes False (beside native hooks): only hint."""
    for namespace in NAMESPACES:
        for name, functional in FUNCTIONALS.items():
            for owner in entries_of(namespace, name):
                patch(owner, "_op", partial(_entry, ledger, guard, functional, writes), undo)


def _entry(ledger: Ledger, guard: RowGuard, functional: Functional, writes: bool, original: Any) -> Any:
    return make_entry(original, _wrapper(ledger, guard, functional, original, writes=writes))


def _wrapper(ledger: Ledger, guard: RowGuard, functional: Functional, original: Any, *, writes: bool) -> Any:
    recorder, thread, plain, at = ledger.recorder, ledger.thread, ledger.plain, functional.reduction
    run = _writing(ledger, guard, functional, original) if writes else original
    op = code("op", functional.op)

    def enter(*args: Any, **kwargs: Any) -> Any:
        if thread.inside or thread.hint is not None or guard.is_off or not recorder.is_on:
            return original(*args, **kwargs)
        if not args or type(first_tensor(args[0])) not in plain:
            return original(*args, **kwargs)
        thread.hint = (op, _REDUCTIONS.get(str(args[at]), 0) if 0 <= at < len(args) else 0)
        try:
            return run(*args, **kwargs)
        finally:
            thread.hint = None

    return enter


def _writing(ledger: Ledger, guard: RowGuard, functional: Functional, original: Any) -> Any:
    from torch._C import DispatchKey, _dispatch_tls_is_dispatch_key_excluded, _len_torch_dispatch_stack

    key, is_excluded, depth = (
        DispatchKey.ADInplaceOrView, _dispatch_tls_is_dispatch_key_excluded, _len_torch_dispatch_stack
    )  # fmt: skip
    thread, begin, finish = ledger.thread, *_writer(ledger, guard, functional)

    def run(*args: Any, **kwargs: Any) -> Any:
        entered, issued = guard.enter(), now_ns()
        thread.has_fired = False
        is_hidden = is_excluded(key) and not depth()
        begun = begin(issued, args, kwargs) if is_hidden else None
        called = now_ns() if entered else 0
        thread.inside = begun is not None
        try:
            result = original(*args, **kwargs)
        except BaseException:
            if begun is not None:
                ledger.failed(begun[0], guard)
            raise
        finally:
            thread.inside = False
        returned = now_ns()
        if not is_hidden and not thread.has_fired and type(first_tensor(result)) in ledger.plain:
            begun = begin(issued, args, kwargs)  # no kernel saw it: inference mode
        finish(begun, result, returned, entered, called)
        return result

    return run


_Begun = tuple[int, int, Group]
"""(record, issued_ns, group)"""


def _writer(
    ledger: Ledger, guard: RowGuard, functional: Functional
) -> tuple[Callable[..., _Begun | None], Callable[..., None]]:
    open_row, completion, poke = _opener(ledger, functional), ledger.completion, ledger.recorder.poke

    def begin(issued: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Begun | None:
        try:
            return open_row(issued, args, kwargs)
        except Exception as error:  # noqa: BLE001 - the guard's
            guard.failed(error)
            return None

    def finish(begun: _Begun | None, result: Any, returned: int, entered: int, called: int) -> None:
        try:
            if begun is None:
                guard.num_rowless += 1
            else:
                record, issued, group = begun
                poke(LAYOUT, record, "returned_ns", returned)
                is_host = group.is_host or not first_tensor(result).is_cuda
                completion.issued_in_cpp(None, ((record, issued, returned),), is_host, False, result)
            if entered:
                guard.leave(entered, returned - called)
        except Exception as error:  # noqa: BLE001 - the guard's
            guard.failed(error)

    return begin, finish


def _opener(ledger: Ledger, functional: Functional) -> Callable[..., _Begun | None]:
    op, names, registry = code("op", functional.op), functional.names, ledger.registry

    def open_row(issued: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Begun | None:
        given = dict(zip(names, args, strict=False)) | kwargs
        name = given["group_name"]
        group = registry.named(name) if isinstance(name, str) else registry.learn(_unboxed(name))
        seq, size, tensor = group.take(), bytes_of(given["input"]), first_tensor(given["input"])
        if ledger.recorder.is_shadow:
            return None
        peer = (group.global_rank(given["src"]), -1, -1) if functional.root >= 0 else NOBODY
        sizes = (size, _bytes_out(functional.op, size, group.size, given))
        reduction = _REDUCTIONS.get(given.get("reduce_op", ""), 0)
        return ledger.write(group, seq, issued, op, TIER, tensor, sizes, reduction, peer, True), issued, group

    return open_row


def _unboxed(group: Any) -> Any:
    from torch.distributed import ProcessGroup

    return group if isinstance(group, ProcessGroup) else ProcessGroup.unbox(group)


def _bytes_out(op: str, size: int, num_members: int, given: dict[str, Any]) -> int:
    """What comes out of `size` bytes: the result is not there yet when the row is opened."""
    if op.startswith("all_gather"):
        return size * num_members
    if op.startswith("reduce_scatter"):
        return size // num_members
    sent, received = sum(given.get("input_split_sizes") or ()), sum(given.get("output_split_sizes") or ())
    return size * received // sent if sent else size
