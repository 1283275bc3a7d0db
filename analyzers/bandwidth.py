"""What an operation moves: its bytes S, its bus factor, and what of it must leave a node.

S and the factors are those of nccl-tests (doc/PERFORMANCE.md), so that numbers can be compared: algbw = S / t, busbw =
algbw x factor, with n members. Example: an all_reduce of 1 GB over 8 ranks in 10 ms has algbw 100 GB/s and busbw 100 x
2 x 7/8 = 175 GB/s. all_to_all with unequal splits: S is the largest of the members'.

What a node must send for a group that lies on k > 1 nodes: an all_reduce needs 2 S (k-1)/k (reduce, then spread), what
gathers or scatters (k-1)/k of the full bytes. A ring that enters every node once sends 2 S (n-1)/n and (n-1)/n: it does
not add up inside the node first. With reduction inside the network less than the bound is possible.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

_REDUCING: Final = frozenset({"all_reduce", "all_reduce_coalesced", "all_reduce_sparse"})
_SPREADING: Final = frozenset({
    "all_gather", "all_gather_into_tensor", "all_gather_coalesced", "all_gather_into_tensor_coalesced",
    "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_coalesced", "reduce_scatter_tensor_coalesced",
})  # fmt: skip
_EXCHANGING: Final = frozenset({"all_to_all", "all_to_all_single"})
_FROM_ROOT: Final = frozenset({"broadcast", "broadcast_coalesced"})
_COLLECTING: Final = frozenset({"gather", "gather_into_tensor"})
SEND_RECV: Final = "send_recv"
"""A send and the receive that it belongs to, as one operation."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How the members of a group lie on nodes, as one node sees it.

    size: members; num_nodes: nodes of the group; num_here: members on this node. is_root_here: the root is one of them.
    """

    size: int
    num_nodes: int
    num_here: int
    is_root_here: bool = False


def bus_factor(op: str, size: int) -> Fraction | None:
    """busbw / algbw of `op` in a group of `size`; None for operations that move nothing (barrier) or that are unknown.

    One member moves nothing: 0.
    """
    share = Fraction(size - 1, size) if size else Fraction(0)
    if op in _REDUCING:
        return 2 * share
    if op in _SPREADING or op in _EXCHANGING or op in _COLLECTING or op == "scatter":
        return share
    if op in _FROM_ROOT or op in ("reduce", SEND_RECV):
        return Fraction(int(size > 1))
    return None


def least_sent(op: str, spread: Spread) -> Fraction | None:
    """Times S that a node sends to other nodes at least; None where that is not known.

    broadcast and reduce: whoever comes last in the chain sends nothing on; of a reduce that is the root, of a broadcast
    anybody but the root. all_to_all: what the members here hold for members elsewhere, for equal splits.
    """
    n, k, here = spread.size, spread.num_nodes, spread.num_here
    elsewhere, is_root = Fraction(n - here, n), int(spread.is_root_here)
    found = dict.fromkeys(_REDUCING, 2 * Fraction(k - 1, k)) | dict.fromkeys(_SPREADING, Fraction(k - 1, k))
    found |= dict.fromkeys(_EXCHANGING, here * elsewhere) | dict.fromkeys(_FROM_ROOT, Fraction(is_root))
    found |= dict.fromkeys(_COLLECTING, Fraction(here, n) * (1 - is_root)) | {
        "reduce": Fraction(1 - is_root), "scatter": elsewhere * is_root, "barrier": Fraction(0),
        "monitored_barrier": Fraction(0),
    }  # fmt: skip
    return found.get(op)


def ring_sent(op: str, spread: Spread) -> Fraction | None:
    """Times S that a node sends where the members form one ring that enters each node once; the bound for others."""
    if op in _REDUCING:
        return 2 * Fraction(spread.size - 1, spread.size)
    if op in _SPREADING:
        return Fraction(spread.size - 1, spread.size)
    return least_sent(op, spread)
