"""How to read an operation from the arguments of the call that issues it: op, element type, bytes, root, reduction.

Two ways in, one table each: the methods of `ProcessGroup` (calls from Python; torch 2.6..2.14) and the `c10d::`
operators (calls from C++), whose arguments are found by their schema names. Everything is resolved to positions once,
at install; a reading costs about 2 us for one tensor.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rankscope.schema.enums import DTYPES, OPS, REDUCE_OPS, code

_DTYPE_OTHER: Final = code("dtype", "other")
_REDUCE_OTHER: Final = code("reduce_op", "other")


class Method(NamedTuple):
    """A `ProcessGroup` method. inputs, outputs, options: positions after self; -1 none. names: of its arguments,
    by position and with the spellings of the overloads."""

    op: str
    inputs: int
    outputs: int
    options: int
    names: tuple[tuple[str, ...], ...]
    has_root: bool = False
    has_reduction: bool = False


_T = ("tensors", "tensor")
_OUT = ("output_tensors", "output_tensor", "outputs", "output", "output_lists", "outputTensors", "outputTensor")
_IN = ("input_tensors", "input_tensor", "inputs", "input", "input_list", "inputTensors", "inputTensor")
_OPT = ("opts", "op", "root", "timeout")
_SPLITS = (("output_split_sizes",), ("input_split_sizes",))


def _in_place(op: str, **more: bool) -> Method:
    return Method(op, 0, 0, 1, (_T, _OPT), **more)


def _out_in(op: str, **more: bool) -> Method:
    return Method(op, 1, 0, 2, (_OUT, _IN, _OPT), **more)


METHODS: Final[Mapping[str, Method]] = {
    "allreduce": _in_place("all_reduce", has_reduction=True),
    "allreduce_coalesced": _in_place("all_reduce_coalesced", has_reduction=True),
    "broadcast": _in_place("broadcast", has_root=True),
    "reduce": _in_place("reduce", has_root=True, has_reduction=True),
    "allgather": _out_in("all_gather"),
    "_allgather_base": _out_in("all_gather_into_tensor"),
    "all_gather_single": _out_in("all_gather_into_tensor"),
    "allgather_coalesced": _out_in("all_gather_coalesced"),
    "allgather_into_tensor_coalesced": _out_in("all_gather_into_tensor_coalesced"),
    "all_gather_single_coalesced": _out_in("all_gather_into_tensor_coalesced"),
    "gather": _out_in("gather", has_root=True),
    "gather_into_tensor": _out_in("gather_into_tensor", has_root=True),
    "gather_single": _out_in("gather_into_tensor", has_root=True),
    "scatter": _out_in("scatter", has_root=True),
    "reduce_scatter": _out_in("reduce_scatter", has_reduction=True),
    "_reduce_scatter_base": _out_in("reduce_scatter_tensor", has_reduction=True),
    "reduce_scatter_single": _out_in("reduce_scatter_tensor", has_reduction=True),
    "reduce_scatter_tensor_coalesced": _out_in("reduce_scatter_tensor_coalesced", has_reduction=True),
    "reduce_scatter_single_coalesced": _out_in("reduce_scatter_tensor_coalesced", has_reduction=True),
    "alltoall_base": Method("all_to_all_single", 1, 0, 4, (_OUT, _IN, *_SPLITS, _OPT)),
    "all_to_all_single": Method("all_to_all_single", 1, 0, 4, (_OUT, _IN, *_SPLITS, _OPT)),
    "alltoall": _out_in("all_to_all"),
    "barrier": Method("barrier", -1, -1, 0, (_OPT,)),
    "monitored_barrier": Method("monitored_barrier", -1, -1, -1, (("timeout",), ("wait_all_ranks",))),
    "send": Method("send", 0, 0, -1, (_T, ("dstRank",), ("tag",))),
    "recv": Method("recv", 0, 0, -1, (_T, ("srcRank",), ("tag",))),
    "recv_anysource": Method("recv", 0, 0, -1, (_T, ("tag", "arg1"))),
}
"""The methods of `ProcessGroup` that issue work; a version has some of them."""

OPERATORS: Final[Mapping[str, str]] = {
    "allreduce_": "all_reduce", "allreduce_coalesced_": "all_reduce_coalesced", "broadcast_": "broadcast",
    "reduce_": "reduce", "allgather_": "all_gather", "_allgather_base_": "all_gather_into_tensor",
    "allgather_coalesced_": "all_gather_coalesced",
    "allgather_into_tensor_coalesced_": "all_gather_into_tensor_coalesced", "gather_": "gather",
    "gather_into_tensor_": "gather_into_tensor", "scatter_": "scatter", "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter_tensor_coalesced", "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all_single", "barrier": "barrier", "send": "send", "recv_": "recv",
    "recv_any_source_": "recv",
}  # fmt: skip
"""The `c10d::` operators that issue work. monitored_barrier_ is called from Python only."""


class Operator(NamedTuple):
    """A `c10d::` operator: positions of its arguments; -1 none."""

    op: str
    inputs: int
    outputs: int
    group: int
    root: int
    peer: int
    tag: int
    is_async: int


def operator_of(op: str, names: Sequence[str]) -> Operator:
    """The positions of the arguments of an operator whose schema names them `names`."""

    def position(*wanted: str) -> int:
        return next((index for index, name in enumerate(names) if name in wanted), -1)

    in_place = -1 if op == "barrier" else position("tensors")
    return Operator(
        op, in_place if in_place >= 0 else position(*_IN), in_place if in_place >= 0 else position(*_OUT),
        position("process_group"), position("root_rank"), position("dst", "src"),
        position("tag"), position("async_op"),
    )  # fmt: skip


def positional(method: Method, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments of a call in the order of `method.names`; what was left out in between is None."""
    filled = list(args)
    for names in method.names[len(args) :]:
        filled += [next((kwargs[name] for name in names if name in kwargs), None)]
    return tuple(filled)


def bytes_of(value: Any) -> int:
    """Bytes of a tensor or of all tensors in nested lists; 0 for None."""
    if value is None:
        return 0
    if isinstance(value, (list, tuple)):
        return sum(map(bytes_of, value))
    try:
        return int(value.nbytes)
    except RuntimeError:  # a sparse tensor: what it holds
        return int(value._values().nbytes + value._indices().nbytes)


def first_tensor(value: Any) -> Any:
    """The first tensor in nested lists; None if there is none."""
    while isinstance(value, (list, tuple)):
        if not value:
            return None
        value = value[0]
    return value


def dtype_codes() -> dict[Any, int]:
    """torch dtype -> the number a record stores."""
    import torch

    return {getattr(torch, name): code("dtype", name) for name in DTYPES if hasattr(torch, name)}


def reduction_reader() -> Callable[[Any], int]:
    """Options' reduce op -> the number a record stores. A ReduceOp hashes to its place in the C++ enumeration."""
    from torch.distributed import ReduceOp

    known = {
        int(getattr(ReduceOp.RedOpType, name.upper())): code("reduce_op", name)
        for name in REDUCE_OPS
        if hasattr(ReduceOp.RedOpType, name.upper())
    }

    def read(reduction: Any) -> int:
        return known.get(hash(reduction), _REDUCE_OTHER)

    return read


def sparse_code(op: str) -> int:
    """The number of `op` on sparse tensors: its own where the vocabulary has one."""
    return code("op", f"{op}_sparse" if f"{op}_sparse" in OPS else op)


def is_real(tensor: Any) -> bool:
    """False for what never reaches a backend: fake tensors and tensors on the meta device."""
    from torch._subclasses.fake_tensor import FakeTensor

    return not isinstance(tensor, FakeTensor) and not tensor.is_meta
