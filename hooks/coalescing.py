"""Coalesced calls: what stands between `_start_coalescing` and `_end_coalescing` shares a number, and one work.

Backends that coalesce (NCCL) give no work for the single operations; the one that `_end_coalescing` returns closes all
of their rows. Gloo raises in `_start_coalescing`; its coalesced operations are operations of their own.
"""

from contextlib import ExitStack
from typing import Any

from .base import Guard, patch
from .ledger import Ledger


def watch_coalescing(ledger: Ledger, guard: Guard, undo: ExitStack) -> None:
    """Number coalesced calls until `undo` closes."""
    from torch.distributed import ProcessGroup

    thread, completion = ledger.thread, ledger.completion
    start: Any = ProcessGroup._start_coalescing
    end: Any = ProcessGroup._end_coalescing

    def started(pg: Any, *args: Any, **kwargs: Any) -> Any:
        result = start(pg, *args, **kwargs)
        thread.coalescing, thread.batch = next(ledger.coalescings), ()
        set_plain(pg, is_plain=False)
        return result

    def ended(pg: Any, *args: Any, **kwargs: Any) -> Any:
        batch = thread.batch
        thread.coalescing, thread.batch = 0, ()
        set_plain(pg, is_plain=True)
        work = end(pg, *args, **kwargs)
        if batch and work is not None and not guard.is_off and ledger.recorder.is_on:
            try:
                completion.issued(work, batch, ledger.registry.learn(pg).is_host, False)
            except Exception as error:  # noqa: BLE001 - the guard's
                guard.failed(error)
        return work

    def set_plain(pg: Any, *, is_plain: bool) -> None:
        group = ledger.registry.by_id.get(id(pg))
        if group is not None:
            group.is_plain = group.could_be_plain if is_plain else False

    patch(ProcessGroup, "_start_coalescing", lambda _: started, undo)
    patch(ProcessGroup, "_end_coalescing", lambda _: ended, undo)
