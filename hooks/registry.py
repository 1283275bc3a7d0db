"""Every hook by name: where it lives, what it needs, whether it is on unless told otherwise."""

from typing import Final, NamedTuple


class HookSpec(NamedTuple):
    """target: "module:function" relative to rankscope.hooks. needs: module after whose import it is installed."""

    name: str
    target: str
    needs: str
    default_on: bool
    what: str


DEFAULT_GROUP: Final = HookSpec(
    "default_group", "default_group:install", "torch.distributed", False, "which run it is, where process_groups is off"
)
"""Writes no rows; the session installs it where nobody else would see the default process group."""

HOOKS: Final = (
    HookSpec("process_groups", "process_groups:install", "torch.distributed", True, "collectives, P2P and their waits"),
    HookSpec("steps", "steps:install", "torch", True, "step boundaries and optimizer spans"),
    HookSpec("phases", "phases:install", "torch", True, "forward, backward, evaluation and data spans"),
    HookSpec("gc_pauses", "gc_pauses:install", "torch", True, "pauses of Python's garbage collector"),
    HookSpec("compile", "compile_time:install", "torch._dynamo.callback", True, "time in torch.compile"),
    HookSpec("numerics", "numerics:install", "torch", True, "clipped gradient norms, loss scales, fused skips"),
    HookSpec("seeds", "seeds:install", "torch", True, "seeds that the job sets"),
)
