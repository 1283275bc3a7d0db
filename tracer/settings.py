"""Every setting of capture: RANKSCOPE_* variables and the arguments of `attach`, checked before the training starts.

A wrong value raises SettingsError, whose text says the fix. Values of `attach` win over the environment.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from rankscope.hooks.budget import DEFAULT as COST_BUDGET
from rankscope.hooks.registry import HOOKS, SAMPLERS
from rankscope.schema.enums import ARTIFACT_KINDS
from rankscope.schema.errors import SettingsError

AGENT_MODES: Final = ("auto", "now", "thread", "off")
FLOPS_SOURCES: Final = ("declared", "counted")
OBJECT_STORES: Final = ("s3://", "gs://")
LAYOUT_NAMES: Final = ("dp", "tp", "pp", "vpp", "cp", "ep", "sharding")
_RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SIZE: Final = re.compile(r"(\d+)\s*([KMGT]?)(i?B)?", re.IGNORECASE)
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_Value = TypeVar("_Value")
_Artifacts = tuple[dict[str, str], ...]


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for this process; None: not set. run_dir is absolute or an object-store address."""

    is_on: bool = True
    run_dir: str | None = None
    run_id: str | None = None
    job_id: str | None = None
    owner: str | None = None
    project: str | None = None
    local_dir: str | None = None
    agent: str = "auto"
    hooks: frozenset[str] = frozenset(spec.name for spec in (*HOOKS, *SAMPLERS) if spec.default_on)
    sample_seconds: float | None = None
    device_times: int = 20
    kernels: tuple[int, int] | None = None
    keep_indices: bool = False
    checkpoint_digests: bool = False
    calibrate: int = 0
    cost_budget: float = COST_BUDGET
    budget_bytes: int | None = None
    patience_seconds: float = 60.0
    sysfs: str = "/sys"
    proc: str = "/proc"
    layout: tuple[tuple[str, int | str], ...] = ()
    price_per_device_hour: float | None = None
    peak_flops: float | None = None
    flops_per_sample: float | None = None
    flops_per_token: float | None = None
    flops_source: str | None = None
    activation_checkpointing: str | None = None
    global_batch: int | None = None
    sequence_length: int | None = None
    precision: str | None = None
    objective: str | None = None
    artifacts: _Artifacts = ()


def from_environment(environment: Mapping[str, str]) -> Settings:
    """The settings that RANKSCOPE_* variables give; an empty variable is not set. Raises SettingsError."""
    found: dict[str, Any] = {}
    for name, (field, read) in _VARIABLES.items():
        text = environment.get(name, "").strip()
        if text:
            found[field] = _read(name, text, read)
    return Settings(**found)


def with_arguments(settings: Settings, arguments: Mapping[str, Any]) -> Settings:
    """`settings` with the arguments of `attach` that are not None put over them. Raises SettingsError."""
    found: dict[str, Any] = {}
    for name, value in arguments.items():
        if value is not None:
            found[name] = _read(f"attach({name}=...)", value, _ARGUMENTS[name])
    return replace(settings, **found)


def _read(name: str, value: Any, read: Callable[[Any], _Value]) -> _Value:
    try:
        return read(value)
    except SettingsError:
        raise
    except (ValueError, TypeError, KeyError) as error:
        raise SettingsError(f"{name} is {value!r}: {error}") from None


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError("use 0 (off) or 1 (on)")
    return text == "1"


def _place(value: str | os.PathLike[str]) -> str:
    text = os.fspath(value)
    if "://" in text:
        if not text.startswith(OBJECT_STORES) or text.count("/") < 3 or text.endswith("://"):
            raise ValueError(f"use a path, or an address of a bucket that begins with {' or '.join(OBJECT_STORES)}")
        if "@" in text.split("/", 3)[2] or "?" in text:  # it is written into files: no secret may be in it
            raise ValueError("leave user, password and query out; credentials come from the environment")
        return text.rstrip("/")
    path = Path(text).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise ValueError("it is a file; use a folder, or a path that does not exist yet")
    return str(path)


def _folder(text: str) -> str:
    path = Path(text).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise ValueError("it is a file; use a folder")
    return str(path)


def _existing(text: str) -> str:
    if not Path(text).is_dir():
        raise ValueError("no such folder; use the mount point of that file system")
    return text


def _run_id(value: Any) -> str:
    if not isinstance(value, str) or not _RUN_ID.fullmatch(value):
        raise ValueError("use 1 to 128 letters, digits, '.', '_' or '-', beginning with a letter or digit")
    return value


def _label(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 256 or not value.isprintable():
        raise ValueError("use a text of 1 to 256 printable characters")
    return value


def _flops_source(value: Any) -> str:
    if value not in FLOPS_SOURCES:
        raise ValueError(f"use {' or '.join(FLOPS_SOURCES)}")
    return str(value)


def _mode(value: Any) -> str:
    if value not in AGENT_MODES:
        raise ValueError(f"use one of {', '.join(AGENT_MODES)}")
    return str(value)


def _hooks(value: str | Iterable[str]) -> frozenset[str]:
    """Plain names: only these. Names behind '-': the default ones without these."""
    names = [name.strip() for name in (value.split(",") if isinstance(value, str) else value) if name.strip()]
    known = {spec.name for spec in (*HOOKS, *SAMPLERS)}
    for name in names:
        if name.removeprefix("-") not in known:
            raise ValueError(f"no hook is called {name.removeprefix('-')!r}; there are {', '.join(sorted(known))}")
    chosen = {name for name in names if not name.startswith("-")}
    start = chosen or {spec.name for spec in (*HOOKS, *SAMPLERS) if spec.default_on}
    return frozenset(start - {name[1:] for name in names if name.startswith("-")})


def _whole(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, (bool, float)):
            raise ValueError(f"use a whole number of at least {least}")
        try:
            number = int(value)
        except (TypeError, ValueError):
            raise ValueError(f"use a whole number of at least {least}") from None
        if number < least:
            raise ValueError(f"use a whole number of at least {least}")
        return number

    return read


def _positive(value: Any) -> float:
    try:
        number = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not 0 < number < float("inf"):
        raise ValueError("use a number greater than 0")
    return number


def byte_size(value: Any) -> int:
    """Bytes in a text such as 500M (powers of 1024). Raises ValueError, which says the fix."""
    match = _SIZE.fullmatch(str(value).strip())
    if not match or int(match[1]) == 0:
        raise ValueError("use a number of bytes, such as 500000000 or 500M")
    return int(match[1]) * _UNITS[match[2].upper()]


def _kernels(text: str) -> tuple[int, int]:
    every, separator, steps = text.partition(":")
    if not separator or not every.isdigit() or not steps.isdigit() or not 0 < int(steps) <= int(every):
        raise ValueError("use every:steps, such as 1000:2 for two steps in a thousand")
    return int(every), int(steps)


def _calibrate(value: Any) -> int:
    number = _whole(0)(value)
    if number == 1:
        raise ValueError("use 0 (none) or one shadow step in n, n at least 2")
    return number


def _ratio(text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise ValueError("use a ratio of step time from 0 (no limit: every row is written) to 1, such as 0.01")
    return ratio


def _layout(value: Any) -> tuple[tuple[str, int | str], ...]:
    if not isinstance(value, Mapping):
        raise ValueError("use a dict such as {'dp': 4, 'tp': 2}")
    for name, size in value.items():
        if name not in LAYOUT_NAMES:
            raise ValueError(f"{name!r} is no dimension; use {', '.join(LAYOUT_NAMES)}")
        if name != "sharding":
            _whole(1)(size)
    return tuple((name, value[name]) for name in LAYOUT_NAMES if name in value)


def _artifacts(value: Any) -> _Artifacts:
    found = []
    for item in value:
        if not isinstance(item, Mapping) or item.get("kind") not in ARTIFACT_KINDS or not item.get("name"):
            raise ValueError(f"each one is a dict with a name and a kind out of {', '.join(ARTIFACT_KINDS)}")
        if unknown := sorted(set(item) - {"kind", "name", "version", "digest", "source"}):
            raise ValueError(f"an artifact has no {unknown[0]!r}; use kind, name, version, digest, source")
        found.append({key: str(text) for key, text in item.items()})
    return tuple(found)


_VARIABLES: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "RANKSCOPE": ("is_on", _switch),
    "RANKSCOPE_DIR": ("run_dir", _place),
    "RANKSCOPE_RUN_ID": ("run_id", _run_id),
    "RANKSCOPE_JOB_ID": ("job_id", _label),
    "RANKSCOPE_OWNER": ("owner", _label),
    "RANKSCOPE_PROJECT": ("project", _label),
    "RANKSCOPE_LOCAL_DIR": ("local_dir", _folder),
    "RANKSCOPE_AGENT": ("agent", _mode),
    "RANKSCOPE_HOOKS": ("hooks", _hooks),
    "RANKSCOPE_SAMPLE_SECONDS": ("sample_seconds", _positive),
    "RANKSCOPE_DEVICE_TIMES": ("device_times", _whole(0)),
    "RANKSCOPE_KERNELS": ("kernels", _kernels),
    "RANKSCOPE_INDICES": ("keep_indices", _switch),
    "RANKSCOPE_CHECKPOINT_DIGESTS": ("checkpoint_digests", _switch),
    "RANKSCOPE_CALIBRATE": ("calibrate", _calibrate),
    "RANKSCOPE_COST_BUDGET": ("cost_budget", _ratio),
    "RANKSCOPE_BUDGET_BYTES": ("budget_bytes", byte_size),
    "RANKSCOPE_PATIENCE_SECONDS": ("patience_seconds", _positive),
    "RANKSCOPE_SYSFS": ("sysfs", _existing),
    "RANKSCOPE_PROC": ("proc", _existing),
}
_ARGUMENTS: Final[dict[str, Callable[[Any], Any]]] = {
    "run_dir": _place, "run_id": _run_id, "job_id": _label, "owner": _label, "project": _label, "layout": _layout,
    "price_per_device_hour": _positive, "peak_flops": _positive, "flops_per_sample": _positive,
    "flops_per_token": _positive, "flops_source": _flops_source, "activation_checkpointing": _label,
    "global_batch": _whole(1), "sequence_length": _whole(1), "precision": _label,
    "objective": _label, "artifacts": _artifacts, "hooks": _hooks, "agent": _mode,
}  # fmt: skip
