"""When the default process group comes and goes, for a session without the process_groups hook (which sees it itself).

Without it no process would know its run and incarnation. Seen at `_update_default_pg` (torch 2.3+), through which both
`init_process_group` and `destroy_process_group` go. Cost: once per group.
"""

from contextlib import ExitStack
from functools import wraps
from typing import Any, Final

from rankscope.schema.errors import HookUnavailable

from .base import Guard, Recorder, patch

HOOK: Final = "default_group"


def install(recorder: Recorder, undo: ExitStack) -> None:
    """Tell `recorder` of the default group until `undo` closes. Raises HookUnavailable without torch.distributed."""
    import torch.distributed

    if not torch.distributed.is_available():
        raise HookUnavailable("this torch is built without distributed")
    from torch.distributed import distributed_c10d as c10d

    if not hasattr(c10d, "_update_default_pg"):
        raise HookUnavailable("torch 2.3 or later is needed")
    guard = Guard(recorder, HOOK)

    def make(original: Any) -> Any:
        if getattr(original, "rankscope_hook", "") == HOOK:
            return original

        @wraps(original)
        def observed(group: Any) -> Any:
            result = original(group)
            if not guard.is_off:
                try:
                    _tell(recorder, c10d, group)
                except Exception as error:  # noqa: BLE001
                    guard.failed(error)
            return result

        observed.rankscope_hook = HOOK  # type: ignore[attr-defined]
        return observed

    patch(c10d, "_update_default_pg", make, undo)


def _tell(recorder: Recorder, c10d: Any, group: Any) -> None:
    if group is None:
        recorder.left()
    elif isinstance(group, c10d.ProcessGroup):
        recorder.joined(group.rank(), group.size(), c10d._world.pg_map[group][1])
