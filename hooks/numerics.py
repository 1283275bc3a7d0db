"""Gradient norms and loss scales that the job computes anyway, as rows of table `metric`; nothing is computed for us.

grad_norm: the total norm with which gradients are clipped: `clip_grad_norm_` of torch (seen where it scales the
gradients, so that names imported earlier are seen too), `clip_grads_with_norm_`, and FSDP1's method. Under FSDP2 and
tensor parallelism the norm is a partial DTensor, whose reading would communicate: the rank's own part is told as
grad_norm_local (the whole is the root of the sum of squares over the shards, for a 2-norm).
loss_scale: the scale of a GradScaler after each `update`. found_inf: whether a step on a device was skipped inside a
fused optimizer, which the host does not learn otherwise; other skipped steps are `step.is_skipped`.

CPU values are read at once; those on a device are copied asynchronously and read when they are there (`metrics`).
Cost: about 7 us a call. Cannot see: clipping by other libraries (DeepSpeed, Megatron), scalers of their own.
Source: torch.nn.utils.clip_grad (2.6), torch.amp.GradScaler (2.3).
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from rankscope.schema.errors import HookUnavailable

from .base import Recorder, claim, patch
from .late import when_loaded
from .metrics import MetricLog
from .steps import clock_for

GRAD_NORM: Final = "grad_norm"
GRAD_NORM_LOCAL: Final = "grad_norm_local"
LOSS_SCALE: Final = "loss_scale"
FOUND_INF: Final = "found_inf"

_FSDP: Final = "torch.distributed.fsdp.fully_sharded_data_parallel"
_SHARDED_SCALER: Final = "torch.distributed.fsdp.sharded_grad_scaler"


class NumericsWatch:
    """What one process's clipping and scaling say. Its calls never raise."""

    __slots__ = ("log", "num_norms")

    def __init__(self, recorder: Recorder) -> None:
        self.log = MetricLog(recorder, hook="numerics")
        self.num_norms = 0

    @property
    def is_on(self) -> bool:
        """False where nothing is recorded."""
        return self.log.recorder.is_on and not self.log.guard.is_off

    def norm(self, total: Any) -> None:
        """Gradients are clipped by their total norm `total`, a tensor or a number."""
        self.num_norms += 1
        if not self.is_on:
            return
        placements = getattr(total, "placements", None)
        try:
            if placements is not None and not all(placement.is_replicate() for placement in placements):
                self.log.log({GRAD_NORM_LOCAL: total.detach()._local_tensor})
            else:
                self.log.log({GRAD_NORM: total})
        except Exception as error:  # noqa: BLE001
            self.log.guard.failed(error)

    def scale(self, scaler: Any) -> None:
        """`scaler` was updated."""
        if not self.is_on:
            return
        try:
            scale = getattr(scaler, "_scale", None)
            if scale is not None:
                self.log.log({LOSS_SCALE: scale})
        except Exception as error:  # noqa: BLE001
            self.log.guard.failed(error)

    def stepped(self, scaler: Any, optimizer: Any, step: int) -> None:
        """`scaler` let a fused optimizer step in step ordinal `step`; whether it skipped is known on its device."""
        if not self.is_on or not getattr(optimizer, "_step_supports_amp_scaling", False):
            return
        try:
            for found in scaler._per_optimizer_states[id(optimizer)].get("found_inf_per_device", {}).values():
                if found.device.type != "cpu":
                    self.log.log({FOUND_INF: found}, of_step=step)
        except Exception as error:  # noqa: BLE001
            self.log.guard.failed(error)

    def boundary(self) -> None:
        """A step ended: a moment to look whether values have arrived from devices."""
        if self.is_on:
            try:
                self.log.poll()
            except Exception as error:  # noqa: BLE001
                self.log.guard.failed(error)


def install(recorder: Recorder, undo: ExitStack) -> None:
    """See `base.Hook`. Raises HookUnavailable without torch."""
    try:
        import torch.nn.utils
        from torch.amp.grad_scaler import GradScaler
        from torch.nn.utils import clip_grad
    except ImportError as error:
        raise HookUnavailable(f"numerics: {error}") from error
    if not claim("numerics", undo):
        return
    watch, clock = NumericsWatch(recorder), clock_for(recorder)
    undo.callback(watch.log.finish)
    clock.listeners.append(watch.boundary)
    undo.callback(clock.listeners.remove, watch.boundary)
    if hasattr(clip_grad, "_clip_grads_with_norm_"):
        patch(clip_grad, "_clip_grads_with_norm_", lambda original: _wrap_clip(original, watch), undo)
        patch(torch.nn.utils, "clip_grads_with_norm_", lambda original: _wrap_clip(original, watch), undo)
    else:  # before 2.6 the norm is seen only where it is returned
        for module in (clip_grad, torch.nn.utils):
            patch(module, "clip_grad_norm_", lambda original: _wrap_returned(original, watch), undo)
    patch(GradScaler, "update", lambda original: _wrap_update(original, watch), undo)
    patch(GradScaler, "step", lambda original: _wrap_step(original, watch), undo)
    _patch_when_loaded(_SHARDED_SCALER, "ShardedGradScaler", "update", lambda made: _wrap_update(made, watch), undo)
    _patch_when_loaded(
        _FSDP, "FullyShardedDataParallel", "clip_grad_norm_", lambda made: _wrap_returned(made, watch), undo
    )


def _patch_when_loaded(
    module: str, owner: str, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]], undo: ExitStack
) -> None:
    def came(loaded: Any, late: ExitStack) -> None:
        target = getattr(loaded, owner, None)
        if target is not None and name in vars(target):
            patch(target, name, make, late)

    when_loaded(module, came, undo)


def _wrap_clip(original: Callable[..., Any], watch: NumericsWatch) -> Callable[..., Any]:
    from torch.compiler import is_compiling

    def clip_grads_with_norm_(*args: Any, **kwargs: Any) -> Any:
        if not is_compiling():
            watch.norm(args[2] if len(args) > 2 else kwargs.get("total_norm"))
        return original(*args, **kwargs)

    return clip_grads_with_norm_


def _wrap_returned(original: Callable[..., Any], watch: NumericsWatch) -> Callable[..., Any]:
    """For functions that return the norm, unless they have told it on their way through `_wrap_clip`."""
    from torch.compiler import is_compiling

    def clip_grad_norm_(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        num_norms = watch.num_norms
        total = original(*args, **kwargs)
        if watch.num_norms == num_norms:
            watch.norm(total)
        return total

    return clip_grad_norm_


def _wrap_update(original: Callable[..., Any], watch: NumericsWatch) -> Callable[..., Any]:
    def update(scaler: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(scaler, *args, **kwargs)
        watch.scale(scaler)
        return result

    return update


def _wrap_step(original: Callable[..., Any], watch: NumericsWatch) -> Callable[..., Any]:
    def step(scaler: Any, *args: Any, **kwargs: Any) -> Any:
        ordinal = watch.log.recorder.step
        result = original(scaler, *args, **kwargs)
        watch.stepped(scaler, args[0] if args else kwargs.get("optimizer"), ordinal)
        return result

    return step
