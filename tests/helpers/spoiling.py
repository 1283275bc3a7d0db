"""Documents with odd values in odd places: what importers must survive."""

import json
from random import Random
from typing import Any

ODD: tuple[Any, ...] = (
    None, -1, 0, 1 << 31, 1 << 63, -(1 << 70), 1e300, 0.5, "", "x", "[0, 99999999999]", [], {}, [[1]], {"a": None},
    True,
)  # fmt: skip


def spoil(document: Any, random: Random, times: int = 3) -> Any:
    """The document with up to `times` values anywhere in it replaced; JSON's types only."""
    document = json.loads(json.dumps(document))
    for _ in range(random.randint(1, times)):
        holder, key = random.choice(list(_places(document)))
        holder[key] = random.choice(ODD)
    return document


def damage(text: bytes, random: Random) -> bytes:
    """Perhaps a flipped byte, perhaps cut."""
    data = bytearray(text)
    if random.random() < 0.4:
        data[random.randrange(len(data))] = random.randrange(256)
    return bytes(data[: random.randrange(len(data))] if random.random() < 0.3 else data)


def _places(document: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    keys = list(document) if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else []
    for key in keys:
        found.append((document, key))
        found += _places(document[key])
    return found
