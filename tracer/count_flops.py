"""Runs a training script until its second step is over and counts the FLOPs of that step; a process of its own.

`torch.utils.flop_counter` counts matrix products, convolutions and attention, forward and backward, as they are
executed: with activation checkpointing the recomputation is in it, which is told (torch's own checkpointing is seen by
its two entries, `torch.utils.checkpoint` 2.1). Elementwise work is not counted. A step is from one call of the first
optimizer's `step` to the next. The counter sees nothing inside compiled graphs, so compiling is switched off by the
command that starts this. `python -m rankscope.tracer.count_flops OUT SCRIPT [ARGS...]` writes
{"flops": ..., "by_op": {...}, "recomputes": ...} to OUT.
"""

import contextlib
import functools
import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_COUNTED, _LAST = 1, 3
"""Optimizer steps: counted is the one after the first; rankscope's own rows of it are whole after the third."""


_CHECKPOINTING = ("checkpoint", "_checkpoint_without_reentrant_generator")
"""What users call, and what composable checkpointing does."""


_PLACE = frozenset({"run_dir", "run_id", "agent", "hooks"})
"""Arguments of `attach` that the command which starts this has set."""


class _Done(BaseException):
    """Enough was seen; nothing in the script is meant to catch it."""


class _Counter:
    """Counts from the end of the first optimizer step to that of the second."""

    def __init__(self, out: Path) -> None:
        from torch.utils.flop_counter import FlopCounterMode

        self._mode, self._out = FlopCounterMode(display=False), out
        self._first: Any = None
        self._num_steps = self._num_recomputed = 0

    def watch_checkpointing(self) -> None:
        """Before the script imports it: from then on its calls in the counted step are counted."""
        from torch.utils import checkpoint

        for name in _CHECKPOINTING:
            original = getattr(checkpoint, name, None)
            if original is not None:
                setattr(checkpoint, name, self._watched(original))

    def _watched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*arguments: Any, **options: Any) -> Any:
            self._num_recomputed += self._num_steps == _COUNTED
            return original(*arguments, **options)

        return call

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
            told = {"flops": int(self._mode.get_total_flops()), "by_op": by_op, "recomputes": self._num_recomputed > 0}
            self._out.write_text(json.dumps(told))
        elif self._num_steps == _LAST:
            raise _Done


def main(arguments: list[str]) -> int:
    """Run the script. Returns the exit status; the script's own exceptions pass."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    import rankscope.auto  # noqa: F401  (tells the samples of a step)

    _keep_the_place()
    out, script = Path(arguments[0]), arguments[1]
    counter = _Counter(out)
    register_optimizer_step_post_hook(counter.after_step)
    counter.watch_checkpointing()
    sys.argv = arguments[1:]
    sys.path[0] = str(Path(script).resolve().parent)
    with contextlib.suppress(_Done):
        runpy.run_path(script, run_name="__main__")
    return 0


def _keep_the_place() -> None:
    """What the script says of its run's place must not lead the rows of this one to it."""
    import rankscope

    attach = rankscope.attach

    @functools.wraps(attach)
    def attach_here(**given: Any) -> Any:
        return attach(**{name: value for name, value in given.items() if name not in _PLACE})

    rankscope.attach = attach_here


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
