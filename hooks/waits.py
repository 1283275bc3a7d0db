"""Who waited, and how long: `Work.wait` for what Python holds, `wait_tensor` for functional and compiled collectives.

`wait_tensor` is entered through its packet and its overload, one inside the other: the outermost counts. The operation
it waits for is found by the address of the tensor. Waits in C++ (the reducer of DDP, a communication hook's future) are
not seen from Python; their rows have no wait, which reads "inside backward" by the row's phase, never a wait of zero.
Cost: about 4 us per wait.
"""

from contextlib import ExitStack
from typing import Any

from rankscope.schema.ring import COMPLETED, FAILED

from .base import Guard, now_ns, patch
from .completion import LAYOUT, WAITED, Pending
from .entry import entries_of, make_entry
from .ledger import Ledger


def install(ledger: Ledger, guard: Guard, undo: ExitStack) -> None:
    """Watch waits until `undo` closes."""
    from torch.distributed import Work

    patch(Work, "wait", lambda raw: _work_wait(ledger, guard, Work.wait), undo)
    for owner in entries_of("_c10d_functional", "wait_tensor"):
        patch(owner, "_op", lambda raw: make_entry(raw, _tensor_wait(ledger, guard, raw)), undo)


def _work_wait(ledger: Ledger, guard: Guard, original: Any) -> Any:
    works, recorder, close = ledger.completion.works, ledger.recorder, ledger.recorder.close
    measured = _measured(ledger, guard, original)

    def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
        pending = works.pop(id(work), None)
        if pending is None or guard.is_off or not recorder.is_on:
            return original(work, *args, **kwargs)
        if type(pending) is not tuple:
            return measured(pending, work, args, kwargs)
        record, returned = pending
        state, begin = FAILED, now_ns()
        try:
            result = original(work, *args, **kwargs)
            state = COMPLETED
            return result
        finally:
            end = now_ns()
            try:
                close(LAYOUT, record, state, WAITED, returned, begin, end, end)
            except Exception as error:  # noqa: BLE001 - the guard's
                guard.failed(error)

    return wait


def _tensor_wait(ledger: Ledger, guard: Guard, original: Any) -> Any:
    outputs, recorder, thread, plain = ledger.completion.outputs, ledger.recorder, ledger.thread, ledger.plain
    measured = _measured(ledger, guard, original)

    def wait(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if not outputs or thread.is_waiting or guard.is_off or not recorder.is_on or type(tensor) not in plain:
            return original(tensor, *args, **kwargs)
        pending = None
        try:
            pending = outputs.pop(tensor.data_ptr(), None)
        except Exception as error:  # noqa: BLE001 - the guard's
            guard.failed(error)
        if pending is None:
            return original(tensor, *args, **kwargs)
        thread.is_waiting = True
        try:
            return measured(pending, tensor, args, kwargs)
        finally:
            thread.is_waiting = False

    return wait


def _measured(ledger: Ledger, guard: Guard, original: Any) -> Any:
    completion, device = ledger.completion, ledger.device

    def wait(pending: Pending, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        mark = device.begin() if device.is_active and pending.is_cuda else None
        begin = now_ns()
        has_failed = True
        try:
            result = original(what, *args, **kwargs)
            has_failed = False
            return result
        finally:
            end = now_ns()
            try:
                if mark is not None:
                    for record, issued, _ in pending.records:
                        device.end(mark, record, issued, is_wait=True)
                completion.waited(pending, begin, end, has_failed)
            except Exception as error:  # noqa: BLE001 - the guard's
                guard.failed(error)

    return wait
