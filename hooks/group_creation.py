"""When process groups come and go, and when the default group does.

Seen at module-level functions that every way in ends in, however the script imported its own names (`init_process_group`,
`new_group`, `init_device_mesh`, `split_group`): `_new_process_group_helper`, which knows the members, and
`_register_process_group`, which catches what is split or merged in C++. The default group comes and goes through
`_update_default_pg` (torch 2.3+). Groups that exist at install are scanned from `_world`. Mesh dimensions are learnt from
the group's description and, where a mesh reuses a group, after `DeviceMesh.__init__`. Cost: about 50 us per group.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any

from .base import Guard, Recorder, patch
from .groups import Registry, world


def install(recorder: Recorder, registry: Registry, guard: Guard, undo: ExitStack) -> None:
    """Watch group creation until `undo` closes, and take up the groups that exist."""
    c10d = world()

    def after(note: Callable[..., None]) -> Callable[[Any], Any]:
        def make(original: Any) -> Any:
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

        return make

    def made(result: Any, *args: Any, **kwargs: Any) -> None:
        pg, ranks = result[0], kwargs["global_ranks_in_group"] if "global_ranks_in_group" in kwargs else args[2]
        if isinstance(pg, c10d.ProcessGroup):  # else: this rank is not a member
            registry.add(pg, list(ranks) or range(pg.size()), is_late=False)
            if ranks:  # the default group is described once its run is bound, in `join`
                registry.write_all()

    def registered(_: Any, __: str, pg: Any) -> None:
        registry.add(pg, None, is_late=False)

    def default_changed(_: Any, pg: Any) -> None:
        if pg is None:
            recorder.left()
            registry.forget_all()
        elif isinstance(pg, c10d.ProcessGroup):
            join(pg)

    def join(pg: Any) -> None:
        recorder.joined(pg.rank(), pg.size(), c10d._world.pg_map[pg][1])
        registry.add(pg, range(pg.size()), is_late=False)
        registry.write_all()

    patch(c10d, "_new_process_group_helper", after(made), undo)
    patch(c10d, "_register_process_group", after(registered), undo)
    patch(c10d, "_update_default_pg", after(default_changed), undo)
    _watch_meshes(registry, after, undo)
    for pg in list(c10d._world.pg_map):
        registry.add(pg, None, is_late=True)
    if c10d.is_initialized():
        join(c10d._world.default_pg)


def _watch_meshes(registry: Registry, after: Callable[..., Any], undo: ExitStack) -> None:
    try:
        from torch.distributed.device_mesh import DeviceMesh
    except ImportError:  # a build without device meshes
        return

    def meshed(_: Any, mesh: Any, *args: Any, **kwargs: Any) -> None:
        names = getattr(mesh, "mesh_dim_names", None)
        groups = getattr(mesh, "_dim_group_names", None)
        for name, group in zip(names or (), groups or (), strict=False):
            registry.name_dimension(str(group), str(name), "device mesh")

    patch(DeviceMesh, "__init__", after(meshed), undo)
