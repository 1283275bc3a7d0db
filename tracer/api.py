"""What a training script says: attach, detach, step, log, span. Only `attach` raises."""

import gc
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from rankscope.schema.errors import SettingsError

from .saying import say

if TYPE_CHECKING:
    from .session import Session

_session: "Session | None" = None
_num_attached = 0
_NOTHING: AbstractContextManager[object] = nullcontext()


class Off:
    """What `attach` returns where rankscope is switched off (RANKSCOPE=0)."""

    is_on = False

    def detach(self) -> None:
        """Nothing to take out."""


def attach(  # noqa: PLR0913
    *,
    run_dir: str | os.PathLike[str] | None = None,
    run_id: str | None = None,
    job_id: str | None = None,
    owner: str | None = None,
    project: str | None = None,
    layout: Mapping[str, int | str] | None = None,
    price_per_device_hour: float | None = None,
    peak_flops: float | None = None,
    flops_per_sample: float | None = None,
    flops_per_token: float | None = None,
    flops_source: str | None = None,
    activation_checkpointing: str | None = None,
    global_batch: int | None = None,
    sequence_length: int | None = None,
    precision: str | None = None,
    objective: str | None = None,
    artifacts: Iterable[Mapping[str, str]] = (),
    hooks: Iterable[str] | str | None = None,
    agent: str | None = None,
) -> "Session | Off":
    """Begin to observe this process; a second call adds its arguments to the first one's session.

    run_dir: the run's own folder or object-store address. layout: sizes by dimension, such as {"dp": 4, "tp": 2}.
    price_per_device_hour: in the currency of your choice. peak_flops: FLOP/s of one device. flops_per_sample and
    flops_per_token: FLOPs of the model; flops_source: "counted" where `rankscope flops` counted them, recomputation
    included. activation_checkpointing: what is recomputed, in your words. global_batch: samples per step over all
    ranks. artifacts: dicts with kind and name, also version, digest, source. hooks: names; "-name" leaves one out.
    agent: auto, now, thread or off. Arguments win over RANKSCOPE_* variables. Raises SettingsError (a ValueError),
    which says the fix.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    if not given["artifacts"]:
        del given["artifacts"]
    return _attach(given)


def attach_quietly() -> None:
    """`attach` from the environment alone. Never raises: one line, and off."""
    try:
        _attach({})
    except SettingsError as error:
        say(f"off: {error}")
    except Exception as error:  # noqa: BLE001 - the guard of the import line
        say(f"off: {type(error).__name__}: {error}")


def detach() -> None:
    """Take everything out again; every patched object is the identical original."""
    global _session
    session, _session = _session, None
    if session is not None:
        session.detach()


def step(*, samples: int | None = None, tokens: int | None = None, global_step: int | None = None) -> None:
    """A training step of this process ends now; from the first call on, only these calls are step boundaries.

    samples, tokens: how many this process worked through in the step. global_step: the step in the whole training.
    """
    if _session is not None:
        _session.step(samples, tokens, global_step)


def log(step: int | None = None, *, replicated: Iterable[str] = (), **scalars: Any) -> None:
    """Record scalars (numbers, or tensors of one element, which are never waited for).

    step: the step in the whole training. replicated: names of those that should be equal on all ranks.
    """
    if _session is not None:
        _session.log(step, replicated, scalars)


def span(kind_or_name: str) -> AbstractContextManager[object]:
    """A context manager for an interval of work: a kind of table `span` ("eval", "data", ...), or your own name."""
    return _NOTHING if _session is None else _session.span(kind_or_name)


def is_off(environment: Mapping[str, str]) -> bool:
    """True for RANKSCOPE=0: nothing is loaded, nothing patched."""
    return environment.get("RANKSCOPE", "").strip() == "0"


def _attach(given: Mapping[str, Any]) -> "Session | Off":
    if is_off(os.environ):
        return Off()
    with _without_collections():
        return _attach_now(given)


def _attach_now(given: Mapping[str, Any]) -> "Session | Off":
    """Raises SettingsError; whatever else fails is one line, and off."""
    global _session, _num_attached
    from .settings import from_environment, with_arguments

    if _session is not None:
        _session.update(with_arguments(_session.settings, given))
        return _session
    settings = with_arguments(from_environment(os.environ), given)
    try:
        from .session import Session

        session = Session(settings, _num_attached)
        session.install()
    except Exception as error:  # noqa: BLE001 - the guard of attach
        say(f"off: {type(error).__name__}: {error}")
        return Off()
    _session, _num_attached = session, _num_attached + 1
    return session


@contextmanager
def _without_collections() -> Iterator[None]:
    """Garbage is collected afterwards: a pass over torch's objects takes 50 ms, and all that is made here stays."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
