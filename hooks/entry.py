"""The Python entries of a dispatcher operator, its packet (`torch.ops.ns.name`) and its overloads: how to wrap them.

Both call their `_op`, and both hash by it: a wrapper must hash as the original does, or every table keyed by operators
(decompositions, inductor's lowerings) would lose them.
"""

from collections.abc import Callable, Iterator
from typing import Any


class Entry:
    """A stand-in for `_op`, called through `make_entry`; everything else (hash, name, schema) is the original's."""

    __slots__ = ("_original",)

    def __init__(self, original: Any) -> None:
        self._original = original

    def __hash__(self) -> int:
        return hash(self._original)

    def __eq__(self, other: object) -> bool:
        return bool(self._original == (other._original if isinstance(other, Entry) else other))

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_original"), name)


def make_entry(original: Any, call: Callable[..., Any]) -> Entry:
    """A stand-in for `original` that calls `call`; a class of its own, so that no frame stands in between."""
    made: Entry = type("Entry", (Entry,), {"__slots__": (), "__call__": staticmethod(call)})(original)
    return made


def entries_of(namespace: str, name: str) -> Iterator[Any]:
    """The packet and the overloads of an operator; nothing if this version of torch has no such operator."""
    import torch

    packet = getattr(getattr(torch.ops, namespace), name, None)
    if packet is None:
        return
    yield packet
    for overload in packet.overloads():
        yield getattr(packet, overload)
