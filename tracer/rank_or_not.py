"""Is this process, which has just imported torch under `rankscope run`, a rank, or one that a rank or launcher needs?

A launcher (torchrun, accelerate, deepspeed) is known by its command line. The first process that is none claims to be a
rank, in a variable that its children inherit, with the rank that a launcher gave it. A child is a rank only if it was
given another rank, or if `multiprocessing` made it, as `mp.spawn` does. Data loaders' workers of a torchrun rank, pip,
compile workers and scripts that a rank starts are not. A claim costs nothing: without rows nothing is written.
"""

import os
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import PurePath
from typing import Final

from .python_command import python_command

CLAIM: Final = "_RANKSCOPE_CLAIMED"
"""<pid> <rank variables>, of the nearest ancestor that claimed to be a rank. Not a setting, so not in the manifest."""
LAUNCHERS: Final = frozenset({"torchrun", "accelerate", "accelerate-launch", "deepspeed", "pip", "pip3", "ray"})
LAUNCHER_MODULES: Final = (
    "torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic", "accelerate",
    "deepspeed.launcher", "pip", "torch._inductor", "rankscope",
)  # fmt: skip
_RANK_VARIABLES: Final = (
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
    "SLURM_PROCID",
)  # fmt: skip


def claim_rank() -> bool:
    """True if this process is a rank, as far as can be known now; its children will know."""
    arguments = getattr(sys, "orig_argv", None) or [sys.executable, *sys.argv]
    if not is_rank(os.environ, arguments, os.getpid(), _is_multiprocessing(arguments)):
        return False
    leave_claim(os.environ, os.getpid())
    return True


def is_rank(environment: Mapping[str, str], arguments: Sequence[str], pid: int, is_multiprocessing: bool) -> bool:
    """The rule of this module. arguments: the whole command line, with the interpreter. pid: of this process."""
    owner, _, rank_then = environment.get(CLAIM, "").partition(" ")
    if owner == str(pid):
        return True
    if is_launcher(arguments):
        return False
    if not owner or rank_then != _rank(environment):
        return True
    return is_multiprocessing and "TORCHELASTIC_RUN_ID" not in environment


def leave_claim(environment: MutableMapping[str, str], pid: int) -> None:
    """Let the children know that process `pid` is a rank."""
    environment[CLAIM] = f"{pid} {_rank(environment)}"


def is_launcher(arguments: Sequence[str]) -> bool:
    """The command line starts ranks, or serves them, rather than being one."""
    program = python_command(arguments)
    if program.is_module:
        return any(f"{program.name}.".startswith(f"{module}.") for module in LAUNCHER_MODULES)
    path = PurePath(program.name)
    served = path.name == "__main__.py" and path.parent.name in LAUNCHERS
    return path.name in LAUNCHERS or served or "torch/_inductor" in path.as_posix()


def _rank(environment: Mapping[str, str]) -> str:
    return " ".join(f"{name}={environment[name]}" for name in _RANK_VARIABLES if name in environment)


def _is_multiprocessing(arguments: Sequence[str]) -> bool:
    """A child that `multiprocessing` made: by spawn (its command line says so), fork or a fork server."""
    process = sys.modules.get("multiprocessing.process")
    is_child = process is not None and process.parent_process() is not None
    return "--multiprocessing-fork" in arguments or is_child
