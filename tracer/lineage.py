"""What a run was made from, as rows of table `artifact`: what can be seen without asking anybody.

code: the script, by commit and digest. dependency: the packages that decide how a training runs. config: the command
line (redacted, then digested) and the configuration files that it names. dataset, tokenizer: what options of the
command line name as such. container, topology, objective: where known. Seeds, the compiler and loaded checkpoints are
told by their hooks; what the user says in `attach(artifacts=...)` is added as it is. Written by rank 0 from the watch
thread; every text is redacted again by the journal. Cost: the reading of a few small files.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from . import manifest, redact

MAX_CONFIG_FILES: Final = 16
MAX_CONFIG_BYTES: Final = 4 << 20
"""Larger files on the command line are no configuration."""
COMMIT_LENGTH: Final = 12
"""Digits of a commit in `version`; the whole commit is in the manifest."""

_CONFIG_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf", ".gin"})
_DATA_OPTION: Final = re.compile(
    r"(?:^|[._-])(?:(?:train|valid|val|eval|test)[_-]?)?(?:data|dataset|datasets|corpus)"
    r"(?:[._-]?(?:path|paths|dir|root|name|names|file|files|prefix|folder|cache|url|set))?$",
    re.IGNORECASE,
)
_TOKENIZER_OPTION: Final = re.compile(
    r"(?:^|[._-])tokenizer(?:[._-]?(?:path|dir|name|file|model|name[_-]or[_-]path))?$", re.IGNORECASE
)

Artifact = dict[str, str]


def artifacts(
    described: Mapping[str, Any], home: Path, container_id: str | None, world_size: int | None, objective: str | None
) -> list[Artifact]:
    """The rows. described: the manifest of the run; home: the folder in which the job was started."""
    arguments = manifest.command()
    found = [*_code(described.get("code") or {}, home), *_dependencies(described), _command_line(arguments)]
    found += [
        *_config_files(arguments, home),
        *_named(arguments),
        _topology(described.get("topology") or {}, world_size),
    ]
    if container_id:
        found.append({
            "kind": "container", "name": "container", "version": container_id[:COMMIT_LENGTH], "digest": container_id,
            "source": "cgroup",
        })  # fmt: skip
    if objective:
        found.append({"kind": "objective", "name": objective, "source": "attach"})
    return [redact.document(row) for row in found]


def _code(state: Mapping[str, Any], home: Path) -> Iterator[Artifact]:
    """The script, if there is one: in a repository by its commit, "+dirty" where tracked files differ from it."""
    script = manifest.script()
    if not script and not state:
        return
    row = {"kind": "code", "name": Path(script).name if script else home.name}
    if commit := state.get("commit"):
        row["version"] = str(commit)[:COMMIT_LENGTH] + ("+dirty" if state.get("is_dirty") else "")
    if script:
        row["source"] = str(home / script)
        if digest := _digest_of(home / script):
            row["digest"] = digest
    if remote := state.get("remote"):
        row["source"] = str(remote)
    yield row


def _dependencies(described: Mapping[str, Any]) -> Iterator[Artifact]:
    yield {"kind": "dependency", "name": "python", "version": str(described.get("python")), "source": "interpreter"}
    for name, version in (described.get("versions") or {}).items():
        yield {"kind": "dependency", "name": name, "version": str(version), "source": "installed distribution"}
    build = described.get("torch") or {}
    for name in ("cuda", "hip"):
        if build.get(name):
            yield {"kind": "dependency", "name": name, "version": str(build[name]), "source": "torch's build"}


def _command_line(arguments: Sequence[str]) -> Artifact:
    """Its digest is of the redacted line: from a digest of the other, a short secret could be guessed."""
    line = redact.command_line(arguments)
    return {"kind": "config", "name": "command line", "digest": _digest(json.dumps(line).encode()), "source": "argv"}


def _config_files(arguments: Sequence[str], home: Path) -> Iterator[Artifact]:
    words = [part for argument in arguments[1:] for part in (argument, argument.partition("=")[2]) if part]
    paths = [word for word in words if Path(word).suffix.lower() in _CONFIG_SUFFIXES and "\0" not in word]
    for word in list(dict.fromkeys(paths))[:MAX_CONFIG_FILES]:
        if digest := _digest_of(home / word):
            yield {"kind": "config", "name": Path(word).name, "digest": digest, "source": str(home / word)}


def _named(arguments: Sequence[str]) -> Iterator[Artifact]:
    """Data sets and tokenizers that options name: `--data-path X`, `--tokenizer=X`, `dataset.name=X`."""
    for option, value in _options(arguments):
        for kind, pattern in (("dataset", _DATA_OPTION), ("tokenizer", _TOKENIZER_OPTION)):
            if value and pattern.search(option) and not redact.is_secret_name(option):
                yield {"kind": kind, "name": value, "source": f"option {option}"}


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    for argument, after in zip(arguments, [*arguments[1:], ""], strict=True):
        name, sign, value = argument.lstrip("-+").partition("=")
        if sign:
            yield name, value
        elif argument.startswith("--") and after and not after.startswith("-"):
            yield name, after


def _topology(found: Mapping[str, Any], world_size: int | None) -> Artifact:
    """The host of rank 0. Its affinity is left out of the digest: it differs between equal machines."""
    compared = {key: value for key, value in found.items() if key != "cpu_affinity"}
    devices = found.get("devices") or []
    words = [f"{world_size or 1} ranks", f"{found.get('num_cpus')} CPUs a host", *sorted(set(map(str, devices)))]
    digest = _digest(json.dumps(compared, sort_keys=True, default=str).encode())
    return {"kind": "topology", "name": "world", "version": ", ".join(words), "digest": digest, "source": "rank 0"}


def _digest_of(path: Path) -> str | None:
    try:
        if not path.is_file() or path.stat().st_size > MAX_CONFIG_BYTES:
            return None
        return _digest(path.read_bytes())
    except (OSError, ValueError):
        return None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
