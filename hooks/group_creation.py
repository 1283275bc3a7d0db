"""When process groups come and go, and when the default group does.

Seen at module-level functions that every way in ends in, however the script imported its own names
(`init_process_group`, `new_group`, `init_device_mesh`, `split_group`): `_new_process_group_helper`, which knows the
members, and `_register_process_group`, which catches what is split or merged in C++. The default group comes and goes
through `_update_default_pg` (torch 2.3+). Groups that exist at install are scanned from `_world`. Mesh dimensions are
learnt from the group's description and, where a mesh reuses a group, after `DeviceMesh.__init__`. Cost: about 50 us
per group.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial, wraps
from typing import Any

from .base import Guard, Recorder, patch
from .groups import Registry, world


def install(
    recorder: Recorder, registry: Registry, leaving: Callable[[], None], guard: Guard, undo: ExitStack
) -> None:  # fmt: skip
    """Watch group creation until `undo` closes, and take up the groups that exist.

    leaving: called when the default group is gone, before the recorder is told.
    """
    c10d, watch = world(), _Watch(recorder, registry, leaving)
    for name, note in (
        ("_new_process_group_helper", watch.made),
        ("_register_process_group", watch.registered),
        ("_update_default_pg", watch.default_changed),
    ):
        patch(c10d, name, partial(_after, guard, note), undo)
    try:
        from torch.distributed.device_mesh import DeviceMesh
    except ImportError:  # a build without device meshes
        pass
    else:
        patch(DeviceMesh, "__init__", partial(_after, guard, watch.meshed), undo)
    for pg in list(c10d._world.pg_map):
        registry.add(pg, None, is_late=True)
    if c10d.is_initialized():
        watch.join(c10d._world.default_pg)


def _after(guard: Guard, note: Callable[..., None], original: Any) -> Any:
    """`original`, and `note(result, *arguments)` after it."""

    @wraps(original)
    def observed(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if not guard.is_off:
            try:
                note(result, *args, **kwargs)
            except Exception as error:  # noqa: BLE001 - the guard's
                guard.failed(error)
        return result

    return observed


class _Watch:
    """What each of the observed functions says about the groups."""

    def __init__(self, recorder: Recorder, registry: Registry, leaving: Callable[[], None]) -> None:
        self._recorder, self._registry, self._leaving, self._c10d = recorder, registry, leaving, world()

    def made(self, result: Any, *args: Any, **kwargs: Any) -> None:
        """`_new_process_group_helper(group_size, group_rank, global_ranks_in_group, ...)` gave (group, store)."""
        pg, ranks = result[0], kwargs["global_ranks_in_group"] if "global_ranks_in_group" in kwargs else args[2]
        if isinstance(pg, self._c10d.ProcessGroup):  # else: this rank is not a member
            self._registry.add(pg, list(ranks) or range(pg.size()), is_late=False)
            if ranks:  # the default group is described once its run is bound, in `join`
                self._registry.write_all()

    def registered(self, _: Any, __: str, pg: Any) -> None:
        """`_register_process_group(name, group)`: also groups split and merged in C++."""
        self._registry.add(pg, None, is_late=False)

    def default_changed(self, _: Any, pg: Any) -> None:
        """`_update_default_pg(group or None)`."""
        if pg is None:
            self._leaving()
            self._recorder.left()
            self._registry.forget_all()
        elif isinstance(pg, self._c10d.ProcessGroup):
            self.join(pg)

    def join(self, pg: Any) -> None:
        """The default group is there."""
        self._recorder.joined(pg.rank(), pg.size(), self._c10d._world.pg_map[pg][1])
        self._registry.add(pg, range(pg.size()), is_late=False)
        self._registry.write_all()

    def meshed(self, _: Any, mesh: Any, *args: Any, **kwargs: Any) -> None:
        """`DeviceMesh.__init__(mesh, ...)`: the names of its dimensions, also where it reuses a group."""
        names, groups = getattr(mesh, "mesh_dim_names", None), getattr(mesh, "_dim_group_names", None)
        for name, group in zip(names or (), groups or (), strict=False):
            self._registry.name_dimension(str(group), str(name), "device mesh")
