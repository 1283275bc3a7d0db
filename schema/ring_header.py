"""The first 4,096 bytes of a ring file: written by the training process, which loads neither numpy nor pyarrow."""

import json
from dataclasses import dataclass

from . import ring


@dataclass(frozen=True, slots=True)
class RingHeader:
    """proc, capacity, ontology version and creation time (CLOCK_MONOTONIC ns) of a ring file."""

    proc: int
    capacity: int
    ontology: str
    created_ns: int


def encode_header(header: RingHeader) -> bytes:
    """The first 4,096 bytes of a ring file."""
    document = {
        "magic": ring.MAGIC, "proc": header.proc, "capacity": header.capacity, "record_bytes": ring.RECORD_BYTES,
        "ontology": header.ontology, "created_ns": header.created_ns,
    }  # fmt: skip
    return json.dumps(document).encode().ljust(ring.HEADER_BYTES, b"\0")
