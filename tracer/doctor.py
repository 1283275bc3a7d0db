"""What would be captured on this machine, in this environment, and what would not: every check of `rankscope doctor`.

Each check looks at the real thing (a ring is made, a child is started, every sampler reads once) and cleans up after
itself. Costs a few seconds, most of them for importing torch in a child. It sees this node and this environment only.
"""

import os
from collections.abc import Callable, Iterable
from typing import Final

from rankscope.schema.errors import SettingsError

from .check import FINE, MISSING, NOTE, Check
from .doctor_host import check_host
from .doctor_places import check_places
from .doctor_samplers import check_samplers
from .doctor_torch import check_torch
from .settings import Settings, from_environment

_PARTS: Final[tuple[Callable[[Settings], Iterable[Check]], ...]] = (
    check_torch,
    check_places,
    check_samplers,
    check_host,
)


NEEDED: Final = ("settings", "torch", "ring")
"""Checks without which no row is written at all."""


def captures_nothing(checks: Iterable[Check]) -> bool:
    """A job that starts like this would leave nothing: something that every row needs is missing."""
    return any(check.state == MISSING and check.name in NEEDED for check in checks)


def examine() -> list[Check]:
    """All checks, in the order of the way of a fact: settings, torch, places, samplers, host."""
    checks, settings = _settings()
    for part in _PARTS:
        checks += _guarded(part, settings)
    return checks


def _settings() -> tuple[list[Check], Settings]:
    try:
        settings = from_environment(os.environ)
    except SettingsError as error:
        return [
            Check("settings", MISSING, str(error), "correct the variable: until then nothing is captured")
        ], Settings()
    given = sorted(name for name in os.environ if name == "RANKSCOPE" or name.startswith("RANKSCOPE_"))
    if not settings.is_on:
        return [Check("settings", MISSING, "RANKSCOPE=0: nothing is captured", "unset RANKSCOPE")], settings
    return [Check("settings", FINE, ", ".join(given) if given else "none is set; all defaults")], settings


def _guarded(part: Callable[[Settings], Iterable[Check]], settings: Settings) -> list[Check]:
    """What `part` found until it failed: one broken corner of a machine must not hide the others."""
    found: list[Check] = []
    try:
        found.extend(part(settings))
    except Exception as error:  # noqa: BLE001 - reported as a finding of its own
        name = part.__name__.removeprefix("check_")
        found.append(Check(name, NOTE, f"could not be looked at: {type(error).__name__}: {error}"))
    return found
