"""Seeds that the job sets, as rows of table `artifact`: torch.manual_seed, random.seed and numpy.random.seed.

A seed set before the attach is found in torch's default generator. The first `MAX_SEEDS` different ones of each source
are told, once each. Ranks often set different ones: a row says one rank that used it. Seeds that are no whole numbers
(random.seed takes any object) are told by digest alone.

Cost: about 1 us a call, 10 us for a seed not seen before. Cannot see: generators of the job's own, seeds set through
names that were imported from these modules before the attach.
"""

import hashlib
import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from rankscope.schema.errors import HookUnavailable

from .base import Guard, Recorder, claim, patch
from .late import when_loaded

MAX_SEEDS: Final = 16
CHOSEN_BELOW: Final = 1 << 32
"""Torch's default generator begins with 64 random bits; a seed below this was chosen by somebody."""


class SeedLog:
    """The seeds of one process that were told."""

    __slots__ = ("_told", "guard")

    def __init__(self, recorder: Recorder) -> None:
        self.guard = Guard(recorder, "seeds")
        self._told: dict[str, set[str]] = {}

    def seen(self, name: str, seed: object, source: str) -> None:
        """The generator of library `name` was seeded by `source`."""
        guard = self.guard
        if guard.is_off or not guard.recorder.is_on:
            return
        try:
            guard.calls += 1
            guard.flush()
            self._tell(name, seed, source)
        except Exception as error:  # noqa: BLE001
            guard.failed(error)

    def _tell(self, name: str, seed: object, source: str) -> None:
        is_whole = isinstance(seed, int) or hasattr(seed, "__index__")
        text = str(int(seed)) if is_whole else repr(seed)  # type: ignore[call-overload]
        told = self._told.setdefault(name, set())
        if seed is None or text in told or len(told) >= MAX_SEEDS:
            return
        told.add(text)
        row = {"kind": "seed", "name": name, "source": source}
        row |= {"version": text} if is_whole else {"digest": hashlib.sha256(text.encode()).hexdigest()}
        self.guard.recorder.journal("row", table="artifact", row=row)
        self.guard.count_row()


def install(recorder: Recorder, undo: ExitStack) -> None:
    """See `base.Hook`. Raises HookUnavailable without torch."""
    try:
        import torch
    except ImportError as error:
        raise HookUnavailable(f"seeds: {error}") from error
    if not claim("seeds", undo):
        return
    log = SeedLog(recorder)
    if torch.initial_seed() < CHOSEN_BELOW:
        log.seen("torch", torch.initial_seed(), "set before the attach")
    for module in (torch.random, torch):
        patch(module, "manual_seed", lambda original: _wrap(original, log, "torch", "torch.manual_seed"), undo)
    patch(random, "seed", lambda original: _wrap(original, log, "random", "random.seed"), undo)

    def numpy_came(module: Any, late: ExitStack) -> None:
        patch(module, "seed", lambda original: _wrap(original, log, "numpy", "numpy.random.seed"), late)

    when_loaded("numpy.random", numpy_came, undo)


def _wrap(original: Callable[..., Any], log: SeedLog, name: str, source: str) -> Callable[..., Any]:
    from torch.compiler import is_compiling

    def seed(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if not is_compiling():
            given = args[0] if args else next(iter(kwargs.values()), None)
            log.seen(name, given, source)
        return result

    return seed
