"""Which process groups exist: who is in them, what dimension of the mesh they are, and where their counters stand.

How they become known: `group_creation`. A group is described in the journal once its members are known: at its
creation, else at its first operation. No reference to a group is kept (a kept gloo group keeps its sockets and
threads): the registry is keyed by identity and forgets with the object. Cost: one dictionary look-up per operation;
creation about 50 us.

Cannot see: groups made by a C++ extension that registers nothing; they appear at their first operation, by size only.
"""

import os
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final, cast

from .base import Recorder, now_ns
from .group_identity import dimension_of_label, encode_runs, group_digest, mesh_dimension_of

_HOST_BACKENDS: Final = frozenset({"gloo", "mpi"})
"""Backends whose work is complete when a wait on the host returns."""
_CPP_BACKENDS: Final = frozenset({"gloo", "mpi", "nccl", "ucc", "xccl", "fake"})
"""Backends that run no Python code inside an operation."""


class Group:
    """One live group. `take` hands out the sequence numbers of its collectives; atomic, so threads may share it.

    is_plain: nothing but a written, host-completed group without Python code or coalescing behind it.
    """

    __slots__ = (
        "backend", "created_ns", "dimension", "dimension_source", "identity", "is_cpp", "is_gloo", "is_host",
        "is_plain", "is_written", "label", "members", "name", "number", "rank", "size", "take", "transfers",
    )  # fmt: skip

    def __init__(self, number: int, pg: Any, members: Sequence[int] | None, start: int) -> None:
        self.number, self.members, self.is_written, self.is_plain = number, members, False, False
        self.name, self.size = str(pg.group_name), int(pg.size())
        self.rank = int(pg.rank()) if members is None else members[pg.rank()]
        self.label = str(getattr(pg, "group_desc", ""))
        self.backend, names = _backend_names(pg)
        self.is_host, self.is_cpp, self.is_gloo = names <= _HOST_BACKENDS, names <= _CPP_BACKENDS, names == {"gloo"}
        self.dimension, self.dimension_source = dimension_of_label(self.label)
        self.created_ns, self.identity = now_ns(), cast("tuple[str, int] | None", None)
        self.take: Callable[[], int] = count(start).__next__
        self.transfers: dict[tuple[int, int, int], Callable[[], int]] = {}

    @property
    def could_be_plain(self) -> bool:
        """Whether the fast way is right for it while nothing is coalesced."""
        return self.is_written and self.is_host and self.is_cpp

    def global_rank(self, group_rank: int) -> int:
        """The global rank of a rank inside this group; -1 (any source) and a wrong rank stay as they are."""
        members = self.members
        return members[group_rank] if members is not None and 0 <= group_rank < len(members) else group_rank

    def take_transfer(self, src: int, dst: int, tag: int) -> int:
        """The next sequence number from global rank src to dst under tag."""
        key = (src, dst, tag)
        take = self.transfers.get(key)
        if take is None:
            take = self.transfers.setdefault(key, count().__next__)
        return take()


class Registry:
    """The groups of this process, by the identity of their object and by their name."""

    __slots__ = ("_listeners", "_living", "_numbers", "_ordinals", "_pid", "_recorder", "by_id", "by_name")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._pid = recorder, os.getpid()
        self.by_id: dict[int, Group] = {}
        self.by_name: dict[str, Group] = {}
        self._living: dict[int, weakref.ref[Any]] = {}
        self._numbers = count(1)
        self._ordinals: dict[tuple[tuple[int, ...], str], Any] = {}
        self._listeners: list[Callable[[Any, Group], None]] = []

    def on_new(self, listener: Callable[[Any, Group], None]) -> None:
        """Call `listener(group object, group)` for each group that is there now and each that comes."""
        self._listeners.append(listener)
        for number, reference in list(self._living.items()):
            pg = reference()
            if pg is not None:
                listener(pg, self.by_id[number])

    def on_new_no_more(self, listener: Callable[[Any, Group], None]) -> None:
        """Undo of `on_new`."""
        self._listeners.remove(listener)

    def learn(self, pg: Any) -> Group:
        """The group of an object on its way to an operation; described in the journal if it was not."""
        group = self.by_id.get(id(pg)) or self.by_name.get(str(pg.group_name)) or self.add(pg, None, is_late=False)
        if not group.is_written:
            self._write(pg, group)
        return group

    def named(self, name: str) -> Group:
        """The group that functional collectives call `name`. Raises what torch raises for an unknown name."""
        group = self.by_name.get(name)
        if group is not None and group.is_written:
            return group
        from torch._C._distributed_c10d import _resolve_process_group

        return self.learn(_resolve_process_group(cast(Any, name)))

    def add(self, pg: Any, members: Sequence[int] | None, *, is_late: bool) -> Group:
        """Take up a group. is_late: it existed before us, so its counter starts where its backend's stands."""
        if self._pid != os.getpid():
            self.forget_all()
        found = self.by_id.get(id(pg))
        if found is not None:
            if found.members is None and members is not None:
                found.members, found.rank = tuple(members), members[pg.rank()]
            return found
        members = members if members is not None else _members_of(pg)
        start = _backend_sequence(pg) if is_late else 0
        group = Group(next(self._numbers), pg, None if members is None else tuple(members), start)
        self._keep(pg, group)
        for listener in self._listeners:
            listener(pg, group)
        return group

    def write_all(self) -> None:
        """Describe in the journal what is not yet described and whose members are known."""
        for number, reference in list(self._living.items()):
            pg, group = reference(), self.by_id.get(number)
            if pg is not None and group is not None and not group.is_written and (group.members or _members_of(pg)):
                self._write(pg, group)

    def name_dimension(self, name: str, dimension: str, source: str) -> None:
        """A mesh says which dimension the group called `name` is. Journalled again if it had been described."""
        group = self.by_name.get(name)
        if group is None or group.dimension == mesh_dimension_of(dimension):
            return
        group.dimension, group.dimension_source = mesh_dimension_of(dimension), source
        if group.is_written:
            self._journal(group)

    def forget_all(self) -> None:
        """The default group is gone, or this is another process: numbers go on, ordinals begin anew."""
        self._pid = os.getpid()
        for table in (self.by_id, self.by_name, self._living, self._ordinals):
            table.clear()

    def _keep(self, pg: Any, group: Group) -> None:
        number = id(pg)

        def forget(_: object) -> None:
            if self.by_id.get(number) is group:
                self.by_id.pop(number, None)
                self._living.pop(number, None)
            if self.by_name.get(group.name) is group:
                self.by_name.pop(group.name, None)

        self.by_id[number] = self.by_name[group.name] = group
        self._living[number] = weakref.ref(pg, forget)

    def _write(self, pg: Any, group: Group) -> None:
        if group.members is None:
            members = _members_of(pg)
            if members is not None:
                group.members, group.rank = members, members[pg.rank()]
        group.is_written = self._recorder.is_on
        group.is_plain = group.could_be_plain
        if group.is_written:
            self._journal(group)

    def _journal(self, group: Group) -> None:
        members = group.members or ()
        if group.identity is None:
            key = (tuple(members), group.backend)
            ordinal = next(self._ordinals.setdefault(key, count()))
            group.identity = (group_digest(members or (group.name,), group.backend, ordinal), ordinal)
        group_id, ordinal = group.identity
        runs = encode_runs(members) if members and group.rank == min(members) else None
        self._recorder.journal(
            "group", id=group.number, group_id=group_id, size=group.size, backend=group.backend, ordinal=ordinal,
            mesh_dimension=group.dimension, mesh_dimension_source=group.dimension_source, description=group.label,
            created_ns=group.created_ns,
            member_starts=None if runs is None else [run.start for run in runs],
            member_strides=None if runs is None else [run.stride for run in runs],
            member_counts=None if runs is None else [run.num for run in runs],
        )  # fmt: skip


def world() -> Any:
    """`torch.distributed.distributed_c10d`, where the groups of the process are kept."""
    from torch.distributed import distributed_c10d

    return distributed_c10d


def _members_of(pg: Any) -> tuple[int, ...] | None:
    """Global ranks by group rank; None while torch does not know them."""
    ranks = world()._world.pg_group_ranks.get(pg)
    return None if ranks is None else tuple(sorted(ranks, key=ranks.__getitem__))


def _backend_sequence(pg: Any) -> int:
    """How many operations the backend has counted for this group; 0 where it does not tell."""
    try:
        return int(pg._get_sequence_number_for_group())
    except RuntimeError:
        return 0


def _backend_names(pg: Any) -> tuple[str, frozenset[str]]:
    """The backend as configured ("gloo", "cpu:gloo,cuda:nccl"), and the set of its names."""
    known = world()._world.pg_map.get(pg)
    text = str(known[0]) if known is not None else str(pg._get_backend_name())
    return text, frozenset(part.rpartition(":")[2].strip().lower() for part in text.split(","))
