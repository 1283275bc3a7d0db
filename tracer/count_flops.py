"""Runs a training script until its second step is over and counts the FLOPs of that step; a process of its own.

`torch.utils.flop_counter` counts matrix products, convolutions and attention, forward and backward, as they are
executed: with activation checkpointing the recomputation is in it. Elementwise work is not counted. A step is from one
call of the first optimizer's `step` to the next. The counter sees nothing inside compiled graphs, so compiling is
switched off by the command that starts this. `python -m rankscope.tracer.count_flops OUT SCRIPT [ARGS...]` writes
{"flops": ..., "by_op": {...}} to OUT.
"""

import contextlib
import json
import runpy
import sys
from pathlib import Path
from typing import Any

_COUNTED, _LAST = 1, 3
"""Optimizer steps: counted is the one after the first; rankscope's own rows of it are whole after the third."""


class _Done(BaseException):
    """Enough was seen; nothing in the script is meant to catch it."""


class _Counter:
    """Counts from the end of the first optimizer step to that of the second."""

    def __init__(self, out: Path) -> None:
        from torch.utils.flop_counter import FlopCounterMode

        self._mode, self._out = FlopCounterMode(display=False), out
        self._first: Any = None
        self._num_steps = 0

    def after_step(self, optimizer: Any, *_: Any) -> None:
        """Called by torch after every optimizer step."""
        self._first = self._first or optimizer
        if optimizer is not self._first:
            return
        self._num_steps += 1
        if self._num_steps == _COUNTED:
            self._mode.__enter__()
        elif self._num_steps == _COUNTED + 1:
            self._mode.__exit__(None, None, None)
            by_op = {str(op): int(num) for op, num in self._mode.get_flop_counts().get("Global", {}).items()}
            self._out.write_text(json.dumps({"flops": int(self._mode.get_total_flops()), "by_op": by_op}))
        elif self._num_steps == _LAST:
            raise _Done


def main(arguments: list[str]) -> int:
    """Run the script. Returns the exit status; the script's own exceptions pass."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    import rankscope.auto  # noqa: F401  (tells the samples of a step)

    out, script = Path(arguments[0]), arguments[1]
    register_optimizer_step_post_hook(_Counter(out).after_step)
    sys.argv = arguments[1:]
    sys.path[0] = str(Path(script).resolve().parent)
    with contextlib.suppress(_Done):
        runpy.run_path(script, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
