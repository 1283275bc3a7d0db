"""What happens before an operation that Python issues reaches the backend: it is read, counted, and its row is opened.

One closure per method, chosen by the shape of its arguments, because this is the hottest code there is.
"""

from collections.abc import Callable
from typing import Any, Final

from rankscope.schema.enums import code

from .base import Guard, now_ns
from .completion import LAYOUT
from .groups import Group
from .ledger import DTYPE_OTHER, NOBODY, Ledger
from .operations import Method, bytes_of, first_tensor, positional, sparse_code

_TIER: Final = code("tier", "class")
_ANYSOURCE_ARGUMENTS: Final = 2
"""recv_anysource takes tensors and a tag, no peer."""

Begun = tuple[int, int, Group, bool, bool, Any]
"""An operation on its way: (record, issued_ns, group, is_host, is_async, mark). is_host: complete when a wait on the
host returns. mark: a device event, or None. A plain tuple, for one is made per operation."""
Begin = Callable[[Any, tuple[Any, ...], dict[str, Any]], Begun | None]
_Opened = tuple[int, int, Any, bool]
"""(record, issued_ns, first tensor or None, is_async)"""
_Open = Callable[[Group, tuple[Any, ...]], _Opened | None]
"""(group, arguments) -> the opened row; None if the operation never reaches a backend."""


def beginner(ledger: Ledger, guard: Guard, method: Method) -> Begin:
    """(group object, args, kwargs) -> Begun; None if the operation never reaches a backend, or if we failed."""
    by_id, learn, completion, device = ledger.registry.by_id, ledger.registry.learn, ledger.completion, ledger.device
    polls, num_names, open_row = completion.polls, len(method.names), _opener(ledger, method)

    def begin(pg: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Begun | None:
        try:
            if polls:
                completion.poll()
            group = by_id.get(id(pg))
            if group is None or not group.is_written:
                group = learn(pg)
            if kwargs or len(args) < num_names:
                args = positional(method, args, kwargs)
            opened = open_row(group, args)
            if opened is None:
                return None
            record, issued, tensor, is_async = opened
            is_host = group.is_host or tensor is None or not tensor.is_cuda
            mark = None if is_host or not device.is_active else device.begin()
            return record, issued, group, is_host, is_async, mark
        except Exception as error:  # noqa: BLE001 - the guard's
            guard.failed(error)
            return None

    return begin


def counter(ledger: Ledger, method: Method) -> Callable[[Any, tuple[Any, ...], dict[str, Any]], None]:
    """(group object, args, kwargs): counts the operation, without a row. Raises what a wrong call raises."""
    by_id, learn, is_transfer = ledger.registry.by_id, ledger.registry.learn, method.op in ("send", "recv")

    def count(pg: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        group = by_id.get(id(pg))
        if group is None or not group.is_written:
            group = learn(pg)
        if kwargs or len(args) < len(method.names):
            args = positional(method, args, kwargs)
        if method.inputs >= 0:
            tensor = first_tensor(args[method.inputs])
            if not ledger.is_real(first_tensor(args[method.outputs]) if tensor is None else tensor):
                return
        if is_transfer:
            group.take_transfer(*_peer_of(method, group, args))
        else:
            group.take()

    return count


def _opener(ledger: Ledger, method: Method) -> _Open:
    if method.inputs < 0:
        return _bare(ledger, method)
    if method.op in ("send", "recv"):
        return _transfer(ledger, method)
    if method.inputs == method.outputs:
        return _in_place(ledger, method)
    return _out_of_place(ledger, method)


def _bare(ledger: Ledger, method: Method) -> _Open:
    """Barriers: no tensors, no bytes."""
    op, options = code("op", method.op), method.options

    def open_row(group: Group, args: tuple[Any, ...]) -> _Opened:
        issued = now_ns()
        is_async = options >= 0 and bool(getattr(args[options], "asyncOp", True))
        record = ledger.write(group, group.take(), issued, op, _TIER, None, (0, 0), 0, NOBODY, is_async)
        return record, issued, None, is_async

    return open_row


def _transfer(ledger: Ledger, method: Method) -> _Open:
    """Sends and receives: numbered per (src, dst, tag). Blocking ones look alike here: all count as asynchronous."""
    op, is_send = code("op", method.op), method.op == "send"

    def open_row(group: Group, args: tuple[Any, ...]) -> _Opened | None:
        tensor = first_tensor(args[0])
        if not ledger.is_real(tensor):
            return None
        issued, size = now_ns(), bytes_of(args[0])
        peer = _peer_of(method, group, args)
        sizes = (size, 0) if is_send else (0, size)
        record = ledger.write(group, group.take_transfer(*peer), issued, op, _TIER, tensor, sizes, 0, peer, True)
        return record, issued, tensor, True

    return open_row


def _peer_of(method: Method, group: Group, args: tuple[Any, ...]) -> tuple[int, int, int]:
    """(src, dst, tag) of a send or receive, in global ranks; -1 anybody."""
    if len(method.names) == _ANYSOURCE_ARGUMENTS:
        return -1, group.rank, int(args[1])
    other, tag = group.global_rank(int(args[1])), int(args[2])
    return (group.rank, other, tag) if method.op == "send" else (other, group.rank, tag)


def _in_place(ledger: Ledger, method: Method) -> _Open:
    """all_reduce, broadcast, reduce: written without detours, for most operations of a training are these."""
    op, recorder, thread, plain = code("op", method.op), ledger.recorder, ledger.thread, ledger.plain
    open_, dtypes, read_options = ledger.open, ledger.dtypes, _options_reader(ledger, method)
    sparse_op = sparse_code(method.op)

    def open_row(group: Group, args: tuple[Any, ...]) -> _Opened | None:
        tensors = args[0]
        tensor = tensors[0] if type(tensors) is list and len(tensors) == 1 else first_tensor(tensors)
        if type(tensor) not in plain and not ledger.is_real(tensor):
            return None
        issued, seq = now_ns(), group.take()
        size = bytes_of(tensors) if type(tensors) is list and len(tensors) != 1 else bytes_of(tensor)
        reduction, root, is_async = read_options(group, args[1])
        dtype = 0 if tensor is None else dtypes.get(tensor.dtype, DTYPE_OTHER)
        record = open_(
            LAYOUT, size, size, issued, recorder.step, group.number, seq, root, -1, -1, thread.coalescing, -1, -1, -1,
            sparse_op if tensor is not None and tensor.is_sparse else op, reduction, dtype, is_async, 0,
            recorder.phase, _TIER,
        )  # fmt: skip
        return record, issued, tensor, is_async

    return open_row


def _out_of_place(ledger: Ledger, method: Method) -> _Open:
    op, inputs, outputs, options = code("op", method.op), method.inputs, method.outputs, method.options
    read_options = _options_reader(ledger, method)

    def open_row(group: Group, args: tuple[Any, ...]) -> _Opened | None:
        source, target = args[inputs], args[outputs]
        tensor = first_tensor(source)
        if tensor is None:  # a rank that only receives, as in scatter
            tensor = first_tensor(target)
        if not ledger.is_real(tensor):
            return None
        issued, seq = now_ns(), group.take()
        reduction, root, is_async = read_options(group, args[options])
        sizes = (bytes_of(source), bytes_of(target))
        record = ledger.write(group, seq, issued, op, _TIER, tensor, sizes, reduction, (root, -1, -1), is_async)
        return record, issued, tensor, is_async

    return open_row


def _options_reader(ledger: Ledger, method: Method) -> Callable[[Group, Any], tuple[int, int, bool]]:
    """(group, options or what an overload has in their place) -> (reduce_op code, global root or -1, is_async)."""
    has_reduction, has_root, reduction_of = method.has_reduction, method.has_root, ledger.reduction

    def read(group: Group, chosen: Any) -> tuple[int, int, bool]:
        if chosen is None:  # left out: the C++ defaults
            return (reduction_of(None) if has_reduction else 0), (group.global_rank(0) if has_root else -1), True
        try:
            is_async = bool(chosen.asyncOp)
            reduction = reduction_of(chosen.reduceOp) if has_reduction else 0
            return reduction, (group.global_rank(int(chosen.rootRank)) if has_root else -1), is_async
        except AttributeError:  # an overload that takes the root or the reduction itself
            root = group.global_rank(chosen) if has_root and isinstance(chosen, int) else -1
            return (reduction_of(chosen) if has_reduction and not has_root else 0), root, True

    return read
