"""What stands in no line that we print or write: who logs in at an endpoint, its query, and the values of headers.

The SDK and what it sends with put addresses, and headers that they cannot read, into what they log. Standard library.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote, unquote

HIDDEN: Final = "[redacted]"
SHORTEST: Final = 4
"""Characters of a word of a header that is hidden: fewer would take letters out of everything else."""
_SIGNALS: Final = ("", "_METRICS", "_TRACES")
_KEPT: Final = "!#$%&'()*+,/:;=?@[]~"
"""What `requests` leaves as it is in an address."""


def secrets_of(environment: Mapping[str, str], *addresses: str) -> tuple[str, ...]:
    """The secrets of the OTEL_EXPORTER_OTLP_* variables and of further addresses, longest first."""
    found: set[str] = set()
    for signal in _SIGNALS:
        found.update(_of_address(environment.get(f"OTEL_EXPORTER_OTLP{signal}_ENDPOINT", "")))
        found.update(_of_headers(environment.get(f"OTEL_EXPORTER_OTLP{signal}_HEADERS", "")))
    for address in addresses:
        found.update(_of_address(address))
    return tuple(sorted(found, key=len, reverse=True))


def hidden(text: str, secrets: Iterable[str]) -> str:
    """`text` without them. secrets: longest first."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def without_secrets(address: str) -> str:
    """An address, with or without a scheme, without user, password, query and fragment."""
    scheme, sign, rest = address.rpartition("://")
    host, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{scheme}{sign}{host.rpartition('@')[2]}{slash}{path}"


def _of_address(address: str) -> Iterable[str]:
    rest = address.strip().rpartition("://")[2]
    place, *behind = re.split(r"[?#]", rest, maxsplit=1)
    user = place.partition("/")[0].rpartition("@")[0]
    found = [f"{user}@", user] if user else []
    for secret in (*found, *(f"?{query}" for query in behind), *behind):
        if len(secret) >= SHORTEST or secret.endswith("@") or secret.startswith("?"):
            yield from (secret, quote(secret, _KEPT), unquote(secret))


def _of_headers(text: str) -> Iterable[str]:
    """The value of each header, and its words; of what is no header, all of it."""
    for item in text.split(","):
        _, sign, value = item.strip().partition("=")
        for secret in {value, unquote(value)} if sign else {item.strip()}:
            yield from (word for word in (secret.strip(), *secret.split()) if len(word) >= SHORTEST)
