"""Secrets are taken out of what the manifest keeps: command lines, addresses, paths, environment values.

Rules, in words: an option, variable or key whose name looks like a secret loses its value; an address loses its user
info, query string and fragment; a word that looks like a credential of a known issuer, or a long random word, goes
whole. Better one word too many than one secret.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

HIDDEN: Final = "[redacted]"
MIN_RANDOM_LENGTH: Final = 24
MIN_ENTROPY_BITS: Final = 3.7
"""Shannon entropy a character above which a long word of mixed letters and digits counts as random."""

_SECRET_NAME: Final = re.compile(
    r"(?:api|access|auth|refresh|user|hf)[_-]?tokens|secret|passw|passphrase|pwd|"
    r"token(?!izer|s$|s[_-]?per|[_-]?ids?$)|api[_-]?key|access[_-]?key|private[_-]?key|"
    r"encryption[_-]?key|auth(?!or)|credential|cookie|session[_-]?id|signature|"
    r"(?:^|[_-])(?:key|sig|pat|dsn|jwt|otp|pin)$|"
    r"connection[_-]?string|bearer|netrc|webhook",
    re.IGNORECASE,
)
_COUNT_OF_TOKENS: Final = re.compile(
    r"(?:^|[_-])(?:num|max|min|global|total|per|batch|seq|train|eval|context|vocab|n)[_-]tokens?$",
    re.IGNORECASE,
)
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>]+")
_SCP_ADDRESS: Final = re.compile(r"^[^/@:\s]+@([^/:\s]+:.*)$")
_KNOWN: Final = re.compile(
    r"AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|"
    r"hf_[A-Za-z0-9]{20,}|"
    r"sk-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AIza[\w-]{30,}|ya29\.[\w.-]+|npm_[A-Za-z0-9]{20,}|"
    r"eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?|-----BEGIN[^-]*PRIVATE KEY-----.*"
)
_ASSIGNMENT: Final = re.compile(r"^(-{0,2}[+~]*[\w.\-/@:]*?[\w\-]+)(=|:)(?!//)(.*)$", re.DOTALL)
_HEADER: Final = re.compile(
    r"^(authorization|proxy-authorization|x-api-key|cookie|set-cookie)\s*:\s*.*$", re.IGNORECASE | re.DOTALL
)
_DIGEST: Final = re.compile(r"(?:[a-z0-9]{2,10}:)?[0-9a-fA-F]{8,128}")
_WORD: Final = re.compile(rf"[A-Za-z0-9+/_=-]{{{MIN_RANDOM_LENGTH},}}")
_SHORT_SECRET_OPTIONS: Final = frozenset({"-p", "-P"})


def command_line(arguments: Iterable[str]) -> list[str]:
    """`arguments` without secrets: `--api-key X`, `--api-key=X`, `KEY=X`, addresses and random words."""
    kept: list[str] = []
    hides_next = False
    for argument in arguments:
        if hides_next and not (argument.startswith("--") and len(argument) > 2):
            kept.append(HIDDEN)
            hides_next = False
            continue
        hides_next = argument.startswith("-") and "=" not in argument and is_secret_name(argument)
        kept.append(text(argument))
    return kept


def variable(name: str, value: str) -> str:
    """The value of an environment variable or setting called `name`, without secrets."""
    return HIDDEN if value and is_secret_name(name) else text(value)


def document(value: Any) -> Any:
    """`value`, as JSON holds it, without secrets in its texts; what a key calls a digest, and looks like one, stays."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Mapping):
        return {
            key: item if key == "digest" and _DIGEST.fullmatch(str(item))
            else variable(str(key), item) if isinstance(item, str)
            else document(item)
            for key, item in value.items()
        }  # fmt: skip
    if isinstance(value, (list, tuple)):
        return [document(item) for item in value]
    return value


def text(value: str) -> str:
    """A word, path, address or assignment without secrets; also each part of a list separated by ',' or blank."""
    if _HEADER.match(value):
        return value.partition(":")[0] + ": " + HIDDEN
    parts = re.split(r"([\s,;&]+)", value)
    return "".join(part if index % 2 else _word(part) for index, part in enumerate(parts))


def address(value: str) -> str:
    """An address without user info, query string and fragment; also of the form user@host:path."""
    scheme, separator, rest = value.partition("://")
    if not separator:
        match = _SCP_ADDRESS.match(value)
        return match[1] if match else value
    authority, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{_hide_words(path)}"


def is_secret_name(name: str) -> bool:
    """True if what is called `name` should not be kept: a word like "token" or "password", but no count of tokens."""
    bare = name.lstrip("-+~").rsplit(".", 1)[-1]
    return bool(_SECRET_NAME.search(bare)) and not _COUNT_OF_TOKENS.search(bare)


def _word(word: str) -> str:
    if not word:
        return word
    if _SCP_ADDRESS.match(word):
        return _hide_words(address(word))
    if _ADDRESS.search(word):
        before, address_text = word[: word.index("://")], word
        match = _ASSIGNMENT.match(word) if "=" in before else None
        if match is None:
            return _ADDRESS.sub(lambda found: address(found[0]), address_text)
    else:
        match = _ASSIGNMENT.match(word)
    if match is not None:
        name, sign, value = match.groups()
        return name + sign + (HIDDEN if value and is_secret_name(name) else _word(value))
    return _hide_words(address(word))


def _hide_words(value: str) -> str:
    return _WORD.sub(lambda found: HIDDEN if _is_random(found[0]) else found[0], _KNOWN.sub(HIDDEN, value))


def _is_random(word: str) -> bool:
    """A long word of letters and digits without the shape of a name, a path or a plain hexadecimal digest."""
    for part in re.split(r"[/_=-]", word):
        has_both = any(c.isdigit() for c in part) and any(c.isalpha() for c in part)
        is_mixed = any(c.islower() for c in part) and any(c.isupper() for c in part)
        if (
            len(part) >= MIN_RANDOM_LENGTH
            and has_both
            and (is_mixed or len(part) >= 32)
            and _entropy(part) >= MIN_ENTROPY_BITS
        ):
            return True
    return False


def _entropy(word: str) -> float:
    shares = [word.count(character) / len(word) for character in set(word)]
    return -sum(share * math.log2(share) for share in shares)
