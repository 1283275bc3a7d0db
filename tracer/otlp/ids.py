"""Trace and span ids without talking: whoever knows the run, the incarnation and the step makes the same ones."""

import hashlib


def trace_id(run_id: str, incarnation: int, step: int) -> int:
    """The trace of a step, 128 bits, over all ranks."""
    return _hashed(16, "trace", run_id, incarnation, step)


def root_id(run_id: str, incarnation: int, step: int) -> int:
    """The root span of that trace, 64 bits."""
    return _hashed(8, "root", run_id, incarnation, step)


def step_id(run_id: str, incarnation: int, step: int, rank: int) -> int:
    """The span of one rank in it."""
    return _hashed(8, "step", run_id, incarnation, step, rank)


def row_id(run_id: str, table: str, proc: int, record: int) -> int:
    """The span of one row (a phase, an operation, an incident)."""
    return _hashed(8, table, run_id, proc, record)


def _hashed(num_bytes: int, *parts: object) -> int:
    digest = hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=num_bytes).digest()
    return int.from_bytes(digest, "big") or 1  # 0 is no id
